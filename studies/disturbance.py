"""A calibration during which other programs were at work, in words: what it predicts is then too slow."""

from __future__ import annotations

from typing import Final

from hetsgd.studies.interval import percent

_MUCH: Final = 0.1


def disturbed_words(share: float | None) -> str:
    """What happened, from the share of measurements during which others had the processor; empty where it was little.

    >>> disturbed_words(0.681), disturbed_words(0.05), disturbed_words(None)
    ('other programs had the processor during 68 % of the measurements', '', '')
    """
    if share is None or share <= _MUCH:
        return ""
    return f"other programs had the processor during {percent(share)} of the measurements"
