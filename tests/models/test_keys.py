"""Parameters of recipes: listed with type, range and meaning, and checked against them."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from hetsgd.models.keys import Key, check_keys, key, keys_of
from hetsgd.models.policy import PolicyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    count: int = key(4, "how many", low=1, high=8)
    share: float = key(0.5, "what part", low=0.0)
    exact: bool = key(False, "whether to be exact")
    mode: Literal["a", "b"] = key("a", "which way", choices=("a", "b"))

    def __post_init__(self) -> None:
        check_keys(self)


def test_keys_are_listed_in_order_with_all_that_a_person_needs() -> None:
    assert keys_of(Sample) == (
        Key(name="count", type="int", default=4, meaning="how many", low=1, high=8),
        Key(name="share", type="float", default=0.5, meaning="what part", low=0.0),
        Key(name="exact", type="bool", default=False, meaning="whether to be exact"),
        Key(name="mode", type="str", default="a", meaning="which way", choices=("a", "b")),
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"count": 1.5}, "policy.count must be an integer, got 1.5"),
        ({"count": True}, "policy.count must be an integer, got True"),
        ({"count": 0}, "policy.count must be >= 1, got 0"),
        ({"count": 9}, "policy.count must be <= 8, got 9"),
        ({"share": "half"}, "policy.share must be a number, got 'half'"),
        ({"share": -0.25}, "policy.share must be >= 0, got -0.25"),
        ({"share": float("inf")}, "policy.share must be finite, got inf"),
        ({"share": 10**400}, "policy.share must be at most 1000000000000000, got a whole number of 1329 bits"),
        ({"count": 2**70}, "policy.count must be at most 1000000000000000, got a whole number of 71 bits"),
        ({"exact": 1}, "policy.exact must be true or false, got 1"),
        ({"mode": "c"}, "policy.mode must be one of a, b, got 'c'"),
    ],
)
def test_a_bad_value_is_refused_with_key_rule_and_value(values: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Sample(**values)
    assert str(caught.value) == says


def test_whole_numbers_are_numbers_and_bounds_are_inclusive() -> None:
    assert Sample(share=2, count=8).share == 2
    assert Sample(count=1, share=0.0).count == 1
