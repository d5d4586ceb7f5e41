"""`hetsgd calibrate --check`: how well a calibrated machine foretells step times that it never saw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hetsgd.studies.calibration import Interrupted
from hetsgd.studies.failure import RunFailed, checking
from hetsgd.studies.interval import seconds, share
from hetsgd.studies.record import to_json
from hetsgd.studies.screen import Meter, say

if TYPE_CHECKING:
    from hetsgd.real.calibration_check import Checked

HELD_OUT_BAR: Final = 0.08
UNSEEN_BAR: Final = 0.20
_REPEATS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cells of one device, number of lanes and kind together: mean absolute error, the largest, and the spread.

    `spread`: median relative spread of the repeats of one cell, `slowdown`: median of average over best. `bar`: the
    error that a calibration should keep.
    """

    what: str
    device: str
    lanes: int
    cells: int
    error: float
    largest: float
    bias: float
    spread: float
    slowdown: float
    bar: float


def check_here(path: Path) -> list[Checked]:
    """Measure this machine anew and predict the same from its file. Raises BadInput, Interrupted, RunFailed."""
    from hetsgd.models.calibration_scope import check_cells
    from hetsgd.models.machine_file import load_machine

    with checking("--check"):
        machine = load_machine(path)
        cells = check_cells(machine)
    from hetsgd.real.calibration_check import check
    from hetsgd.real.interrupts import Interrupts
    from hetsgd.real.workforce import ChildLost
    from hetsgd.real.workforce import Interrupted as Stopped

    say(f"calibrate: checks {path.name} at {len(cells)} step times, {_REPEATS} times each; about a minute or two")
    try:
        with Interrupts() as interrupts, Meter("check", 1.0) as meter:
            return check(machine, cells, _REPEATS, interrupts, meter.at)
    except Stopped as error:
        raise Interrupted("a check keeps nothing") from error
    except (ChildLost, OSError) as error:
        raise RunFailed(f"calibrate: {error}") from error


def groups_of(checked: Iterable[Checked]) -> list[Group]:
    """Errors by kind (other batch sizes of calibrated networks; each unseen network), device and lanes."""
    import statistics

    parts: dict[tuple[str, str, int, float], list[Checked]] = {}
    for one in checked:
        cell = one.cell
        what = "other batch sizes" if cell.held_out else f"unseen {cell.shape}"
        bar = HELD_OUT_BAR if cell.held_out else UNSEEN_BAR
        parts.setdefault((what, cell.device, cell.lanes, bar), []).append(one)
    return [
        Group(
            what=what, device=device, lanes=lanes, cells=len(found), bar=bar,
            error=statistics.fmean(abs(one.error) for one in found),
            largest=max(abs(one.error) for one in found),
            bias=statistics.fmean(one.error for one in found),
            spread=statistics.median(one.measured.spread for one in found),
            slowdown=statistics.median(one.slowdown for one in found),
        )
        for (what, device, lanes, bar), found in sorted(parts.items(), key=lambda part: (part[0][3], *part[0][:3]))
    ]  # fmt: skip


def print_check(checked: list[Checked], *, as_json: bool) -> None:
    """The errors, to stdout: one JSON object, or a table."""
    groups = groups_of(checked)
    if as_json:
        print(to_json(check_json(checked, groups)))
        return
    width = max(len(group.what) for group in groups)
    print(
        f"{'what':<{width}}  {'device':<8}  {'lanes':>5}  {'times':>5}  {'error':>7}  {'bar':>7}  {'largest':>7}  "
        f"{'bias':>7}  {'repeats':>7}  {'average':>7}"
    )
    for group in groups:
        print(
            f"{group.what:<{width}}  {group.device:<8}  {group.lanes:>5}  {group.cells:>5}  {share(group.error):>7}  "
            f"{share(group.bar):>7}  {share(group.largest):>7}  {share(group.bias):>7}  {share(group.spread):>7}  "
            f"{group.slowdown:>7.2f}"
        )
    worst = max(checked, key=lambda one: abs(one.error))
    print(
        "error: mean of |predicted / measured - 1|; repeats: spread of repeated measurements; average: how many times "
        f"as long steps took on average as at their best. Worst: {worst.cell}: "
        f"{seconds(worst.predicted_s)} predicted, {seconds(worst.measured.value)} measured"
    )


def check_json(checked: Iterable[Checked], groups: Iterable[Group]) -> dict[str, Any]:
    """The `hetsgd.calibration-check/1` object; errors are shares, times seconds."""
    from dataclasses import asdict

    return {
        "schema": "hetsgd.calibration-check/1",
        "groups": [asdict(group) for group in groups],
        "steps": [
            {
                "device": one.cell.device, "lanes": one.cell.lanes, "shape": str(one.cell.shape),
                "batch": one.cell.batch, "unseen": not one.cell.held_out, "predicted_s": one.predicted_s,
                "measured_s": one.measured.value, "spread": one.measured.spread, "error": one.error,
                "slowdown": one.slowdown,
            }
            for one in checked
        ],
    }  # fmt: skip
