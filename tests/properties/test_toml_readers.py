"""Whatever bytes a file of a person's own holds, its reader returns a checked value or refuses it in one message."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hetsgd.models.machine import Machine
from hetsgd.models.machine_file import MachineError, load_machine
from hetsgd.models.machine_names import MACHINE_FOLDER
from hetsgd.models.run_file import RunError, run_settings
from hetsgd.models.workload_file import LoadedWorkload, WorkloadError, load_workload
from hetsgd.models.workload_names import WORKLOAD_FOLDER
from hetsgd.studies.failure import BadInput
from hetsgd.studies.policy_file import load_policy
from hetsgd.studies.study import Study
from hetsgd.studies.study_file import load_study

ROOT: Final = Path(__file__).resolve().parents[2]
POLICY: Final = 'policy = "adaptive-hogbatch"\nalpha = 1.5\ncpu_batch = 2\ncpu_upper = 32\ncounts = "run"\n'
WORDS: Final = (
    "nan", "inf", "-inf", "-1", "0", "1e308", "-1e-308", "1e20", "9223372036854775808", "0x" + "f" * 400, "true",
    '""', '"x"', "[]", "[[]]", "[1, 2]", "{}", "{ value = 1 }", "1979-05-27", '"\\u0000"', "[1e999]", '"/"', '"~x/y"',
)  # fmt: skip
"""Values that a reader must not choke on, wherever one stands."""


def workload(path: Path) -> None:
    loaded: LoadedWorkload = load_workload(path, data=False)
    net = loaded.workload
    assert 0 < net.parameters < 1000 * (10**8) ** 2
    assert math.isfinite(net.initial_scale)
    try:
        run = run_settings(loaded.run, defaults={"epochs": 1})
    except RunError:  # a stop and an evaluation that do not go together
        return
    assert 0 <= run.seed < 2**63
    assert math.isfinite(run.learning_rate)


def machine(path: Path) -> None:
    found: Machine = load_machine(str(path))
    assert 0.0 <= found.message_s < 1e9
    assert all(0 < socket.cores < 2**31 for socket in found.sockets)
    assert all(math.isfinite(link.latency_s) for link in found.links)


def policy(path: Path) -> None:
    recipe: Any = load_policy(str(path), {})
    assert all(
        math.isfinite(value) for item in fields(recipe) if isinstance(value := getattr(recipe, item.name), float)
    )
    assert all(abs(value) <= 10**15 for item in fields(recipe) if isinstance(value := getattr(recipe, item.name), int))


def study(path: Path) -> None:
    found: Study = load_study(path)
    assert all(0 <= seed < 2**63 for seed in found.seeds)
    assert 0 < len(found.seeds) <= 10_000
    assert 0.0 < found.level < 1.0
    assert found.stop.seconds is None or math.isfinite(found.stop.seconds)


Reader = tuple[Callable[[Path], None], tuple[type[Exception], ...], str]
READERS: Final[dict[str, Reader]] = {
    "workload": (workload, (WorkloadError,), (WORKLOAD_FOLDER / "quickstart.toml").read_text(encoding="utf-8")),
    "machine": (machine, (MachineError,), (MACHINE_FOLDER / "ucmerced-k80.toml").read_text(encoding="utf-8")),
    "policy": (policy, (BadInput,), POLICY),
    "study": (study, (BadInput,), (ROOT / "studies" / "quickstart.toml").read_text(encoding="utf-8")),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readers")


def read(kind: str, content: bytes, folder: Path) -> None:
    """Read a file of this kind: it is taken whole, or refused in one message that names it."""
    reader, refusals, _ = READERS[kind]
    path = folder / f"{kind}.toml"
    path.write_bytes(content)
    message = str(path)
    try:
        reader(path)
    except refusals as error:
        message = str(error)
    assert str(path) in message
    assert len(message) < 20_000


@pytest.mark.parametrize("kind", READERS)
def test_the_files_that_are_mutated_here_are_valid(kind: str, folder: Path) -> None:
    path = folder / f"{kind}.toml"
    path.write_text(READERS[kind][2], encoding="utf-8")
    READERS[kind][0](path)
    path.write_text("\ufeff" + READERS[kind][2], encoding="utf-8")
    READERS[kind][0](path)


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=200))
@example("study", b"[" * 3000)
@example("machine", b"a = " + b"[" * 3000)
@example("workload", b"hidden = " + b"9" * 5000)
@example("policy", b"policy = 0x" + b"f" * 5000)
def test_random_bytes_are_refused(folder: Path, kind: str, content: bytes) -> None:
    read(kind, content, folder)


def values_of(text: str) -> list[tuple[int, int]]:
    """The places of the values: what stands behind the first = of a line."""
    places, start = [], 0
    for line in text.splitlines(keepends=True):
        key, equals, _ = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            places.append((start + len(key) + 1, start + len(line) - 1))
        start += len(line)
    return places


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(READERS)), st.data())
def test_a_value_in_the_place_of_another_is_taken_or_refused(folder: Path, kind: str, data: st.DataObject) -> None:
    text = READERS[kind][2]
    start, end = data.draw(st.sampled_from(values_of(text)))
    text = f"{text[:start]} {data.draw(st.sampled_from(WORDS))}{text[end:]}"
    read(kind, text.encode(), folder)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(READERS)), st.data())
def test_a_figure_in_the_place_of_another_is_taken_or_refused(folder: Path, kind: str, data: st.DataObject) -> None:
    """Deeper than a line: `{ value = 4, source = "..." }` keeps its form and changes its number."""
    text = READERS[kind][2]
    digits = [place for place, sign in enumerate(text) if sign.isdigit()]
    at = data.draw(st.sampled_from(digits))
    number = data.draw(st.one_of(st.integers().map(str), st.floats().map(repr), st.sampled_from(WORDS)))
    read(kind, f"{text[:at]}{number}{text[at + 1 :]}".encode(), folder)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(READERS)), st.data())
def test_bytes_lost_or_put_in_are_taken_or_refused(folder: Path, kind: str, data: st.DataObject) -> None:
    raw = bytearray(READERS[kind][2].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    read(kind, bytes(raw), folder)


KEYS: Final = st.sampled_from(["seed", "epochs", "lookahead", "learning_rate", "target_loss", "order", "nothing"])
ANY: Final = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(max_size=9), st.none(), st.lists(st.integers())
)


@given(st.dictionaries(KEYS, ANY, max_size=3))
def test_any_run_setting_is_taken_within_its_bounds_or_refused(values: dict[str, Any]) -> None:
    message = "--set: "
    try:
        found = run_settings(values, defaults={"seconds": 1})
        assert 0 <= found.seed < 2**63
        assert 0 <= found.lookahead <= 1000
        assert math.isfinite(found.learning_rate)
    except RunError as error:
        message = str(error)
    assert message.startswith("--set: ")
