"""The formats of data files; imports nothing heavy."""

from typing import Literal, get_args

Format = Literal["libsvm", "csv", "arff", "npz", "parquet"]
"""`csv` stands for all delimited tables."""

FORMATS: tuple[Format, ...] = get_args(Format)
