"""Values made fast are the values that their classes make."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from hetsgd.models.drafts import new_assign, new_result
from hetsgd.models.policy import Assign, Result, Seat, Work

WORK = Work(batch=2, rate=0.1)
ASSIGN = Assign(id=3, seat=Seat("cpu"), epoch=1, start=4, stop=9, lanes=2, work=WORK)
RESULT = Result(
    id=3, seat=Seat("cpu"), rows=5, updates=1, steps=3, read=7, wrote=8, start_s=0.5, end_s=1.5, work=WORK,
    stats={"norm": 2.0},
)  # fmt: skip


def made_fast() -> list[tuple[Any, Any]]:
    result = new_result(
        ASSIGN, rows=5, updates=1, steps=3, read=7, wrote=8, start_s=0.5, end_s=1.5, stats={"norm": 2.0}
    )
    return [(new_assign(3, Seat("cpu"), 1, 4, 9, 2, WORK), ASSIGN), (result, RESULT)]


@pytest.mark.parametrize(("fast", "plain"), made_fast(), ids=["assign", "result"])
def test_a_draft_becomes_the_value_itself(fast: Any, plain: Any) -> None:
    assert type(fast) is type(plain)
    assert fast == plain
    assert repr(fast) == repr(plain)
    assert pickle.loads(pickle.dumps(fast)) == plain


@pytest.mark.parametrize(("fast", "plain"), made_fast(), ids=["assign", "result"])
def test_what_was_made_fast_is_frozen(fast: Any, plain: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        fast.id = 4
