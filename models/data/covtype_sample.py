"""The embedded sample of Forest Covertype (copyright and counts: covtype_sample.NOTICE.txt)."""

from importlib import resources
from typing import IO

import numpy as np
from numpy.typing import NDArray

from hetsgd.models.data.table import Table

FILE_NAME = "covtype_sample.npz"
COVER_TYPES = 7
"""Classes of the original task, numbered 1 to 7."""


def read_sample() -> Table:
    """The embedded rows: 58,101 x 54 integer features, the seven cover types as classes."""
    with resources.files("hetsgd.models.data").joinpath(FILE_NAME).open("rb") as file:
        return read_table(file)


def read_table(file: IO[bytes]) -> Table:
    """A sample as `make_covtype_sample` writes it: features column by column, which compresses better."""
    with np.load(file, allow_pickle=False) as kept:
        features: NDArray[np.int16] = kept["features"]
        cover: NDArray[np.uint8] = kept["cover_type"]
    return Table(
        x=np.ascontiguousarray(features.T),
        y=cover.astype(np.int64) - 1,
        label_names=tuple(str(number) for number in range(1, COVER_TYPES + 1)),
    )
