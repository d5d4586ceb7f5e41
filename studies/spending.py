"""Energy and cost in records and tables: there only where the machine of a run gives watts and price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsgd.models.energy import Spent


def spent_keys(spent: Spent) -> dict[str, Any]:
    """The keys of `run.json`: `energy_j`, `energy_to_loss_j`, `cost_usd`, `cost_to_loss_usd`; none that is not known.

    Levels are written as those of `time_to_loss_s`; null without a loss reference.
    """
    found: dict[str, Any] = {}
    if spent.energy_j is not None:
        found |= {"energy_j": spent.energy_j, "energy_to_loss_j": _by_level(spent.energy_to_loss_j)}
    if spent.cost_usd is not None:
        found |= {"cost_usd": spent.cost_usd, "cost_to_loss_usd": _by_level(spent.cost_to_loss_usd)}
    return found


def _by_level(values: Mapping[float, float | None] | None) -> dict[str, float | None] | None:
    return {f"{level:g}": value for level, value in values.items()} if values else None


def until(record: Mapping[str, Any], key: str, time_s: float | None) -> float | None:
    """What a run had spent (`energy_j`, `cost_usd`) at a time of it, at its mean rate; None where that is not known."""
    total, elapsed_s = record.get(key), record["elapsed_s"]
    if total is None or time_s is None or not elapsed_s:
        return None
    return float(total) * time_s / float(elapsed_s)


def joules(value: float | None) -> str:
    """An amount of energy in words.

    >>> joules(5400.0), joules(7.2e6), joules(None)
    ('5.4 kJ', '2 kWh', '-')
    """
    if value is None:
        return "-"
    if value >= 3.6e6:
        return f"{value / 3.6e6:.3g} kWh"
    return f"{value / 1e3:.3g} kJ" if value >= 1e3 else f"{value:.3g} J"


def dollars(value: float | None) -> str:
    """An amount of money in words.

    >>> dollars(0.01234), dollars(12.5)
    ('0.0123 USD', '12.5 USD')
    """
    return "-" if value is None else f"{value:.3g} USD"
