"""Workloads from built-in files, files of one's own and modules: what they resolve to, and what a bad one is told."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.workload import Workload
from hetsgd.models.workload_file import LoadedWorkload, WorkloadError, load_workload
from hetsgd.models.workload_names import describe_workloads, workload_names

OWN = """
description = "two features, two classes"
dataset = "points.csv"
hidden = [8, 4]
activation = "relu"
test_fraction = 0.25

[run]
learning_rate = 0.5
"""
POINTS = "x,y,class\n" + "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(40))
TAGS = "x,y,a,b,c\n" + "".join(f"{i},{i % 3},{i % 2},1,{i % 4 == 0:d}\n" for i in range(20))


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No full data sets and an empty cache, whatever this machine has."""
    monkeypatch.setenv("HETSGD_DATA", str(tmp_path / "no data"))
    monkeypatch.setenv("HETSGD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "points.csv").write_text(POINTS)
    (tmp_path / "tags.csv").write_text(TAGS)
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


def put(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# -- built-in workloads ------------------------------------------------------------------------------------------


def test_the_built_in_workloads_are_listed_with_a_description() -> None:
    assert workload_names() == (
        "a9a", "covtype", "delicious", "letter", "mnist10k", "quickstart", "real-sim", "tmc2007_500", "w8a",
    )  # fmt: skip
    for name, description in describe_workloads():
        assert description == load_workload(name, data=False).workload.description
        assert len(description) > 20


def test_listing_loads_nothing_heavy() -> None:
    code = (
        "import sys; from hetsgd.models.workload_names import describe_workloads; describe_workloads();"
        "print(*{'numpy', 'pydantic', 'pandas', 'networkx', 'simpy', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_covtype_without_its_data_has_the_shape_of_the_full_set() -> None:
    net = load_workload("covtype", data=False).workload
    assert (net.rows, net.test_rows, net.features, net.outputs) == (581_012, 0, 54, 2)
    assert (net.hidden, net.activation, net.bias, net.precision) == ((512,) * 6, "sigmoid", False, "float64")
    assert net.parameters == 54 * 512 + 5 * 512 * 512 + 512 * 2
    assert "the shape is given" in net.source


@pytest.mark.parametrize(
    ("name", "depth", "loss", "layers"),
    [("covtype", 6, "softmax", (54, 2)), ("w8a", 8, "softmax", (300, 2)), ("delicious", 8, "sigmoid", (500, 983)),
     ("real-sim", 4, "softmax", (20_958, 2))],
)  # fmt: skip
def test_the_nets_of_the_paper(name: str, depth: int, loss: str, layers: tuple[int, int]) -> None:
    net = load_workload(name, data=False).workload
    assert (net.hidden, net.activation, net.bias, net.precision) == ((512,) * depth, "sigmoid", False, "float64")
    assert (net.loss, net.features, net.outputs) == (loss, *layers)
    assert "assumed: depth" in net.source
    assert net.multiplies_sparse == net.sparse == (name == "real-sim")


def test_sparse_keeps_the_features_as_they_come(own: Path) -> None:
    loaded = load_workload(own, {"sparse": "true"})
    assert (loaded.workload.sparse, loaded.data().sparse) == (True, True)
    assert not load_workload(own).workload.sparse
    with pytest.raises(WorkloadError, match="scaling 'standard' of a sparse set shifts every zero"):
        load_workload(own, {"sparse": "true", "scaling": "standard"})


def test_covtype_on_the_sample_says_so() -> None:
    loaded = load_workload("covtype")
    assert loaded.workload.rows == loaded.data().rows == 58_101
    assert "the full set is not at hand" in loaded.workload.source
    assert "embedded 10 % sample" in loaded.workload.source
    assert loaded.data().train_x.dtype == "float64"


def test_quickstart_has_the_shape_that_its_file_gives() -> None:
    given, found = load_workload("quickstart", data=False), load_workload("quickstart")
    for field in ("rows", "test_rows", "features", "outputs", "loss", "hidden", "precision"):
        assert getattr(given.workload, field) == getattr(found.workload, field), field
    assert found.workload.density == pytest.approx(given.workload.density, abs=0.05)
    assert found.run == {"learning_rate": 0.02}
    assert found.data() is found.data()


def test_timing_only_needs_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> Dataset:
        raise AssertionError("the data were loaded")

    monkeypatch.setattr("hetsgd.models.data.catalogue.load", refuse)
    for name in workload_names():
        load_workload(name, {"hidden": "64"}, data=False)


# -- overrides ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "widths"),
    [("512x6", (512,) * 6), ("512,256", (512, 256)), ("64", (64,)), (" 8x2 , 4 ", (8, 8, 4)), ("none", ()),
     ([3, 2], (3, 2)), (7, (7,)), ("8X2", (8, 8))],
)  # fmt: skip
def test_widths_can_be_written_in_several_ways(text: Any, widths: tuple[int, ...]) -> None:
    assert load_workload("quickstart", {"hidden": text}, data=False).workload.hidden == widths


def test_every_override_changes_the_workload() -> None:
    values = {
        "activation": "relu", "precision": "float64", "bias": "false", "initial": "normal", "initial_scale": "0.5",
        "rows": "1000", "test_rows": "10", "features": "20", "outputs": "5", "density": "0.5", "name": "mine",
        "description": "changed", "source": "me", "sparse": "true",
    }  # fmt: skip
    net = load_workload("quickstart", values, data=False).workload
    assert (net.activation, net.precision, net.bias, net.initial) == ("relu", "float64", False, "normal")
    assert (net.rows, net.test_rows, net.features, net.outputs, net.density) == (1000, 10, 20, 5, 0.5)
    assert net.sparse
    assert (net.name, net.description, net.initial_scale) == ("mine", "changed", 0.5)
    assert net.source.startswith("me; ")


def test_overrides_of_the_data_are_followed_even_where_no_data_are_needed() -> None:
    net = load_workload("quickstart", {"test_fraction": "0.5", "dataset": "covtype-sample"}, data=False).workload
    assert (net.rows, net.test_rows) == (29_050, 29_051)
    scaled = load_workload("quickstart", {"scaling": "unit", "split_seed": "3"})
    assert scaled.data().train_x.min() == 0.0
    assert "seed 3" in scaled.workload.source


# -- files of one's own ------------------------------------------------------------------------------------------


def test_a_file_of_ones_own_with_its_data_beside_it(own: Path) -> None:
    for data in (True, False):  # without a shape in the file the data are loaded for it
        loaded = load_workload(own, data=data)
        net = loaded.workload
        assert (net.name, net.rows, net.test_rows, net.features, net.outputs) == ("own", 30, 10, 2, 2)
        assert (net.hidden, net.loss, net.precision) == ((8, 4), "softmax", "float32")
        assert loaded.run == {"learning_rate": 0.5}
    assert load_workload(str(own)).data().test_rows == 10


def test_several_labels_a_row_make_the_loss(own: Path) -> None:
    net = load_workload(own, {"dataset": str(own.parent / "tags.csv"), "label": "a,b,c", "multilabel": "true"}).workload
    assert (net.loss, net.features, net.outputs) == ("sigmoid", 2, 3)


def test_a_shape_alone_is_a_workload_for_timing(tmp_path: Path) -> None:
    text = "hidden = '4x2'\nrows = 100\nfeatures = 300\noutputs = 3\nloss = 'sigmoid'\n"
    path = put(tmp_path / "shape.toml", text)
    net = load_workload(path, data=False).workload
    assert (net.dataset, net.rows, net.test_rows, net.loss, net.density) == ("none", 100, 0, "sigmoid", 1.0)
    with pytest.raises(WorkloadError, match=re.escape(f"{path}: dataset: must be given for a run that needs data")):
        load_workload(path)
    loaded = load_workload(path, data=False)
    with pytest.raises(WorkloadError, match="dataset: must be given"):
        loaded.data()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden = [", "must be TOML"),
        ("dataset = 'points.csv'", "hidden: must be given"),
        ("hidden = [8, 0]", "hidden: must be >= 1, got [8, 0]"),
        ("hidden = '8y2'", "hidden: must be widths such as 512x6 or 512,256, got '8y2'"),
        ("hidden = '8x0'", "hidden: must be 1 to 1000 layers of a width, got '8x0'"),
        ("hidden = '8x'", "hidden: must be widths such as 512x6 or 512,256, got '8x'"),
        ("hidden = [8]\nhiden = [8]", "hiden: no such key, did you mean 'hidden'?"),
        ("hidden = [8]\nactivation = 'gelu'", "activation: must be 'sigmoid', 'relu' or 'tanh', got 'gelu'"),
        ("hidden = [8]\nprecision = 'float16'", "precision: must be 'float32' or 'float64', got 'float16'"),
        ("hidden = [8]\ntest_fraction = 1.0", "test_fraction: must be < 1, got 1.0"),
        ("hidden = [8]\ninitial_scale = 0", "initial_scale: must be > 0, got 0"),
        ("hidden = [8]\nbias = 'perhaps'", "bias: must be true or false, got 'perhaps'"),
        ("hidden = [8]\nscaling = 'log'", "scaling: must be 'none', 'unit' or 'standard', got 'log'"),
        ("hidden = [8]\nrun = 3", "run: must be a table, got 3"),
        ("hidden = [8]\n[run]\nlearning_rat = 1", "run.learning_rat: no such key, did you mean 'learning_rate'?"),
        ("hidden = [8]\ndataset = 'gone.csv'", "gone.csv"),
        ("hidden = [8]\ndataset = 'points.csv'\nlabel = 'z'", "dataset: "),
        ("hidden = [8]\ndataset = 'points.csv'\nloss = 'sigmoid'",
         "loss: must be softmax for data with one class a row, got 'sigmoid'"),
        ("hidden = [8]\ndataset = 'tags.csv'\nlabel = ['a', 'b', 'c']\nmultilabel = true\nloss = 'softmax'",
         "loss: must be sigmoid for data with several labels a row, got 'softmax'"),
    ],
)  # fmt: skip
def test_a_bad_file_is_told_its_field_rule_and_value(own: Path, text: str, message: str) -> None:
    path = put(own.parent / "bad.toml", text)
    with pytest.raises(WorkloadError) as caught:
        load_workload(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_bad_shape_is_told_too(tmp_path: Path) -> None:
    path = put(tmp_path / "bad.toml", "hidden = [8]\nrows = 10\nfeatures = 3\noutputs = 1\n")
    with pytest.raises(WorkloadError, match=re.escape("workload.outputs must be >= 2 for a softmax loss, got 1")):
        load_workload(path, data=False)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"hiden": "8"}, "--set: workload.hiden: no such key, did you mean 'hidden'?"),
        ({"hidden": "8xx2"}, "--set: workload.hidden: must be widths such as 512x6 or 512,256, got '8xx2'"),
        ({"precision": "half"}, "--set: workload.precision: must be 'float32' or 'float64', got 'half'"),
        ({"rows": "10"}, "--set: workload.rows: comes from the data in this run, got '10'"),
    ],
)
def test_a_bad_override_is_told_its_field_rule_and_value(own: Path, overrides: dict[str, str], message: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(message)):
        load_workload(own, overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"dataset": "covtipe"}, "--set: workload.dataset: "),
        ({"label": "z"}, "--set: workload.label: "),
        ({"initial_scale": "1e9"}, "--set: workload.initial_scale: must be <= 1e+06, got '1e9'"),
        ({"loss": "sigmoid"}, "--set: workload.loss: must be softmax for data with one class a row, got 'sigmoid'"),
        ({"split_seed": 2**70}, "--set: workload.split_seed: must be <= 9.22337e+18, got a whole number of 71 bits"),
        ({"hidden": "9" * 400}, "--set: workload.hidden: must be widths such as 512x6 or 512,256, got '999"),
        ({"label": 3}, "--set: workload.label: must be a text or a list, got 3"),
        (
            {"classes": "a,b"},
            "--set: workload.classes: {folder}/points.csv, line 2: a label must be one of a, b, got 0",
        ),
        ({"dataset": "~nobody at all/x.csv"}, "neither a file nor a known data set"),
        ({"dataset": "a\0b"}, "neither a file nor a known data set"),
        ({"dataset": "/"}, "--set: workload.dataset: /: must be a file, and is a folder, pipe or device"),
    ],
)
def test_an_override_is_blamed_where_it_is_given(own: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        load_workload(own, overrides)
    text = str(caught.value)
    assert message.format(folder=own.parent) in text
    assert "PosixPath" not in text
    assert str(own) not in text


@pytest.mark.parametrize(("key", "found"), [("rows", 30), ("test_rows", 10), ("features", 2), ("outputs", 2)])
def test_a_written_shape_must_be_that_of_the_data(own: Path, key: str, found: int) -> None:
    text = OWN.replace("[run]", f"{key} = {found}\n[run]")
    assert load_workload(put(own, text)).workload.rows == 30
    text = OWN.replace("[run]", f"{key} = {found + 1}\n[run]")
    says = (
        "must have the declared 3 features, got 2" if key == "features" else f"must be that of the data, {found}, got"
    )
    with pytest.raises(WorkloadError, match=re.escape(f"{own}: ") + f".*{says}"):
        load_workload(put(own, text))
    # Other rows make the written shape void.
    assert load_workload(put(own, text), {"test_fraction": 0}).workload.rows == 40


def test_a_bad_default_of_a_file_is_blamed_on_the_file(own: Path) -> None:
    for line, says in (("seed = -1", "run.seed must be in 0.."), ("epochs = 0", "run.epochs must be >= 1, got 0"),
                       ("lookahead = 100000", "run.lookahead must be in 0..1000, got 100000")):  # fmt: skip
        with pytest.raises(WorkloadError, match=re.escape(f"{own}: {says}")):
            load_workload(put(own, f"{OWN}{line}\n"))


def test_a_file_may_begin_with_a_byte_order_mark(own: Path) -> None:
    own.write_bytes(b"\xef\xbb\xbf" + OWN.encode())
    assert load_workload(own).workload.hidden == (8, 4)


def test_the_record_of_covtype_says_which_data_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learning, timing = load_workload("covtype"), load_workload("covtype", data=False)
    assert (learning.workload.name, learning.workload.dataset) == ("covtype", "covtype-sample")
    assert (timing.workload.name, timing.workload.dataset, timing.notice) == ("covtype", "covtype", "")
    for part in (
        "the full covtype is not at hand",
        "58,101 rows",
        "covtype-sample",
        "workload.download=true",
        "https://",
    ):
        assert part in learning.notice
    folder = tmp_path / "no data" / "covtype"
    folder.mkdir(parents=True)
    rows = "".join(f"{','.join(str(row % (column + 2)) for column in range(54))},{row % 7 + 1}\n" for row in range(70))
    (folder / "covtype.csv").write_text(rows)
    full = load_workload("covtype", {"test_fraction": 0})
    assert (full.workload.dataset, full.notice, full.workload.rows) == ("covtype", "", 70)


def test_an_unknown_name_and_a_missing_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"workload 'quikstart': .* did you mean 'quickstart'\? known: a9a"):
        load_workload("quikstart")
    with pytest.raises(WorkloadError, match=r"gone\.toml: cannot be read: No such file"):
        load_workload(tmp_path / "gone.toml")
    with pytest.raises(WorkloadError, match="must be a regular file"):
        load_workload(put_folder(tmp_path / "folder.toml"))


def put_folder(path: Path) -> Path:
    path.mkdir()
    return path


# -- objects of modules ------------------------------------------------------------------------------------------

MODULE = """
import numpy as np

from hetsgd.models.data.dataset import Dataset
from hetsgd.models.workload import Workload
from hetsgd.models.workload_file import LoadedWorkload

NET = Workload(name="own", dataset="none", rows=10, test_rows=0, features=3, outputs=2, hidden=(4,))
NUMBER = 3


def points(features):
    x, y = np.zeros((10, features), np.float32), np.arange(10) % 2
    none = {"test_x": x[:0], "test_y": y[:0]}
    return Dataset(name="p", train_x=x, train_y=y, **none, classes=2, multilabel=False, source="here")


def with_rate():
    return LoadedWorkload(workload=NET, data=lambda: points(3), run={"learning_rate": 0.1})


def wrong_shape():
    return LoadedWorkload(workload=NET, data=lambda: points(4))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_nets.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_nets"


def test_an_object_of_a_module_is_taken_as_it_is(module: str) -> None:
    loaded = load_workload(f"{module}:NET", data=False)
    assert isinstance(loaded.workload, Workload)
    assert loaded.workload.name == "own"
    with pytest.raises(WorkloadError, match="has no data; make it a LoadedWorkload"):
        loaded.data()
    with pytest.raises(WorkloadError, match="has no data; make it a LoadedWorkload"):
        load_workload(f"{module}:NET")  # a run that needs data is told before it starts
    made = load_workload(f"{module}:with_rate")
    assert isinstance(made, LoadedWorkload)
    assert made.run == {"learning_rate": 0.1}


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("own_nets:NUMBER", {}, "workload 'own_nets:NUMBER': must be a Workload or LoadedWorkload, got int"),
        ("own_nets:GONE", {}, "workload 'own_nets:GONE': cannot be imported"),
        ("own_nets:wrong_shape", {}, "workload 'own_nets:wrong_shape': features: must be that of its data, 4, got 3"),
        ("no_such_module:NET", {}, "cannot be imported: No module named 'no_such_module'"),
        ("own_nets:NET", {"hidden": "8"}, "--set: workload.hidden: a workload object is taken as it is"),
    ],
)
def test_a_bad_object_is_told(module: str, name: str, overrides: dict[str, str], message: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(message)):
        load_workload(name, overrides)
