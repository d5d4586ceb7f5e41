"""What surrogates model, and the refusal of what they do not."""

from __future__ import annotations


class AxisError(ValueError):
    """A run asks for something that a surrogate does not model, or far beyond its pilots; the message names it."""


def axes() -> dict[str, str]:
    """What surrogates model, and how, for documentation and records."""
    return {
        "learning rate": "up to 4 times the pilots' largest",
        "batch": "any; learning rate per row up to twice the pilots' largest",
        "staleness": "at event level, any",
        "merge rules": "overwrite, delta, average, gradient, elastic, discard; no delay compensation",
        "momentum": "of gradient and elastic merges; not by one-step",
        "weight decay": "refused",
        "row order": "shuffled",
        "data": "fresh rows: what a model gains by seeing the same rows again is in the pilots as far as they went",
    }
