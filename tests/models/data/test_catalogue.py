"""Names and files load as data sets; known sets have their published counts."""

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.models.data import catalogue
from hetsgd.models.data.catalogue import load
from hetsgd.models.data.dataset import DataError, MissingDataError
from hetsgd.models.data.names import DESCRIPTIONS


def test_the_embedded_sample_loads_anywhere(no_sets: Path) -> None:
    data = load("covtype-sample")
    assert (data.rows, data.test_rows, data.features, data.classes) == (46_481, 11_620, 54, 2)
    assert data.class_balance[1] == pytest.approx(283_301 / 581_012, abs=1e-4)
    assert data.train_x.dtype == np.float32
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)
    assert data.source.startswith("the embedded 10 % sample of covtype, stratified, class 2 against the rest")
    assert not no_sets.exists()


def test_covtype_falls_back_to_the_sample_and_says_so(no_sets: Path) -> None:
    data = load("covtype")
    assert data.name == "covtype-sample"
    assert data.rows == 46_481
    assert (
        'the full set is not at hand (load("covtype", download=True) or workload.download=true fetches it)'
        in data.source
    )
    assert "embedded 10 % sample" in data.source
    assert str(no_sets) not in data.source
    assert "/" not in data.source


def test_a_set_in_the_cache_folder_is_found(no_sets: Path) -> None:
    folder = no_sets / "data" / "covtype"
    folder.mkdir(parents=True)
    rows = [",".join(["1"] * 53 + [str(row), str(1 + row % 7)]) for row in range(70)]
    (folder / "covtype.data").write_text("\n".join(rows), encoding="utf-8")
    data = load("covtype", test_fraction=0)
    assert data.rows == 70
    assert data.class_balance == (60 / 70, 10 / 70)
    assert data.source.startswith("covtype.data, class 2 against the rest")


def test_a_wrong_file_under_a_known_name_is_refused(no_sets: Path) -> None:
    folder = no_sets / "data" / "covtype"
    folder.mkdir(parents=True)
    (folder / "covtype.csv").write_text("1,2,1\n3,4,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="must have the declared 54 features, got 2"):
        load("covtype")


@pytest.mark.parametrize("name", sorted(set(DESCRIPTIONS) - {"covtype", "covtype-sample"}))
def test_an_absent_set_says_where_to_put_it(name: str, no_sets: Path) -> None:
    with pytest.raises(MissingDataError, match=f"data set {name} is not on this machine: put .* into .*{name}"):
        load(name)


def test_a_set_with_a_public_address_says_how_to_fetch_it(no_sets: Path) -> None:
    folder = no_sets / "data" / "real-sim"
    with pytest.raises(
        MissingDataError, match=r"workload\.download=true .* fetches https://.*real-sim.* \(sha256 not known\) into"
    ):
        load("real-sim")
    assert not folder.exists()


def test_what_is_neither_name_nor_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"neither a file nor a known data set, known: covtype-sample, covtype"):
        load(tmp_path / "nothing.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "Cover_Type"}, "label must be left out for the known data set covtype-sample"),
        ({"multilabel": True}, "multilabel must be left out or False"),
        ({"dtype": "float16"}, "dtype must be float32 or float64, got 'float16'"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"test_fraction": 1.0}, "test_fraction must lie in"),
        ({"scaling": "log"}, "scaling must be one of"),
    ],
)
def test_options_that_cannot_hold_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load("covtype-sample", **options)


def test_files_load_by_their_content(tmp_path: Path) -> None:
    svm, table = tmp_path / "toy.txt", tmp_path / "toy.csv"
    svm.write_text("-1 1:4\n+1 2:2\n" * 10, encoding="utf-8")
    table.write_text("kind,a,b\n" + "no,4,0\nyes,0,2\n" * 10, encoding="utf-8")
    first = load(svm, scaling="none", dtype="float64")
    second = load(str(table), label="kind", scaling="none", dtype="float64")
    assert (first.rows, first.test_rows) == (16, 4)
    assert first.train_x.dtype == np.float64
    for field in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
    with pytest.raises(DataError, match="label must be left out for LIBSVM text"):
        load(svm, label="kind")


def test_the_seed_and_nothing_else_decides_the_split(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    path.write_text("\n".join(f"{row},{row % 2}" for row in range(50)), encoding="utf-8")
    one, same, other = (load(path, seed=seed, scaling="none").test_x.tolist() for seed in (0, 0, 1))
    assert one == same != other


def test_values_beyond_float32_ask_for_float64(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("1e300,0\n2e300,1\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"row \d+, feature \d+ \(from 0\): values must fit float32, .*; load as float64"
    ):
        load(path, scaling="none")
    assert load(path, dtype="float64", test_fraction=0).train_x.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    ("name", "rows", "features", "nonzeros", "counts"),
    [
        ("w8a", 49_749, 300, 579_586, [48_270, 1_479]),
        ("letter", 20_000, 16, 311_613, None),
        ("mnist10k", 10_000, 784, 1_502_215, [1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978]),
    ],
)
def test_known_sets_have_their_published_counts(
    full_sets: Path, name: str, rows: int, features: int, nonzeros: int, counts: list[int] | None
) -> None:
    data = load(name, test_fraction=0, scaling="none")
    assert (data.rows, data.test_rows, data.features) == (rows, 0, features)
    assert np.count_nonzero(data.train_x) == nonzeros
    found = np.bincount(data.train_y).tolist()
    if counts is None:
        assert len(found) == 26
        assert (min(found), max(found)) == (734, 813)
    else:
        assert found == counts


def test_a9a_keeps_its_published_parts(full_sets: Path) -> None:
    data = load("a9a", scaling="none")
    assert (data.train_x.shape, data.test_x.shape) == ((32_561, 123), (16_281, 123))
    assert [np.count_nonzero(x) for x in (data.train_x, data.test_x)] == [451_592, 225_731]
    assert np.bincount(data.train_y).tolist() == [24_720, 7_841]
    assert np.bincount(data.test_y).tolist() == [12_435, 3_846]
    assert "a9a.bz2 and a9a.t.bz2" in data.source
    assert "the published parts" in data.source
    split = load("a9a", test_fraction=0.25)
    assert split.rows + split.test_rows == 48_842
    assert split.test_rows == 12_211


def test_tmc2007_has_its_labels(full_sets: Path) -> None:
    data = load("tmc2007_500", test_fraction=0)
    assert (data.rows, data.features, data.outputs, data.multilabel) == (28_596, 500, 22, True)
    assert np.count_nonzero(data.train_x) == 639_548
    assert data.train_y.sum() == 63_472
    assert len(np.unique(data.train_y, axis=0)) == 1_172


def test_the_full_covtype_loads_with_its_counts_and_faster_the_second_time(full_sets: Path) -> None:
    first = load("covtype", test_fraction=0)
    assert (first.rows, first.features, first.classes) == (581_012, 54, 2)
    assert np.bincount(first.train_y).tolist() == [297_711, 283_301]
    assert np.count_nonzero(first.train_x) == 6_940_438
    assert first.source.startswith("covtype.csv.xz, class 2 against the rest: 581,012 rows x 54 features")
    start = time.perf_counter()
    second = load("covtype", test_fraction=0, scaling="none")
    assert time.perf_counter() - start < 3.0  # 0.3 s on a quiet machine; parsing takes about 4 s
    assert np.count_nonzero(second.train_x) == 6_901_775
    np.testing.assert_array_equal(first.train_y, second.train_y)
    assert (first.train_x == 1).any(axis=0).all()


@given(
    st.binary(max_size=300),
    st.sampled_from(["csv", "svm", "txt", "csv.gz", "svm.xz", "bz2", "arff", "npz", "parquet"]),
    st.booleans(),
)
def test_garbage_is_refused_as_bad_data_whatever_the_file_is_called(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, suffix: str, multilabel: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / f"garbage.{suffix}"
    path.write_bytes(raw)
    with contextlib.suppress(DataError):  # bytes that happen to be data must make a checked data set
        assert load(path, multilabel=multilabel).rows > 0


def test_covtype_of_libsvm_knows_its_class_2_by_its_rows(no_sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = no_sets / "data" / "covtype"
    folder.mkdir(parents=True)
    (folder / "covtype.libsvm.binary.scale").write_text("1 54:1\n2 1:1\n2 2:1\n" * 5, encoding="utf-8")
    with pytest.raises(DataError, match="the two classes of covtype must have 283,301 and 297,711 rows"):
        load("covtype")
    monkeypatch.setattr(catalogue, "COVTYPE_LIBSVM_COUNTS", (5, 10))
    data = load("covtype", test_fraction=0)
    assert (data.label_names, data.train_y[:3].tolist()) == (("rest", "2"), [1, 0, 0])
    assert data.source.startswith("covtype.libsvm.binary.scale, class 2 against the rest: 15 rows x 54 features")


def test_delicious_reads_its_two_published_parts(no_sets: Path) -> None:
    folder = no_sets / "data" / "delicious"
    folder.mkdir(parents=True)
    header = "@relation delicious\n" + "".join(f"@attribute word{number} {{0,1}}\n" for number in range(500))
    header += "".join(f"@attribute TAG_m\\'{number} {{0,1}}\n" for number in range(983)) + "@data\n"
    (folder / "delicious-train.arff").write_text(header + "{0 1,500 1,1482 1}\n{499 1}\n", encoding="utf-8")
    (folder / "delicious-test.arff").write_text(header + "{7 1,501 1}\n", encoding="utf-8")
    data = load("delicious")
    assert (data.rows, data.test_rows, data.features, data.outputs) == (2, 1, 500, 983)
    assert np.flatnonzero(data.train_y[0]).tolist() == [0, 982]
    assert "the published parts" in data.source
    assert data.label_names[1] == "TAG_m\\'1"


def test_real_sim_declares_its_width_and_classes(no_sets: Path) -> None:
    folder = no_sets / "data" / "real-sim"
    folder.mkdir(parents=True)
    path = folder / "real-sim"
    path.write_text("-1 20958:1\n+1 1:0.5\n", encoding="utf-8")
    assert load("real-sim", test_fraction=0).features == 20_958
    path.write_text("-1 20959:1\n+1 1:0.5\n", encoding="utf-8")
    with pytest.raises(DataError, match="real-sim, line 1: an index must be <= 20958"):
        load("real-sim")
    path.write_text("-1 20958:1\n+1 1:0.5\n3 1:1\n", encoding="utf-8")
    with pytest.raises(DataError, match="real-sim, line 3: a label must be one of -1, 1, got 3"):
        load("real-sim")
