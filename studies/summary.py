"""A run as a table for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsgd.models.words import counted
from hetsgd.studies.interval import number, percent, seconds, share
from hetsgd.studies.spending import dollars, joules

_CLASSES = ("cpu", "accelerator")
_SPENT = (
    ("energy", "energy_j", "energy_to_loss_j", joules),
    ("cost", "cost_usd", "cost_to_loss_usd", dollars),
)


def print_summary(record: Mapping[str, Any]) -> None:
    """Print a run's record to stdout: what was run, how it ended, then the figures."""
    rows = summary_rows(record)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    if "explain" in record:
        from hetsgd.studies.explain import explain_lines

        print("")
        for line in explain_lines(record["explain"]):
            print(line)


def summary_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The lines of the summary: names and values in words."""
    rows = [
        ("policy", _policy(record["policy"])),
        ("machine", _machine(record)),
        ("workload", _workload(record["workload"])),
        ("status", _status(record)),
        ("time", _time(record)),
        ("work", _work(record)),
        ("epoch", _epochs(record["epoch_s"])),
        ("update share", _by_class(record["update_share"], share)),
        ("utilization", _by_class(record["utilization"], share)),
        ("batch", _batches(record)),
        ("staleness", _staleness(record["staleness"])),
        ("loss", _loss(record["loss"])),
    ]
    if record["time_to_loss_s"]:
        levels = record["time_to_loss_s"].items()
        rows.append(("time to loss", ", ".join(f"{percent(float(level))} {seconds(time)}" for level, time in levels)))
    rows += [
        (name, _spent(record[key], record[to_loss], words))
        for name, key, to_loss, words in _SPENT if record.get(key) is not None
    ]  # fmt: skip
    rows += [("fault", f"{fault['worker']} at {seconds(fault['at_s'])}: {fault['kind']}") for fault in record["faults"]]
    return rows


def _spent(total: float, to_loss: Mapping[str, Any] | None, words: Any) -> str:
    levels = "".join(f", {percent(float(level))} {words(value)}" for level, value in (to_loss or {}).items())
    return f"{words(total)}{levels}"


def _policy(policy: Mapping[str, Any]) -> str:
    keys = ", ".join(f"{key}={value}" for key, value in policy["keys"].items())
    return f"{policy['name']} ({keys})" if keys else str(policy["name"])


def _machine(record: Mapping[str, Any]) -> str:
    machine = record["machine"]
    devices = ", ".join(device["name"] for device in machine["accelerators"]) or "no accelerator"
    assumed = len(machine.get("assumed", ()))
    note = f"; {counted(assumed, 'value')} assumed" if assumed and record["engine"] == "sim" else ""
    lanes = counted(machine["cpu_lanes"], "CPU lane")
    if machine["cpu_lanes"] == 1 and set(record["batch"]) == {"cpu"}:
        lanes += ", so this is serial SGD"
    return f"{machine['name']} ({lanes}, {devices}{note})"


def _workload(workload: Mapping[str, Any]) -> str:
    widths = "-".join(str(width) for width in (workload["features"], *workload["hidden"], workload["outputs"]))
    if "traced" in workload:
        widths = f"{workload['description']}, {workload['parameters']:,} parameters"
    return f"{workload['name']} ({widths}, {workload['precision']}, {workload['rows']:,} rows of {workload['dataset']})"


def _status(record: Mapping[str, Any]) -> str:
    reason = record["stop_reason"]
    limit, updates = record["run"]["stop"]["updates"], sum(record["updates"].values())
    if reason and limit is not None and record["status"] == "done" and updates > limit:
        reason += f"; work in flight then counts, {counted(round(updates - limit), 'more update')}"
    return f"{record['status']} ({reason})" if reason else str(record["status"])


def _time(record: Mapping[str, Any]) -> str:
    """Seconds on the clock of the run, and those that a person waited: with start-up, losses and everything."""
    elapsed, waited = seconds(record["elapsed_s"]), seconds(record["wall_s"])
    if record["engine"] != "sim":
        return f"{elapsed} of training, measured on {record['device']}; {waited} with start-up and losses"
    kinds = {"none": "no losses", "replay": "real gradients", "surrogate": "losses by surrogate"}
    return f"{elapsed} on the simulated machine ({kinds[record['learner']]}); simulating took {waited}"


def _batches(record: Mapping[str, Any]) -> str:
    """Rows of a step of each worker; never more than there are."""
    rows = record["workload"]["rows"]
    return ", ".join(f"{worker} {min(size, rows)}" for worker, size in record["batch"].items()) or "-"


def _work(record: Mapping[str, Any]) -> str:
    updates = sum(record["updates"].values())
    words = (
        f"{counted(record['examples'], 'row')}, {counted(record['epochs'], 'epoch')}, "
        f"{counted(round(updates), 'update')}"
    )
    lost = record.get("updates_overwritten", 0)
    share_lost = f" ({share(lost / updates)})" if updates else ""
    return f"{words}; {lost:,} of them{share_lost} overwritten by copies of accelerators" if lost else words


def _epochs(epochs_s: list[float]) -> str:
    if not epochs_s:
        return "none finished"
    return f"{seconds(sum(epochs_s) / len(epochs_s))} on average over {len(epochs_s)}, evaluation included"


def _by_class(values: Mapping[str, Any], words: Any) -> str:
    return ", ".join(f"{kind} {words(values[kind])}" for kind in _CLASSES)


def _staleness(staleness: Mapping[str, Any]) -> str:
    parts = [
        f"{kind} mean {number(found['mean'])}, median {found['p50']}, 95 % {found['p95']}"
        for kind, found in staleness.items()
    ]
    return f"{'; '.join(parts)} (in updates)" if parts else "-"


def _loss(points: list[Mapping[str, Any]]) -> str:
    if not points:
        return "not computed"
    first, last = points[0], points[-1]
    test = "" if last["test"] is None else f", test {number(last['test'])}"
    score = "" if last["test_score"] is None else f", test score {share(last['test_score'])}"
    return f"{number(first['train'])} at the start, {number(last['train'])} at the end{test}{score}"
