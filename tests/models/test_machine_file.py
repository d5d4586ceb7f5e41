"""Machines from files and overrides; messages that name file, field, rule and value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hetsgd.models.energy import has_watts
from hetsgd.models.machine_file import MachineError, load_machine
from hetsgd.models.machine_names import MACHINE_FOLDER, describe_machines, machine_names

BUILT_IN = [name for name in machine_names() if name != "local"]

TEXT = """
name = "mine"
[machine]
cpu_lanes = { value = 2, source = "manual" }
message_s = { value = 1e-6, assumed = "a guess" }
decision_s = { value = 1e-6, assumed = "a guess" }
[socket.cpu0]
cores = { value = 4, source = "manual" }
threads_per_core = { value = 1, source = "manual" }
core_flops_float32 = { value = 1e10, source = "manual" }
core_flops_float64 = { value = 5e9, source = "manual" }
half_batch = { value = 8, source = "manual" }
core_bandwidth_bytes_per_s = { value = 1e10, source = "manual" }
dram_bandwidth_bytes_per_s = { value = 2e10, source = "manual" }
dram_bytes = { value = 1_000_000_000, source = "manual" }
l2_bytes = { value = 1_000_000, source = "manual" }
l3_bytes = { value = 8_000_000, source = "manual" }
"""


NOISE = """
[noise]
cpu_sigma = { value = 1e6, source = "x" }
"""


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_machine_loads_and_every_figure_says_where_it_is_from(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert all(source for _, source in machine.sources)
    text = (MACHINE_FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    assert len(machine.sources) == text.count("{ value = ")
    assert set(machine.assumed) < {field for field, _ in machine.sources}


def test_one_accelerator_is_used_unless_more_are_asked_for() -> None:
    assert [card.name for card in load_machine("aws-p3.16xlarge").accelerators] == ["gpu0"]
    eight = load_machine("aws-p3.16xlarge", {"accelerators": "8"})
    assert len(eight.accelerators) == 8
    assert len(eight.links) == 9
    none = load_machine("ucmerced-k80", {"accelerators": 0})
    assert [link.name for link in none.links] == ["qpi"]


def test_overrides_may_be_text_and_reach_every_part() -> None:
    machine = load_machine(
        "aws-p3.16xlarge",
        {"cpu_lanes": "12", "pinned": "true", "cpu_sigma": "0.1", "gpu0.launch_s": "5e-6", "pcie0.latency_s": 0.5},
    )
    assert (machine.cpu_lanes, machine.pinned, machine.noise.cpu_sigma) == (12, True, 0.1)
    assert machine.accelerators[0].launch_s == 5e-6
    assert machine.links[0].latency_s == 0.5


def test_nvlink_joins_accelerators_and_the_host_reaches_them_by_its_own_links() -> None:
    server = load_machine("dgx-h200")
    assert [link.name for link, _ in server.route("gpu0", "gpu1")] == ["nvlink0"]
    # The way through gpu3 would be faster, but a copy is not passed on by another accelerator.
    assert [link.name for link, _ in server.route("cpu0", "gpu4")] == ["upi", "pcie4"]
    with pytest.raises(MachineError, match=r"changes nothing.* no transfer takes this link"):
        load_machine("dgx-h200", {"nvlink0.latency_s": 1e-3})


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_machine_says_what_it_draws(name: str) -> None:
    assert has_watts(load_machine(name))


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT, encoding="utf-8")
    machine = load_machine(path)
    assert (machine.name, machine.cpu_lanes, machine.sockets[0].cores) == ("mine", 2, 4)
    assert machine.assumed == ("machine.message_s", "machine.decision_s")
    assert ("socket.cpu0.cores", "manual") in machine.sources


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cores = { value = 4,", "coers = { value = 4,", r"mine\.toml: socket\.cpu0\.coers: no such key, .* 'cores'"),
        ("value = 4,", 'value = "four",', r"socket\.cpu0\.cores: must be a number, got 'four'; give the number"),
        ("{ value = 8, source = \"manual\" }", "8", r"socket\.cpu0\.half_batch: must be \{ value = .* got 8"),
        ("1e-6, assumed = \"a guess\"", "1e-6, assumed = \"\"", r"machine\.message_s: must name its `source`"),
        ("1e-6, assumed = \"a guess\"", "1e-6, source = \"  \"", r"machine\.message_s: must name its `source`"),
        ("1e-6, assumed = \"a guess\"", "1e300, assumed = \"a guess\"", r"message_s: must be 0 to 10 s"),
        ("1e-6, assumed = \"a guess\"", "10, assumed = 5", r"machine\.message_s: must name its `source`"),
        ("value = 2e10", 'value = "20 GB/s"', r"dram_bandwidth_bytes_per_s: must be a number, got '20 GB/s'.* 900e9"),
        ("value = 2e10", "value = 20", r"dram_bandwidth_bytes_per_s: must be 1000 to .* got 20; 900 GB/s is 900e9"),
        ("value = 2e10", "value = 0.0", r"mine\.toml: socket\.cpu0\.dram_bandwidth_bytes_per_s: must be 1000 to"),
        ("value = 2e10", "value = true", r"dram_bandwidth_bytes_per_s: must be a number, got True"),
        ("value = 1e10", "value = 1e-300", r"core_flops_float32: must be 1e\+06 .*, got 1e-300; 15\.7"),
        ("value = 1_000_000_000", "value = 1", r"dram_bytes: must be 1e\+06 to 1e\+18 bytes, got 1; 16 GB is 16_000"),
        ("value = 4,", f"value = 1{'0' * 400},", r"socket\.cpu0\.cores.*whole number of 1329 bits"),
        ("value = 4,", "value = 100000,", r"cores: must be 1 to 65536 cores, got 100000"),
        ('name = "mine"', 'name = ""', r"mine\.toml: machine: machine names must have 1 to 100"),
        ('name = "mine"', "name = 5", r"mine\.toml: name: must be text, got 5"),
        ("[socket.cpu0]", NOISE + "[socket.cpu0]", r"noise\.cpu_sigma: must be 0 to 3"),
        ("[socket.cpu0]", "[socket.cpu0]\nlike = [1]", r"cpu0\.like: must name an earlier socket \(there: none\)"),
        ("decision_s", 'accelerators = { value = -1, source = "x" }\ndecision_s', "accelerators: must be 0 to 0.* -1"),
        ("cores =", 'idle_watts = { value = 9, source = "x" }\ncores =', "idle_watts: must be given together with"),
        ("value = 2,", "value = 9,", r"mine\.toml: machine mine: cpu_lanes must be in 0\.\.4 .* got 9"),
        ("value = 2e10", "value = -1.0", r"dram_bandwidth_bytes_per_s: must be 1000 to .* got -1\.0"),
        ("[socket.cpu0]", "[sockets.cpu0]", r"mine\.toml: sockets: no such key, did you mean 'socket'"),
        ("l3_bytes =", "# ", r"socket\.cpu0\.l3_bytes: must be given"),
        ("[machine]", "[machine", r"mine\.toml: must be TOML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_of_by_field_rule_and_value(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(MachineError, match=message):
        load_machine(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"cpu_lane": 3}, r"--set: machine\.cpu_lane: no such key, did you mean 'cpu_lanes'"),
        ({"cpu_lanes": "many"}, r"--set: machine\.cpu_lanes: must be a whole number, got 'many'"),
        ({"cpu_lanes": 65}, r"--set: machine\.cpu_lanes: .* 0\.\.64"),
        ({"accelerators": 9}, r"machine\.accelerators: must be 0 to 8, .* got 9"),
        ({"accelerators": "-1"}, r"--set: machine\.accelerators: must be a whole number >= 0, got '-1'"),
        (
            {"message_s": "10 us"},
            r"machine\.message_s: must be a number, got '10 us'; give the number alone, in s",
        ),
        ({"gpu0.memory_bytes": 16}, r"machine\.gpu0\.memory_bytes: must be 1e\+06 to .* 16 GB is 16_000_000_000"),
        ({"gpu0.memory_bandwith_bytes_per_s": 1e9}, r"did you mean 'gpu0\.memory_bandwidth_bytes_per_s'"),
        (
            {"pcie0.pinned_bytes_per_s": 1e9},
            r"changes nothing on machine aws.*: transfers use pageable memory here; set mach",
        ),
        ({"pcie0.pageable_bytes_per_s": 1e9, "pinned": True}, r"set machine\.pinned=false as well"),
        ({"pcie5.latency_s": 0.1}, r"machine\.pcie5\.latency_s: no such key"),
        ({"qpi.pageable_bytes_per_s": 1e9}, "changes nothing.* no transfer takes this link"),
        ({"gpu0.l2_bytes": 1e6}, r"changes nothing.* without l2_bandwidth_bytes_per_s .* give that as well"),
        ({"cpu0.l3_bytes": 1e6}, r"changes nothing.* without core_l3_bandwidth_bytes_per_s the L3 counts as DRAM"),
        ({"gpu0.launch_s": -1.0}, r"--set: machine\.gpu0\.launch_s: must be 0 to 10 s, got -1"),
    ],
)
def test_a_wrong_override_is_told_of_by_key_rule_and_value(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        load_machine("aws-p3.16xlarge", overrides)


def test_an_unknown_machine_names_the_nearest() -> None:
    with pytest.raises(MachineError, match=r"'aws-p3\.16xlarg'.* did you mean 'aws-p3\.16xlarge'"):
        load_machine("aws-p3.16xlarg")
    with pytest.raises(MachineError, match=r"none\.toml: cannot be read"):
        load_machine("none.toml")


def test_an_object_of_a_module_is_a_machine_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_machines.py").write_text(
        "from hetsgd.models.machine_file import load_machine\n"
        "def big():\n    return load_machine('ucmerced-k80', {'accelerators': 2})\n"
        "other = 3\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    machine = load_machine("my_machines:big", {"cpu_lanes": 4, "accelerators": 1})
    assert (machine.cpu_lanes, len(machine.accelerators)) == (4, 1)
    with pytest.raises(MachineError, match="must be a Machine, got int"):
        load_machine("my_machines:other")
    with pytest.raises(MachineError, match="cannot be imported"):
        load_machine("my_machines:nothing")


def test_listing_machines_loads_nothing_heavy() -> None:
    code = (
        "import sys; from hetsgd.models.machine_names import describe_machines; found = describe_machines(); "
        "print(*[name for name, _ in found]); print(*sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    names, modules = child.stdout.splitlines()
    assert names.split() == [
        "aws-p3.16xlarge", "aws-p4d.24xlarge", "dgx-h200", "ucmerced-k80", "workstation-rtx4090", "local",
    ]  # fmt: skip
    assert not {"numpy", "pydantic", "networkx", "psutil"} & set(modules.split())
    described = dict(describe_machines())
    assert all(described.values())
    for words in (
        "2 sockets, each 16 cores with 244 GB at 66 GB/s; 64 lanes",
        "1 accelerator, 15.7/7.8 TFLOP/s",
        "16 GB at 900 GB/s",
        "6.2 GB/s",
    ):
        assert words in described["aws-p3.16xlarge"]


def test_a_name_that_is_no_text_names_the_file_once(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text("name = 5\n[machine]\n" + "".join(
        f'{key} = {{ value = {value}, source = "x" }}\n'
        for key, value in (("cpu_lanes", 1), ("message_s", 1e-6), ("decision_s", 1e-6))
    ))  # fmt: skip
    with pytest.raises(MachineError) as caught:
        load_machine(path)
    assert str(caught.value) == f"{path}: name: must be text, got 5"
