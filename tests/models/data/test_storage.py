"""Files are read whole or refused, and a parsed file is kept."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsgd.models.data.dataset import DataError, MissingDataError
from hetsgd.models.data.folders import data_folders
from hetsgd.models.data.libsvm import parse_libsvm
from hetsgd.models.data.source_file import bare_suffix, read_bytes
from hetsgd.models.data.storage import cached_table
from hetsgd.models.data.table import SparseRows, Table

TEXT = b"0 1:1\n1 2:2\n"


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)],
)
def test_each_compression_is_read(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"data.svm{suffix}"
    path.write_bytes(compress(TEXT))
    assert read_bytes(path) == TEXT
    assert bare_suffix(path) == ".svm"


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".xz"])
@pytest.mark.parametrize("damage", ["garbage", "cut"])
def test_a_damaged_archive_is_refused(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"data{suffix}"
    compress: dict[str, Callable[[bytes], bytes]] = {
        ".bz2": bz2.compress,
        ".gz": gzip.compress,
        ".xz": lzma.compress,
    }
    whole = compress[suffix](TEXT * 100)
    path.write_bytes(b"no archive at all" if damage == "garbage" else whole[:-9])
    with pytest.raises(DataError, match=f"must be a whole {suffix} file"):
        read_bytes(path)


def test_missing_empty_and_unreadable_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no such file"):
        read_bytes(tmp_path / "absent")
    (tmp_path / "empty.gz").write_bytes(b"")
    with pytest.raises(DataError, match="the file is empty"):
        read_bytes(tmp_path / "empty.gz")
    with pytest.raises(DataError, match="must be a file, and is a folder"):
        read_bytes(tmp_path)


class Parser:
    """Parses a file and counts how often it was asked to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls = 0

    def __call__(self) -> Table:
        self.calls += 1
        return parse_libsvm(self.path.read_bytes(), origin=str(self.path))


@pytest.fixture
def parser(no_sets: Path, tmp_path: Path) -> Parser:
    path = tmp_path / "big.svm"
    path.write_bytes(TEXT * 6_000)
    return Parser(path)


def entries(cache: Path) -> list[Path]:
    return list((cache / "parsed").iterdir())


def test_a_second_load_comes_from_the_cache_with_equal_arrays(parser: Parser, no_sets: Path) -> None:
    first = cached_table(parser.path, {}, parser)
    second = cached_table(parser.path, {}, parser)
    assert parser.calls == 1
    assert isinstance(first.x, SparseRows)
    assert isinstance(second.x, SparseRows)
    for field in ("values", "columns", "starts"):
        np.testing.assert_array_equal(getattr(first.x, field), getattr(second.x, field))
    np.testing.assert_array_equal(first.y, second.y)
    assert (first.x.features, first.label_names) == (second.x.features, second.label_names)
    assert [path.suffix for path in entries(no_sets)] == [".npz"]


def test_a_changed_file_or_other_options_are_parsed_again(parser: Parser, no_sets: Path) -> None:
    cached_table(parser.path, {"features": None}, parser)
    cached_table(parser.path, {"features": 7}, parser)
    assert parser.calls == 2
    parser.path.write_bytes(TEXT * 6_001)
    assert cached_table(parser.path, {"features": 7}, parser).rows == 12_002
    os.utime(parser.path, ns=(1, 1))
    cached_table(parser.path, {"features": 7}, parser)
    assert parser.calls == 4
    assert len(entries(no_sets)) == 2


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_entry_is_replaced(parser: Parser, no_sets: Path, damage: bytes | None) -> None:
    cached_table(parser.path, {}, parser)
    entry = entries(no_sets)[0]
    whole = entry.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    entry.write_bytes(flipped if damage is None else damage)
    assert cached_table(parser.path, {}, parser).rows == 12_000
    assert parser.calls == 2
    cached_table(parser.path, {}, parser)
    assert parser.calls == 2


def test_without_a_writable_cache_everything_still_loads(
    parser: Parser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HETSGD_CACHE", str(tmp_path / "file"))
    assert cached_table(parser.path, {}, parser).rows == 12_000


def test_a_small_file_leaves_nothing_behind(no_sets: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.svm"
    path.write_bytes(TEXT)
    cached_table(path, {}, Parser(path))
    assert not no_sets.exists()


def test_the_data_folder_of_the_environment_comes_first(
    monkeypatch: pytest.MonkeyPatch, no_sets: Path, tmp_path: Path
) -> None:
    assert list(data_folders()) == [no_sets / "data"]
    monkeypatch.setenv("HETSGD_DATA", str(tmp_path))
    assert list(data_folders()) == [tmp_path, no_sets / "data"]
