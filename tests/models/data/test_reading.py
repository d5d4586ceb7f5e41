"""Every format is found by suffix or content, can be forced, and survives damage."""

import bz2
import contextlib
import gzip
import io
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsgd.models.data.catalogue import load
from hetsgd.models.data.dataset import DataError, MissingDataError
from hetsgd.models.data.formats import FORMATS
from hetsgd.models.data.reading import Reading, read_table
from hetsgd.models.data.table import Table, dense

X = [[1.0, 0.5], [0.0, 4.0], [3.0, 0.0]]
Y = [1, 0, 1]


def _npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, x=np.array(X), y=np.array(Y))
    return out.getvalue()


def _parquet() -> bytes:
    out = io.BytesIO()
    columns = {"a": [row[0] for row in X], "b": [row[1] for row in X], "y": Y}
    pyarrow.parquet.write_table(pyarrow.table(columns), out, write_page_checksum=True)
    return out.getvalue()


FILES: dict[str, bytes] = {
    "svm": b"1 1:1 2:0.5\n0 2:4\n1 1:3\n",
    "csv": b"1,0.5,1\n0,4,0\n3,0,1\n",
    "arff": b"@relation x\n@attribute a real\n@attribute b real\n@attribute y {0,1}\n@data\n1,0.5,1\n0,4,0\n3,0,1\n",
    "npz": _npz(),
    "parquet": _parquet(),
}
NAMES = {"svm": "libsvm"}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def features_of(table: Table) -> Any:
    return dense(table.x, np.arange(table.rows), np.dtype(np.float64)).tolist()


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("called", ["by suffix", "by content", "by option"])
def test_each_format_is_read_plain_and_compressed(
    tmp_path: Path, no_sets: Path, suffix: str, compression: str, called: str
) -> None:
    ending = {"by suffix": f".{suffix}", "by content": ".data", "by option": ".arff" if suffix != "arff" else ".csv"}
    path = tmp_path / f"file{ending[called]}{compression}"
    path.write_bytes(COMPRESS[compression](FILES[suffix]))
    forced: Any = NAMES.get(suffix, suffix) if called == "by option" else None
    table = read_table(path, Reading(format=forced))
    assert features_of(table) == X
    assert table.y.tolist() == Y


def test_a_table_called_svm_is_still_read_as_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_bytes(FILES["csv"])
    assert features_of(read_table(tmp_path / "a.svm", Reading())) == X


@pytest.mark.parametrize(
    ("suffix", "options", "message"),
    [
        ("csv", {"format": "excel"}, "format must be one of libsvm, csv, arff, npz, parquet, got 'excel'"),
        ("csv", {"features": 3}, r"a\.csv: must have the declared 3 features, got 2"),
        ("npz", {"features": 1}, r"a\.npz: must have the declared 1 features, got 2"),
        ("svm", {"features": 1}, r"a\.svm, line 1: an index must be <= 1 \(1 features are declared"),
        ("csv", {"classes": ("0", "2")}, r"a\.csv, line 1: a label must be one of 0, 2, got 1"),
        ("arff", {"classes": ("0", "2")}, r"a\.arff, line 6: a label must be one of 0, 2, got 1"),
        ("csv", {"first_index": 0}, r"a\.csv: first_index must be left out, only LIBSVM text counts indices"),
        ("csv", {"first_index": 2}, "first_index must be 0 or 1, got 2"),
        ("csv", {"features": 0}, r"features must lie in 1\.\.2147483647, got 0"),
        ("svm", {"label": "last 1"}, r"a\.svm: label must be left out for LIBSVM text.*got 'last 1'"),
        ("npz", {"label": ["x", "y"], "multilabel": True}, r"a\.npz: label must name one array of the archive"),
        ("npz", {"multilabel": True}, r"a\.npz: multilabel must be left out or False, the file has one class a row"),
        ("csv", {"label": "none.xml"}, r"none\.xml: no such file"),
    ],
)
def test_what_a_file_does_not_hold_is_refused(
    tmp_path: Path, suffix: str, options: dict[str, Any], message: str
) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(FILES[suffix])
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / f"a.{suffix}", Reading(**options))


def test_an_xml_file_beside_the_data_chooses_the_labels_of_any_table(tmp_path: Path) -> None:
    (tmp_path / "set.xml").write_text('<labels><label name="b"/></labels>', encoding="utf-8")
    (tmp_path / "set.csv").write_text("a,b,c\n1,0,5\n2,1,6\n", encoding="utf-8")
    table = read_table(tmp_path / "set.csv", Reading(label="set.xml"))
    assert (table.multilabel, table.label_names, features_of(table)) == (True, ("b",), [[1, 5], [2, 6]])


def test_labels_are_counted_from_either_end_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("1,0,5.5\n0,1,6\n", encoding="utf-8")
    table = read_table(tmp_path / "set.csv", Reading(label="first 2"))
    assert (table.y.tolist(), table.label_names, features_of(table)) == ([[1, 0], [0, 1]], ("1", "2"), [[5.5], [6]])


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"nothing\.svm: no such file"):
        read_table(tmp_path / "nothing.svm", Reading())
    with pytest.raises(DataError, match="must be a file, and is a folder"):
        read_table(tmp_path, Reading())


@given(
    st.sampled_from(sorted(FILES)),
    st.sampled_from(sorted(COMPRESS)),
    st.sampled_from([None, *FORMATS]),
    st.booleans(),
    st.data(),
)
def test_damaged_files_under_any_reader_make_a_finite_table_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    compression: str,
    forced: Any,
    multilabel: bool,
    data: st.DataObject,
) -> None:
    raw = bytearray(FILES[suffix])
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    content = COMPRESS[compression](bytes(raw))
    content = content[: data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))]
    path = tmp_path_factory.getbasetemp() / f"damaged.{suffix}{compression}"
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        table = read_table(path, Reading(format=forced, multilabel=multilabel or None))
        assert table.rows == len(table.y) > 0
        values = table.x if isinstance(table.x, np.ndarray) else table.x.values
        assert np.isfinite(values).all()


def test_reading_text_loads_neither_pyarrow_nor_scipy_nor_torch(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_bytes(FILES["svm"])
    code = (
        "import sys; from hetsgd.models.data.catalogue import load; load(sys.argv[1], test_fraction=0); "
        "print([name for name in ('pyarrow', 'scipy', 'torch', 'pandas', 'sklearn') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.svm")], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("suffix", ["svm", "csv", "arff"])
def test_text_may_begin_with_a_byte_order_mark(tmp_path: Path, suffix: str) -> None:
    for name in (f"a.{suffix}", "a.txt"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + FILES[suffix])
        table = read_table(tmp_path / name, Reading())
        assert features_of(table) == X
        assert table.y.tolist() == Y


@pytest.mark.parametrize("suffix", ["svm", "csv", "arff"])
@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_lines_of_other_systems_are_lines(tmp_path: Path, suffix: str, end: bytes) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(FILES[suffix].replace(b"\n", end))
    assert features_of(read_table(tmp_path / f"a.{suffix}", Reading())) == X


def test_rows_without_labels_are_not_run_together(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_bytes(b"0,1 1:1\r 2:5\r1 1:2\r")
    table = read_table(tmp_path / "a.svm", Reading(multilabel=True))
    assert features_of(table) == [[1, 0], [0, 5], [2, 0]]
    assert table.y.tolist() == [[1, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (KeyError("depth"), r"a\.csv: cannot be read as csv, it is damaged or of another format \(KeyError: 'depth'\)"),
        (MemoryError(), r"a\.csv: does not fit the memory of this machine"),
    ],
)
def test_whatever_a_parser_raises_is_told_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, says: str
) -> None:
    def fail(*args: object, **options: object) -> Table:
        raise raised

    monkeypatch.setattr("hetsgd.models.data.delimited.parse_delimited", fail)
    (tmp_path / "a.csv").write_bytes(FILES["csv"])
    with pytest.raises(DataError, match=says):
        load(tmp_path / "a.csv")
