"""Tables of the reproduction's report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from hetsgd.studies.input_tables import machine_table, workload_table
from hetsgd.studies.interval import number
from hetsgd.studies.paper.bars import ROWS_FACTOR, SHARE_AIM, Check
from hetsgd.studies.paper.constants import CARRIED, constants
from hetsgd.studies.paper.implementation import Setting, machine_of, workload_of
from hetsgd.studies.paper.published import ALGORITHMS, DATASETS, GPUS, METRICS, figure
from hetsgd.studies.paper.reproduction import Cell, Reproduction
from hetsgd.studies.paper.search import SEARCHED, Region, Tried
from hetsgd.studies.paper.words import GROUPS, error_text, group
from hetsgd.studies.record import described
from hetsgd.studies.tables import Table

_BEST: Final = 8
_IMPLEMENTATION: Final = (
    ("precision", "float64, no bias, sigmoid, 512 wide", "A, read in the authors' code"),
    ("hidden layers", "covtype 6, w8a 8, delicious 8, real-sim 4", "R, recalled from the paper; the code has 8"),
    ("rows", "dense in host memory, in file order", "A"),
    ("CPU team", "48 threads (K80 server), one row each, ends an assignment together", "A"),
    ("CPU team, V100 server", "64 threads, one for each logical CPU", "assumed"),
    ("GPU batch", "the model, then the rows from pageable memory; nothing overlaps; a wait after every kernel", "A"),
    ("order of copies", "the simulator copies the rows first, then the model: it takes the same time", "differs"),
    ("write", "the whole replica is copied back over the model; what the CPU wrote meanwhile is lost", "A"),
    ("evaluation", "at epoch ends on the GPU, in chunks of 4096 rows, while all wait; not part of an epoch's time",
     "A; that the published epochs leave it out is inferred, C"),
    ("GPU", "one die of the K80, one V100", "C, inferred"),
    ("tensorflow", "the model stays on the GPU, rows are fed before each step, kernels are launched ahead", "assumed"),
    ("cpu", "200 assignments are simulated and taken for the epoch: all are alike", "chosen here"),
    ("utilization", "CPU: lanes that compute and the thread that drives the GPU, over all logical CPUs; GPU: time with "
     "a kernel running; both away from epoch ends", "as the paper's, B"),
    ("learner", "none: times only", "chosen here"),
)  # fmt: skip


def result_tables(study: Reproduction) -> list[Table]:
    """Bars, predicted beside published, other data sets, settings, batches, and what carries."""
    tables = [_bars(study), _published(study), _unpublished(study), _constants(), _carried(study)]
    tables += [_region(region) for region in study.regions.values()]
    tables.append(_batches(study))
    return tables


def input_tables(study: Reproduction) -> list[Table]:
    """The implementation with its marks, the settings, the workloads and the machines with their sources."""
    chosen = tuple((gpu, str(setting.batch), *_setting_cells(setting)) for gpu, setting in study.settings.items())
    tables = [
        Table(title="The paper's implementation as simulated", note="A: read in the authors' code, README or abstract; "
              "B: read off the figures; C: inferred; R: recalled, unverified.",
              headings=("what", "how", "mark"), rows=_IMPLEMENTATION),
        Table(title="Settings that stand for each server", note="The best that the search found; not published.",
              headings=("server", "batch of the fixed algorithms", *_SETTING_HEADINGS),
              rows=chosen),
    ]  # fmt: skip
    tables += [workload_table(described(workload_of(dataset))) for dataset in DATASETS]
    for gpu in GPUS:
        machine = machine_of(gpu)
        tables.append(machine_table(machine.name, described(machine)))
    return tables


def _bars(study: Reproduction) -> Table:
    found = study.checks()
    rows = []
    for words, metric, algorithms in GROUPS:
        own = group(found, metric, algorithms)
        bars = sorted({check.bar for check in own if check.bar is not None})
        worst = max(own, key=lambda check: abs(check.error))
        mean = math.fsum(abs(check.error) for check in own) / len(own)
        rows.append((
            words, " or ".join(error_text(metric, bar).lstrip("+") for bar in bars),
            f"{sum(check.holds for check in own)} of {len(own)}", error_text(metric, mean).lstrip("+"),
            f"{error_text(metric, worst.error)} ({worst.key.algorithm}, {worst.key.dataset}, {worst.key.gpu})",
        ))  # fmt: skip
    for (gpu, dataset), ratio in study.cpu_rows().items():
        holds = 1.0 / ROWS_FACTOR <= ratio <= ROWS_FACTOR
        rows.append((f"CPU rows/s in CPU+GPU, over what the share implies ({dataset}, {gpu})",
                     f"factor {ROWS_FACTOR:g}", "1 of 1" if holds else "0 of 1", "-", f"{ratio:.2f}"))  # fmt: skip
    return Table(
        title="Bars", note="Errors of times are relative, those of shares and utilizations differences in points. "
        f"Adaptive's shares have an aim of {100 * SHARE_AIM:.0f} points beside the bar.",
        headings=("what", "bar", "within", "mean error", "largest error"), rows=tuple(rows),
    )  # fmt: skip


def _published(study: Reproduction) -> Table:
    rows = tuple(
        (f"{check.key.dataset}, {check.key.gpu}, {check.key.algorithm}", check.key.metric, number(check.published),
         figure(*check.key).mark, number(check.predicted), error_text(check.key.metric, check.error),
         "-" if check.bar is None else "yes" if check.holds else "NO")
        for check in sorted(study.checks(), key=_order)
    )  # fmt: skip
    return Table(
        title="Predicted beside published", note="All that is published and predicted; `paper.csv` has a row for every "
        "combination. Within: inside its bar, where there is one.",
        headings=("cell", "metric", "published", "mark", "predicted", "error", "within"), rows=rows,
    )  # fmt: skip


def _order(check: Check) -> tuple[int, int, int, int]:
    key = check.key
    return (METRICS.index(key.metric), DATASETS.index(key.dataset), GPUS.index(key.gpu),
            ALGORITHMS.index(key.algorithm))  # fmt: skip


def _unpublished(study: Reproduction) -> Table:
    rows = []
    for dataset in DATASETS:
        if dataset in SEARCHED:
            continue
        for gpu in GPUS:
            for algorithm in ALGORITHMS:
                p = study.cells[Cell(gpu, dataset, algorithm)]
                region = _ranges(study.regions[gpu], dataset) if algorithm == "adaptive" else ("-", "-")
                rows.append((f"{dataset}, {gpu}, {algorithm}", number(p.epoch_s), f"{p.cpu_share:.3f}", *region,
                             f"{p.utilization_cpu:.2f}", f"{p.utilization_gpu:.2f}"))  # fmt: skip
    return Table(
        title="Predicted where nothing is published here",
        note="The same constants and the same setting of each server as above. The ranges are those over all settings "
        "of Adaptive that keep the bars on covtype and w8a.",
        headings=("cell", "epoch [s]", "CPU share", "epochs of the region", "shares of the region", "utilization CPU",
                  "utilization GPU"),
        rows=tuple(rows),
    )  # fmt: skip


def _ranges(region: Region, dataset: str) -> tuple[str, str]:
    """Epochs and shares of all settings within the bars."""
    own = [other for tried in region.within for other in tried.others if other[0] == dataset]
    if not own:
        return "-", "-"
    epochs, shares = [epoch_s for _, epoch_s, _ in own], [share for _, _, share in own]
    return f"{number(min(epochs))} to {number(max(epochs))}", f"{min(shares):.2f} to {max(shares):.2f}"


def _constants() -> Table:
    rows = tuple((c.name, c.scope, c.value, c.fitted_to, c.meaning) for c in constants())
    return Table(title="Fitted constants", note="All other figures of the machines are specifications or stated "
                 "assumptions; see the tables of the machines.",
                 headings=("constant", "server", "value", "fitted to", "beside"), rows=rows)  # fmt: skip


def _carried(study: Reproduction) -> Table:
    rows = []
    for carried in study.carried:
        rates = ", ".join(f"{gpu} {rate / 1e9:.1f} GB/s" for gpu, rate in carried.dram_bytes_per_s)
        fitted = f"{carried.on} ({rates}, GPU {carried.efficiency:.2f})"
        for dataset in SEARCHED:
            tested = "fitted" if dataset == carried.on else "test"
            for algorithm in CARRIED:
                own = [c for c in carried.checks if (c.key.dataset, c.key.algorithm) == (dataset, algorithm)]
                errors = {check.key.gpu: check.error for check in own if check.key.metric == "epoch_s"}
                shares = {check.key.gpu: check.error for check in own if check.key.metric == "cpu_update_share"}
                rows.append((
                    fitted, f"{dataset} ({tested})", algorithm,
                    *(error_text("epoch_s", errors[gpu]) for gpu in GPUS),
                    *(error_text("cpu_update_share", shares[gpu]) if gpu in shares else "-" for gpu in GPUS),
                ))  # fmt: skip
    return Table(
        title="Fitted on one data set, tested on the other",
        note="DRAM bandwidths and the GPUs' efficiency fitted to the CPU and GPU epochs of one data set alone; the "
        "other constants and the settings as everywhere.",
        headings=("fitted on", "predicted", "algorithm", *(f"epoch, {gpu}" for gpu in GPUS),
                  *(f"CPU share, {gpu}" for gpu in GPUS)),
        rows=tuple(rows),
    )  # fmt: skip


_SETTING_HEADINGS: Final = (
    "GPU batch, lower", "upper", "rows per thread, upper", "beta", "counts of", "starts as",
)  # fmt: skip


def _cells(tried: Tried) -> tuple[str, ...]:
    errors = "; ".join(f"{label.split(', ')[0]} {_short(label)} {error:+z.2f}" for label, error in tried.errors)
    return (*_setting_cells(tried.setting), f"{tried.worst:.2f}", errors)


def _setting_cells(setting: Setting) -> tuple[str, ...]:
    return (str(setting.lower), str(setting.upper), str(setting.cpu_upper), f"{setting.beta:g}", setting.counts,
            setting.start)  # fmt: skip


def _short(label: str) -> str:
    return {"epoch_s": "epoch", "cpu_update_share": "share"}.get(label.split(", ")[-1], label.split("_")[-1])


def _region(region: Region) -> Table:
    best = sorted(region.settings, key=lambda tried: tried.worst)[:_BEST]
    counts = "; ".join(_counts(region))
    return Table(
        title=f"Adaptive's settings on the {region.gpu} server",
        note=f"{len(region.within)} of {region.tried} settings lie within all bars. How many by value: {counts}. The "
        "best ones, with their worst error in units of its bar and all errors:",
        headings=(*_SETTING_HEADINGS, "worst", "errors"), rows=tuple(_cells(tried) for tried in best),
    )  # fmt: skip


def _counts(region: Region) -> Iterator[str]:
    for words, name in (("GPU lower", "lower"), ("GPU upper", "upper"), ("rows per thread", "cpu_upper"),
                        ("beta", "beta"), ("counts", "counts"), ("start", "start")):  # fmt: skip
        values = [getattr(tried.setting, name) for tried in region.within]
        yield f"{words} " + ", ".join(f"{value}: {values.count(value)}" for value in sorted(set(values)))


def _batches(study: Reproduction) -> Table:
    rows = tuple(
        (region.gpu, str(tried.setting.batch), f"{tried.worst:.2f}", "yes" if tried.within else "no",
         "; ".join(f"{label} {error:+z.2f}" for label, error in tried.errors))
        for region in study.regions.values()
        for tried in region.batches
    )  # fmt: skip
    return Table(
        title="The GPU batch of the fixed algorithms", note="Worst error in units of its bar over the figures of gpu "
        "and cpu+gpu on covtype and w8a.",
        headings=("server", "settings", "worst", "within", "errors"), rows=rows,
    )  # fmt: skip
