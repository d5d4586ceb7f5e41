"""NPZ archives: features and labels as arrays of numpy, the features dense or as the parts of a CSR matrix.

Features are the array `x` (or `X`, `features`, `x_train`, `train_x`) or the parts `x_data`, `x_indices`,
`x_indptr`, `x_shape` (or without `x_`, as `scipy.sparse.save_npz` names them); labels are `y` (or `Y`, `labels`,
`label`, `target`, `targets`, `y_train`, `train_y`). `x_test` and `y_test` (or `test_x`, `test_y`) are a published
test part. An archive with one array of rows and one of labels may name them as it likes.

Each array is read from its bytes without numpy's own reader, so that no header is ever evaluated, nothing is
unpickled and no array is made larger than the bytes that are there.
"""

import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.dataset import DataError
from hetsgd.models.data.source_file import content_limit, size_words
from hetsgd.models.data.table import SparseRows, Table, compact, join
from hetsgd.models.data.targets import index_labels, listed

_X = ("x", "X", "features", "x_train", "train_x", "X_train")
_Y = ("y", "Y", "labels", "label", "target", "targets", "y_train", "train_y")
_TEST_X = ("x_test", "test_x", "X_test")
_TEST_Y = ("y_test", "test_y")
_PARTS = ("data", "indices", "indptr", "shape")
_DAMAGED = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    OverflowError,
)
_DESCR = re.compile(rb"""['"]descr['"]\s*:\s*['"]([<>|=]?[biufUS][0-9]{1,6})['"]""")
_ORDER = re.compile(rb"""['"]fortran_order['"]\s*:\s*(True|False)""")
_SHAPE = re.compile(rb"""['"]shape['"]\s*:\s*\(([0-9,\s]{0,60})\)""")

Matrix = NDArray[Any] | SparseRows


def parse_npz(raw: bytes, *, origin: str, label: str | None = None, classes: tuple[str, ...] | None = None) -> Table:
    """All rows of an archive; `label` names the array of labels, `classes` declares the classes that may occur.

    Raises DataError with file, array, row, rule and value for anything that is not such an archive.
    """
    arrays = _arrays(raw, origin)
    y_name = _labels_name(arrays, label, origin)
    train = _table(arrays, _features_name(arrays, _X, y_name, origin), y_name, origin, classes)
    test_y = next((name for name in _TEST_Y if name in arrays), None)
    if test_y is None or label is not None:
        return train
    test_x = next((name for name in _TEST_X if name in arrays or f"{name}_data" in arrays), None)
    if test_x is None:
        raise DataError(f"{origin}: array {test_y} must come with the features {' or '.join(_TEST_X)}")
    return join(train, _table(arrays, test_x, test_y, origin, train.label_names))


def _arrays(raw: bytes, origin: str) -> dict[str, NDArray[Any]]:
    """The arrays by name; entries are checked by their zip checksums."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            size_bytes, limit = sum(entry.file_size for entry in entries), content_limit()
            if size_bytes > limit:
                raise DataError(
                    f"{origin}: must unpack to at most {size_words(limit)} on this machine, "
                    f"got {size_words(size_bytes)}"
                )
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                arrays[name] = _array(archive.read(entry), f"{origin}, array {name}")
    except DataError:
        raise
    except _DAMAGED as error:
        raise DataError(f"{origin}: must be a whole .npz archive, got damaged content ({error})") from error
    if not arrays:
        raise DataError(f"{origin}: must hold arrays (.npy entries), found none")
    return arrays


def _array(raw: bytes, where: str) -> NDArray[Any]:
    """One .npy file: magic, version, header length, header, values."""
    version = raw[6:7]
    width = 2 if version == b"\1" else 4
    if raw[:6] != b"\x93NUMPY" or version not in (b"\1", b"\2", b"\3") or len(raw) < 8 + width:
        raise DataError(f"{where}: must be an array as numpy.save writes it")
    start = 8 + width
    length = int.from_bytes(raw[8:start], "little")
    header = raw[start : start + length]
    descr, order, shape = _DESCR.search(header), _ORDER.search(header), _SHAPE.search(header)
    if descr is None or order is None or shape is None or length > 10_000:
        raise DataError(f"{where}: must hold numbers or text, got {header[:60].strip()!r}")
    sizes = [int(size) for size in shape.group(1).split(b",") if size.strip()]
    kind = np.dtype(descr.group(1).decode())
    count = 1
    for size in sizes:
        count *= size
    content = raw[start + length :]
    if kind.itemsize == 0 or count * kind.itemsize != len(content):
        raise DataError(f"{where}: must hold {tuple(sizes)} values of {kind}, got {len(content):,} bytes")
    values = np.frombuffer(content, kind)
    return values.reshape(sizes, order="F" if order.group(1) == b"True" else "C")


def _labels_name(arrays: Mapping[str, NDArray[Any]], label: str | None, origin: str) -> str:
    if label is not None:
        if label not in arrays:
            raise DataError(f"{origin}: label array {label!r} is not there, the arrays are {listed(list(arrays))}")
        return label
    known = [name for name in _Y if name in arrays]
    alike = [name for name, values in arrays.items() if values.ndim == 1] if len(arrays) == 2 else []
    if len(known) == 1 or (not known and len(alike) == 1):
        return (known or alike)[0]
    raise DataError(
        f"{origin}: one array must be the labels ({', '.join(_Y[:5])}, or named by label=), "
        f"the arrays are {listed(list(arrays))}"
    )


def _features_name(arrays: Mapping[str, NDArray[Any]], known: tuple[str, ...], labels: str, origin: str) -> str:
    """Name of the features' array, or what the names of their CSR parts begin with."""
    found = [name for name in known if name in arrays or f"{name}_data" in arrays]
    if not found and all(part in arrays for part in _PARTS):
        return ""
    others = [name for name in arrays if name != labels]
    if len(found) == 1 or (not found and len(others) == 1):
        return (found or others)[0]
    raise DataError(
        f"{origin}: one array must be the features ({', '.join(known[:3])}, or the CSR parts x_data, x_indices, "
        f"x_indptr, x_shape), the arrays are {listed(list(arrays))}"
    )


def _table(
    arrays: Mapping[str, NDArray[Any]], x_name: str, y_name: str, origin: str, classes: tuple[str, ...] | None
) -> Table:
    def place_of(row: int) -> str:
        return f"array {y_name}, row {row}"

    if x_name in arrays:
        x: Matrix = dense_features(arrays[x_name], f"{origin}, array {x_name}")
    else:
        x = _sparse(arrays, f"{x_name}_" if x_name else "", origin)
    labels = arrays[y_name]
    if labels.ndim == 0 or len(labels) != len(x):
        raise DataError(f"{origin}, array {y_name}: must have one entry per row ({len(x)}), got shape {labels.shape}")
    y, names = index_labels(labels, origin=origin, place_of=place_of, classes=classes)
    return Table(x=x, y=y, label_names=names)


def dense_features(values: NDArray[Any], where: str) -> NDArray[Any]:
    """Features as a matrix (rows, features) that a Table may hold; further dimensions are flattened, row by row.

    Raises DataError for other than finite numbers and for a matrix without rows or features.
    """
    if values.dtype.kind not in "biuf" or values.ndim < 2 or 0 in values.shape:
        raise DataError(
            f"{where}: features must be numbers of shape (rows, features), or of more dimensions that are flattened to "
            "features, none of them 0, "
            f"got {values.dtype} of shape {values.shape}"
        )
    matrix = np.ascontiguousarray(values.reshape(len(values), -1), dtype=np.float64)
    if not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        raise DataError(f"{where}, row {row}, column {column}: must be finite, got {matrix[row, column]}")
    return compact(matrix)


def _sparse(arrays: Mapping[str, NDArray[Any]], prefix: str, origin: str) -> SparseRows:
    """The parts of a CSR matrix as sparse rows, columns rising and none twice."""
    absent = [prefix + part for part in _PARTS if prefix + part not in arrays]
    if absent:
        raise DataError(f"{origin}: the CSR parts must be complete, missing {', '.join(absent)}")
    data, columns, starts, shape = (arrays[prefix + part] for part in _PARTS)
    kind = arrays.get(prefix + "format")
    if kind is not None and (kind.ndim != 0 or kind.item() not in ("csr", b"csr")):
        raise DataError(f"{origin}, array {prefix}format: must be csr, got {kind!r} (convert with .tocsr())")
    where = f"{origin}, CSR parts {', '.join(prefix + part for part in _PARTS)}"
    whole = all(part.dtype.kind in "iu" and part.ndim == 1 for part in (columns, starts, shape))
    if not whole or len(shape) != 2 or data.ndim != 1 or data.dtype.kind not in "biuf" or len(columns) != len(data):
        raise DataError(
            f"{where}: must be numbers, whole numbers of the same length, whole numbers and 2 whole numbers, got "
            f"{data.dtype} {data.shape}, {columns.dtype} {columns.shape}, {starts.dtype} {starts.shape}, {shape}"
        )
    rows, features = (int(size) for size in shape)
    starts = starts.astype(np.int64)
    if len(starts) != rows + 1 or starts[0] != 0 or starts[-1] != len(data) or (np.diff(starts) < 0).any() or not rows:
        raise DataError(f"{where}: indptr must rise from 0 to {len(data)} in {rows} steps (the rows)")
    if not 0 < features < 2**31 or (len(columns) and (columns.min() < 0 or columns.max() >= features)):
        span = f"{columns.min()}..{columns.max()}" if len(columns) else "no columns"
        raise DataError(f"{where}: indices must lie in 0..{features - 1} (the declared features), got {span}")
    values = data.astype(np.float64)
    row_of = np.repeat(np.arange(rows), np.diff(starts))
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise DataError(f"{where}, row {row_of[at]}, column {columns[at]}: must be finite, got {values[at]}")
    order = np.lexsort((columns, row_of))
    columns = columns[order].astype(np.int64)
    twice = (np.diff(columns) == 0) & (np.diff(row_of) == 0)
    if twice.any():
        at = int(np.argmax(twice))
        raise DataError(f"{where}, row {row_of[at]}: a column may occur once, got {columns[at]} twice")
    return SparseRows(values=values[order], columns=columns.astype(np.int32), starts=starts, features=features)
