"""The seam between scheduling policies, the coordinator and the two engines.

A policy is a frozen *recipe*. `begin` returns the run's mutable *schedule*, which answers two questions from a
read-only view of what has been measured: what does this worker do next, and what happens to this result. Nothing
here knows an engine, a clock, simpy, torch or numpy.

Times are seconds since the clock of the run started; versions count updates of the global model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol

Kind = Literal["cpu", "accelerator"]
LaneMode = Literal["barrier", "free"]
Read = Literal["global", "own"]
Write = Literal["in_place", "gradient", "replica", "keep"]
Rule = Literal["overwrite", "delta", "average", "gradient", "elastic", "discard"]
Event = Literal["finished", "merged", "evaluated", "failed", "timer"]

READS: tuple[Read, ...] = ("global", "own")
WRITES: tuple[Write, ...] = ("in_place", "gradient", "replica", "keep")
RULES: tuple[Rule, ...] = ("overwrite", "delta", "average", "gradient", "elastic", "discard")
MOST_ROWS = 2**31 - 1
"""Rows of a step, and steps of an assignment: what a column of the trace holds."""

EVENTS: tuple[Event, ...] = ("finished", "merged", "evaluated", "failed", "timer")


class PolicyError(ValueError):
    """A policy answered something that the contract forbids, or was asked for something it does not support."""


class Seat(NamedTuple):
    """A place that can be asked for work: a worker, or one lane of it (lane >= 0) when lanes are `free`.

    A tuple, since seats are the keys of what is looked up most often.
    """

    worker: str
    lane: int = -1

    def __str__(self) -> str:
        return self.worker if self.lane < 0 else f"{self.worker}[{self.lane}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker of the fleet: `lanes` lanes that end an assignment together, or each on its own (`free`)."""

    name: str
    kind: Kind
    lanes: int = 1
    free: bool = False

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ValueError(f"worker {self.name}: lanes must be >= 1, got {self.lanes}")
        if self.kind == "accelerator" and (self.lanes != 1 or self.free):
            raise ValueError(f"worker {self.name}: an accelerator has one lane and is not free, got {self}")

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The seats of this worker, in the order in which they are asked."""
        return tuple(Seat(self.name, lane) for lane in range(self.lanes)) if self.free else (Seat(self.name),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a recipe learns before the run: the workers, the rows of an epoch and the settings of the run."""

    members: tuple[Member, ...]
    rows: int
    learning_rate: float
    momentum: float = 0.0
    lookahead: int = 0

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("fleet: there must be at least one worker, got none")
        names = [member.name for member in self.members]
        if len(set(names)) != len(names):
            raise ValueError(f"fleet: worker names must be unique, got {names}")
        if self.rows < 1:
            raise ValueError(f"fleet: rows must be >= 1, got {self.rows}")

    @property
    def seats(self) -> tuple[Seat, ...]:
        """All seats in the order in which they are asked."""
        return tuple(seat for member in self.members for seat in member.seats)

    def member(self, name: str) -> Member:
        """The worker called `name`; KeyError when there is none."""
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a policy gives a worker.

    `batch` is rows per lane and step (for a free lane: of that lane), so a team of T lanes takes
    T x batch x steps rows. `rate` is the learning rate of the local steps. `read`: compute on the global model or
    on the worker's own persistent replica. `write`: see `WRITES` and the word list of the documentation.
    """

    batch: int
    rate: float
    steps: int = 1
    read: Read = "global"
    write: Write = "in_place"
    reason: str = ""

    def __post_init__(self) -> None:
        batch, steps = self.batch, self.steps
        # Two ways, since policies may make one for every assignment: numpy's integers are looked at more closely.
        if type(batch) is not int or type(steps) is not int:
            for name, value in (("batch", batch), ("steps", steps)):
                if isinstance(value, bool) or not hasattr(value, "__index__"):
                    raise PolicyError(f"work: {name} must be a whole number, got {value!r}")
        if not (1 <= batch <= MOST_ROWS and 1 <= steps <= MOST_ROWS):
            rule = ">= 1" if batch < 1 or steps < 1 else f"at most {MOST_ROWS}"
            raise PolicyError(f"work: batch and steps must be {rule}, got batch {batch}, steps {steps}")
        try:
            usable = self.rate >= 0.0 and math.isfinite(self.rate)
        except (TypeError, OverflowError):
            usable = False
        if not usable:
            raise PolicyError(f"work: rate must be finite and >= 0, got {self.rate!r}")
        if self.read not in READS or self.write not in WRITES:
            raise PolicyError(f"work: unknown read {self.read!r} or write {self.write!r}")
        if self.write == "gradient" and self.steps != 1:
            raise PolicyError(f"work: a gradient is of one step, got steps {self.steps}; use write='replica'")
        if self.write == "in_place" and self.read == "own":
            raise PolicyError("work: in_place writes the global model, so it cannot read 'own'; use write='keep'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Work with its rows: positions [start, stop) of the epoch's row order. `lanes` lanes share them."""

    id: int
    seat: Seat
    epoch: int
    start: int
    stop: int
    lanes: int
    work: Work

    @property
    def rows(self) -> int:
        """Rows of this assignment; fewer than lanes x batch x steps at the end of an epoch."""
        return self.stop - self.start

    def chunks(self, lane: int) -> list[tuple[int, int]]:
        """Positions [start, stop) of each step of one lane (0 <= lane < lanes).

        The rows are cut into pieces of `batch`; piece k is step k // lanes of lane k % lanes, so that a cut
        tail leaves the last lanes idle rather than giving every lane a smaller batch.

        >>> work = Work(batch=2, rate=0.1, steps=2)
        >>> a = Assign(id=0, seat=Seat("cpu"), epoch=0, start=10, stop=17, lanes=2, work=work)
        >>> a.chunks(0), a.chunks(1)
        ([(10, 12), (14, 16)], [(12, 14), (16, 17)])
        """
        batch, stop, stride = self.work.batch, self.stop, self.work.batch * self.lanes
        first = self.start + lane * batch
        return [(low, min(low + batch, stop)) for low in range(first, stop, stride)]

    @property
    def pieces(self) -> int:
        """Number of non-empty lane steps: the updates of an in-place CPU assignment."""
        return -(-self.rows // self.work.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Compute the loss of the global model as it is when this starts. `epoch` and `update`: when it was ordered."""

    id: int
    epoch: int
    update: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do now. Asked again at `until_s`, or after an event in `on` (empty: any event).

    `failed` and `evaluated` always wake. `until_s` must lie in the future.
    """

    reason: str
    until_s: float | None = None
    on: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        until_s = self.until_s
        if until_s is not None and (isinstance(until_s, bool | str) or not hasattr(until_s, "__float__")):
            raise PolicyError(f"wait: until_s must be a number of seconds or None, got {until_s!r}")
        if isinstance(self.on, str):
            raise PolicyError(f"wait: on must be a tuple of events, got {self.on!r}")
        unknown = [event for event in self.on if event not in EVENTS]
        if unknown:
            raise PolicyError(f"wait: on must name events ({', '.join(EVENTS)}), got {unknown}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """No more work for this seat in this run."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a worker reports at the end of an assignment.

    `read` and `wrote` are the engine's versions: `read` when compute started, `wrote` after the last in-place
    write (equal to `read` if nothing was written). `updates` counts updates of the global model already made (in
    place), `steps` the local steps. `stats`: statistics measured on the way, such as squared gradient norms.
    """

    id: int
    seat: Seat
    rows: int
    updates: int
    steps: int
    read: int
    wrote: int
    start_s: float
    end_s: float
    work: Work
    stats: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What happens to results. `inputs` are assignment ids, `weights` one factor for each.

    With w the global model, g_i the gradients, r_i the replicas, s_i what they were started from:

    - `gradient`: v = momentum v + sum weights_i g_i, w -= rate v. `compensate` > 0 adds
      compensate g*g*(w - w_read) to each gradient first (delay compensation, arXiv:1609.08326).
    - `overwrite`: w = r of the last input.
    - `delta`: w += rate sum weights_i (r_i - s_i).
    - `average`: w = (1 - sum weights_i) w + sum weights_i r_i.
    - `elastic`: e_i = rate (r_i - w); r_i -= e_i; w += sum weights_i e_i + momentum (w - w before the last elastic
      merge). With `at_read` the difference is taken between what the replica and the model were when it was read.
    - `discard`: dropped; takes no time and is no update.

    `write_back` names the workers whose own replica becomes the new global model when the merge lands.
    """

    inputs: tuple[int, ...]
    rule: Rule
    weights: tuple[float, ...] = ()
    rate: float = 1.0
    momentum: float = 0.0
    compensate: float = 0.0
    at_read: bool = False
    write_back: tuple[str, ...] = ()
    reason: str = ""
    id: int = -1

    def __post_init__(self) -> None:
        if not self.inputs:
            raise PolicyError("merge: inputs must name at least one result, got none")
        if len(set(self.inputs)) != len(self.inputs):
            raise PolicyError(f"merge: an input may appear once, got {self.inputs}")
        if self.rule not in RULES:
            raise PolicyError(f"merge: rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        if self.rule not in ("discard", "overwrite") and len(self.weights) != len(self.inputs):
            raise PolicyError(f"merge: one weight per input, got {len(self.weights)} for {len(self.inputs)}")
        if not all(math.isfinite(x) for x in (*self.weights, self.rate, self.momentum, self.compensate)):
            raise PolicyError(f"merge: weights, rate, momentum and compensate must be finite, got {self}")
        if not 0.0 <= self.momentum < 1.0:
            raise PolicyError(f"merge: momentum must be in [0, 1), got {self.momentum}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A worker or lane is gone. `lanes_left` > 0: the team goes on with fewer lanes (a free lane is gone for good).

    `lost`: assignments lost, filled in by the coordinator. `half_applied`: the seat was writing in place.
    """

    seat: Seat
    kind: str
    lanes_left: int = 0
    lost: tuple[int, ...] = ()
    half_applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One evaluation of the global model. `at_s` and `update` belong to the snapshot, `end_s` to the answer.

    `score` is accuracy (single label) or micro-averaged F1 (multi-label). Rates are nan when not computed;
    `computed` is False where a learner computes no losses at all (timing only).
    """

    at_s: float
    epoch: int
    update: int
    end_s: float
    train: float
    test: float = math.nan
    train_score: float = math.nan
    test_score: float = math.nan
    computed: bool = True

    @property
    def diverged(self) -> bool:
        """Whether the training loss was computed and is not a number."""
        return self.computed and not math.isfinite(self.train)


class Tally(Protocol):
    """What is known of one worker. `batch`, `last_s`, `last_rows`: of its last assignment (0 before the first).

    `lanes`: its live lanes. `asked` assignments were given, `done` reported. `updates` of the global model that
    it wrote in place or contributed to by a merge that has landed.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def lanes(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def asked(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def updates(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def last_s(self) -> float: ...
    @property
    def last_rows(self) -> int: ...
    @property
    def stats(self) -> Mapping[str, float]: ...


class View(Protocol):
    """What a policy may look at: what a real coordinator can measure, as of `now_s`. Read-only.

    `version` is the last version that was reported, `merging` the merges under way in their order, `held` the
    results that wait for a decision, `in_flight` the assignments given out and not reported.
    """

    @property
    def now_s(self) -> float: ...
    @property
    def epoch(self) -> int: ...
    @property
    def rows_left(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def workers(self) -> Mapping[str, Tally]: ...
    @property
    def in_flight(self) -> Mapping[int, Assign]: ...
    @property
    def held(self) -> Mapping[int, Result]: ...
    @property
    def merging(self) -> Sequence[Merge]: ...
    @property
    def losses(self) -> Sequence[Loss]: ...
    def staleness(self, result: Result) -> int:
        """Staleness that the result would have if it were merged now, behind the merges already under way."""
        ...


class Schedule(Protocol):
    """The mutable state of one run of a policy. Must be deterministic: no clock, no random numbers, no I/O.

    Two more methods are optional: `on_fault(view, fault) -> merges` when a worker or lane is lost, and
    `on_drained(view, why) -> merges` when everything in flight has come in (why: `epoch`, `evaluate` or `stop`),
    to close a round that cannot fill up any more.
    """

    def next(self, view: View, worker: str) -> Work | Wait:
        """What this worker (or a free lane of it) does next. Changes state only when it returns Work."""
        ...

    def on_result(self, view: View, result: Result) -> Sequence[Merge]:
        """What happens to this result: nothing yet (hold it), or merges of this and other held results."""
        ...


class Recipe(Protocol):
    """A policy with its parameters: a frozen value that `begin` turns into a schedule.

    `kinds`: the worker kinds it uses. `lane_modes`: the lane modes it supports; the other is an error.
    `max_lookahead`: assignments that may be held ahead. `reads_losses`: it needs losses during the run. One more
    is optional: `compensates = False` says that no merge sets `compensate`, which spares copies of the model.
    """

    kinds: ClassVar[tuple[Kind, ...]]
    lane_modes: ClassVar[tuple[LaneMode, ...]]
    max_lookahead: ClassVar[int]
    reads_losses: ClassVar[bool]

    def begin(self, fleet: Fleet) -> Schedule:
        """A fresh schedule for one run; PolicyError when the fleet or the settings do not suit the policy."""
        ...
