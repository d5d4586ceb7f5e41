"""A study's folder that is not what a study wrote is refused by file and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsgd.studies.failure import BadInput
from hetsgd.studies.study_folder import read_study

HEAD = '"schema": "hetsgd.study/1"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "schema must be hetsgd.study/1, got None"),
        ("{", "line 1"),
        (f"{{{HEAD}}}", "cases: must be there"),
        (f'{{{HEAD}, "cases": 5, "study": 1, "choices": 1, "failures": 1, "wall_s": 1}}', "not what a study writes"),
        (f'{{{HEAD}, "cases": [], "study": {{}}, "choices": [], "failures": [], "wall_s": 1}}', "not what a study"),
    ],
)
def test_a_damaged_study_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(BadInput, match=message) as caught:
        read_study(tmp_path)
    assert "study.json" in str(caught.value)
