"""Listing the data sets is instant and names everything that can be loaded."""

import subprocess
import sys

from hetsgd.models.data.names import DESCRIPTIONS, describe


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from hetsgd.models.data.names import describe; describe(); "
        "print([name for name in ('numpy', 'scipy', 'sklearn', 'pandas', 'platformdirs') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"


def test_every_name_has_a_description() -> None:
    assert dict(describe()) == DESCRIPTIONS
    assert {
        "covtype-sample",
        "covtype",
        "w8a",
        "a9a",
        "letter",
        "mnist10k",
        "tmc2007_500",
        "delicious",
        "real-sim",
    } == set(DESCRIPTIONS)
    assert all(len(text) > 20 for _, text in describe())
