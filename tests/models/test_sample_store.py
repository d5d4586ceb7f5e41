"""Measurements on disk: there at once, resumed for the same machine only, and none lost by a kill."""

from __future__ import annotations

from pathlib import Path

from hetsgd.models.sample_store import SampleStore

HERE = {"host": "a processor", "lanes": [1, 2]}


def test_what_was_measured_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    path = tmp_path / "m.toml.partial"
    with SampleStore(path, HERE) as store:
        store.add("step a", [0.5, 0.0], 1.0)
        store.add("step a", [0.6, 1.0], 2.0)
        store.add("copy b", [3.0], 2.5)
        # As a kill leaves it: nothing is closed, and the last line is half written.
        killed = path.read_text(encoding="utf-8") + '["step a", [0.7'
    path.write_text(killed, encoding="utf-8")
    with SampleStore(path, HERE) as again:
        assert (again.resumed, again.elapsed_s, again.set_aside) == (3, 2.5, False)
        assert again.all("step a") == [[0.5, 0.0], [0.6, 1.0]]
        assert again.measured() == ["step a", "copy b"]
        again.add("step a", [0.8, 0.0], 3.0)
    with SampleStore(path, HERE) as third:
        assert third.count("step a") == 3
        assert third.count("unknown") == 0


def test_measurements_of_another_machine_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "m.toml.partial"
    with SampleStore(path, HERE) as store:
        store.add("step a", [0.5], 1.0)
    with SampleStore(path, {**HERE, "lanes": [1]}) as other:
        assert (other.set_aside, other.resumed, other.elapsed_s) == (True, 0, 0.0)
        assert other.measured() == []
    with SampleStore(path, {**HERE, "lanes": [1]}) as other:
        assert not other.set_aside


def test_a_file_that_is_no_store_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "m.toml.partial"
    path.write_text("[1, 2]\nnonsense\n", encoding="utf-8")
    with SampleStore(path, HERE) as store:
        assert store.set_aside
        store.remove()
    assert not path.exists()
