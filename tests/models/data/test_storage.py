"""Files are read whole or refused, and a parsed file is kept."""

import bz2
import gzip
import lzma
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsgd.models.data import source_file
from hetsgd.models.data.dataset import DataError, MissingDataError
from hetsgd.models.data.folders import data_folders
from hetsgd.models.data.libsvm import parse_libsvm
from hetsgd.models.data.source_file import bare_suffix, read_bytes
from hetsgd.models.data.storage import cached_table
from hetsgd.models.data.table import SparseRows, Table

TEXT = b"0 1:1\n1 2:2\n"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {".bz2": bz2.compress, ".gz": gzip.compress, ".xz": lzma.compress}


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


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".xz"])
def test_what_follows_an_archive_counts_too(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESS[suffix]
    path = tmp_path / f"data{suffix}"
    path.write_bytes(compress(TEXT) + compress(TEXT) + compress(b""))
    assert read_bytes(path) == TEXT + TEXT
    path.write_bytes(compress(TEXT) + b"trailing garbage")
    with pytest.raises(DataError, match=f"must be a whole {suffix} file"):
        read_bytes(path)
    path.write_bytes(compress(TEXT) + compress(TEXT)[:-5])
    with pytest.raises(DataError, match=f"must be a whole {suffix} file"):
        read_bytes(path)


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".xz"])
def test_a_few_bytes_that_unpack_without_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    compress = COMPRESS[suffix]
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(compress(bytes(2**24)))
    assert path.stat().st_size < 2**15
    monkeypatch.setattr(source_file, "MAX_CONTENT_BYTES", 2**22)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"it unpacks to more than 4\.0 MiB"):
        read_bytes(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**24


def test_content_of_more_than_a_share_of_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsgd.models.machine_local.memory_bytes", lambda: 4 * 2**10)
    path = tmp_path / "big.svm"
    path.write_bytes(TEXT * 100)
    with pytest.raises(DataError, match=r"big\.svm: must be at most 1\.0 KiB on this machine, got 1\.2 KiB"):
        read_bytes(path)


def test_a_pipe_a_device_and_a_name_that_cannot_be_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path("/dev/zero"), Path("/")):
        with pytest.raises(DataError, match="must be a file, and is a folder, pipe or device"):
            read_bytes(path)
    for name in ("a\0b", "n" * 5000):
        with pytest.raises(DataError, match=r"cannot be read|no such file"):
            read_bytes(tmp_path / name)
    assert bare_suffix(Path("/")) == ""
