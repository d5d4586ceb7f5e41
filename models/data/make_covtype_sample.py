"""Make the embedded sample: `python -m hetsgd.models.data.make_covtype_sample SOURCE [--out FILE]`.

SOURCE is the full Forest Covertype set as CSV (plain or compressed) with the cover type in its last column.
The same source gives the same rows, and the same bytes with the same zlib.
"""

import argparse
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.covtype_sample import FILE_NAME
from hetsgd.models.data.delimited import parse_delimited
from hetsgd.models.data.preparation import stratified_rows
from hetsgd.models.data.source_file import read_bytes
from hetsgd.models.data.table import Table

SHARE = 0.1
SEED = 2004


def sample_rows(table: Table) -> NDArray[np.int64]:
    """The rows of the sample, in file order: a tenth of each cover type."""
    return stratified_rows(table.y, SHARE, np.random.default_rng(SEED))


def sample_bytes(table: Table) -> bytes:
    """The sample file: an npz whose entries carry no date, so that the same rows give the same bytes."""
    rows = sample_rows(table)
    features = np.ascontiguousarray(np.asarray(table.x)[rows].T.astype(np.int16))
    cover = np.array([int(name) for name in table.label_names], dtype=np.uint8)[table.y[rows]]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        _add(archive, "features", features)
        _add(archive, "cover_type", cover)
    return out.getvalue()


def _add(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
    entry.create_system = 3  # else the platform it is made on would show in the bytes
    archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)


def main() -> None:
    """Read the full set, write the sample, and report the rows of each cover type."""
    parser = argparse.ArgumentParser(description="Make the embedded sample of Forest Covertype.")
    parser.add_argument("source", type=Path, help="the full set as CSV, plain or compressed")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name(FILE_NAME))
    arguments = parser.parse_args()
    table = parse_delimited(read_bytes(arguments.source), origin=str(arguments.source))
    content = sample_bytes(table)
    arguments.out.write_bytes(content)
    counts = np.bincount(table.y[sample_rows(table)]).tolist()
    sys.stdout.write(f"{arguments.out}: {len(content):,} bytes, rows of each cover type {counts}\n")


if __name__ == "__main__":
    main()
