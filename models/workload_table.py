"""The keys of a workload file, with their types, ranges and defaults."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hetsgd.models.data.formats import Format
from hetsgd.models.data.preparation import Scaling
from hetsgd.models.run import MOST_SEED
from hetsgd.models.workload import (
    MOST_LAYERS,
    MOST_ROWS,
    MOST_SCALE,
    MOST_WIDTH,
    Activation,
    Initial,
    LossName,
    Precision,
)

_DIGITS: Final = re.compile("[0-9]{1,18}")


def _widths(value: object) -> object:
    """Widths from `512x6`, `512,256`, `64` or `none` (no hidden layer)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if text in ("", "none"):
        return []
    widths: list[int] = []
    for part in text.split(","):
        width, _, times = part.strip().partition("x")
        if not _DIGITS.fullmatch(width) or not (_DIGITS.fullmatch(times) or part.strip() == width):
            raise ValueError("must be widths such as 512x6 or 512,256")
        if times and not 1 <= int(times) <= MOST_LAYERS:
            raise ValueError(f"must be 1 to {MOST_LAYERS} layers of a width")
        widths += [int(width)] * (int(times) if times else 1)
    return widths


def _names(value: object) -> object:
    """Names from `a,b,c`; what has no comma (a single name, a number, a list) stays as it is."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) and "," in value else value


class WorkloadTable(BaseModel):
    """The keys of a workload file but `[run]`."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    description: str = ""
    source: str = ""
    dataset: str | None = None
    label: Annotated[str | list[str] | None, BeforeValidator(_names)] = None
    multilabel: bool | None = None
    format: Format | None = None
    first_index: Annotated[int, Field(ge=0, le=1)] | None = None
    classes: Annotated[
        Annotated[int, Field(ge=2, le=MOST_WIDTH)] | Annotated[list[str | int], Field(min_length=2)] | None,
        BeforeValidator(_names),
    ] = None
    download: bool = False
    test_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    split_seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 0
    scaling: Scaling = "unit"
    sparse: bool | None = None
    hidden: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_WIDTH)], ...], Field(max_length=MOST_LAYERS), BeforeValidator(_widths)
    ]
    activation: Activation = "sigmoid"
    bias: bool = True
    loss: LossName | None = None
    precision: Precision = "float32"
    initial: Initial = "scaled"
    initial_scale: Annotated[float, Field(gt=0.0, le=MOST_SCALE)] = 1.0
    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] | None = None
    test_rows: Annotated[int, Field(ge=0, le=MOST_ROWS)] | None = None
    features: Annotated[int, Field(ge=1, le=MOST_WIDTH)] | None = None
    outputs: Annotated[int, Field(ge=1, le=MOST_WIDTH)] | None = None
    density: Annotated[float, Field(gt=0.0, le=1.0)] | None = None


WORKLOAD_KEYS: Final = tuple(WorkloadTable.model_fields)
