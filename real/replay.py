"""The replay learner: every gradient computed with torch at exactly the model that its lane read in virtual time.

A gradient belongs to the model at `start` and takes effect at `finish` or `merge`; what others write in between is
not in it. P parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetsgd.models.contract import compensates
from hetsgd.models.data.dataset import Dataset
from hetsgd.models.gradient_noise import measured_rows, statistics
from hetsgd.models.initial import initial_parameters
from hetsgd.models.merging import Input, MergeState
from hetsgd.models.plan import Plan
from hetsgd.models.policy import Assign, Loss, Merge
from hetsgd.real.deferred_model import DeferredModel
from hetsgd.real.gradient_pieces import GradientPieces, Piece
from hetsgd.real.loss_sum import LossSum
from hetsgd.real.losses import loss_of_sums, sum_rows
from hetsgd.real.module_network import network_of
from hetsgd.real.parts import parts_of
from hetsgd.real.rows import EpochRows
from hetsgd.real.torch_threads import TorchThreads as TorchThreads

_NOTHING: Final[Mapping[str, float]] = {}


LaneReads = Literal["each", "together"]


def _half_of_memory() -> int:
    return psutil.virtual_memory().total // 2


class _Job:
    """What the learner holds for one assignment."""

    __slots__ = ("assign", "gradients", "pieces", "read", "start", "stats", "working")

    def __init__(self, assign: Assign) -> None:
        self.assign = assign
        self.working: DeferredModel | None = None  # the replica that local steps change
        self.start: DeferredModel | None = None  # what the replica was when it was read
        self.read: DeferredModel | None = None  # the global model when it was read
        self.pieces: dict[int, tuple[Piece, DeferredModel]] = {}  # by lane: begun, and the model it is of
        self.gradients: list[tuple[Piece, DeferredModel]] = []  # finished ones of a `gradient`
        self.stats: Mapping[str, float] = _NOTHING


class ReplayLearner:
    """Implements `hetsgd.models.learner.Learner` for one run.

    Lanes that read the same state are computed together, which changes no read and no write, only the order of
    additions within one product. The result is a function of plan and data set on one CPU type: torch runs on
    `threads` threads inside each call, whatever the process is set to.

    `lanes`: each piece of a CPU assignment that writes in place reads the model as it is when the piece starts
    (`each`), or all of them read the model as it is when the assignment starts (`together`: fewer products, less exact
    where lanes take several steps). `most_bytes` bounds copies of the model and gradients under way (None: half of the
    memory of this machine).

    Raises ValueError when the data set is not that of the plan's workload, CapacityError when a run needs more memory
    than `most_bytes` at once.
    """

    name = "replay"

    def __init__(
        self, plan: Plan, dataset: Dataset, *, threads: int = 1, lanes: LaneReads = "each",
        most_bytes: int | None = None,
    ) -> None:  # fmt: skip
        if lanes not in ("each", "together"):
            raise ValueError(f"replay: lanes must be each or together, got {lanes!r}")
        if most_bytes is not None and most_bytes < 1:
            raise ValueError(f"replay: most_bytes must be >= 1, got {most_bytes}")
        self._together = lanes == "together"
        self._most_bytes = _half_of_memory() if most_bytes is None else most_bytes
        self._threads = TorchThreads(threads)
        self._decay = plan.run.weight_decay
        self._stats_every = plan.run.gradient_stats
        self._compensates = compensates(plan.recipe)
        self._pieces, self._initial_P, self._merging = self._prepare(plan, dataset)
        self._global = self._new()
        self._global.flat_P.copy_(self._initial_P)
        self._own: dict[str, DeferredModel] = {}
        self._jobs: dict[int, _Job] = {}
        self._snapshot: tuple[int, DeferredModel] | None = None
        self._last_loss: tuple[int, LossSum, LossSum] | None = None

    def _prepare(self, plan: Plan, dataset: Dataset) -> tuple[GradientPieces, Tensor, MergeState]:
        """What computes, the initial model, and what merges: the parts that an ensemble has in another form."""
        workload, run = plan.workload, plan.run
        self._data = parts_of(dataset, workload)
        self._network = network_of(workload, max_batch=max(workload.rows, 1), grow=True)
        rows = EpochRows(workload.rows, seed=run.seed, order=run.order)
        initial_P = torch.from_numpy(initial_parameters(workload, run.seed))
        pieces = GradientPieces(self._network, self._data.train, rows, most_bytes=self._most_bytes)
        return pieces, initial_P, MergeState(weight_decay=run.weight_decay)

    @property
    def parameters(self) -> NDArray[Any]:
        """A copy of the global model (P,) as it is now."""
        with self._threads:
            return self._global.array.copy()

    @property
    def held_bytes(self) -> int:
        """Bytes of all copies of the model and gradients that were ever needed at once."""
        return self._pieces.held_bytes

    @property
    def held(self) -> frozenset[int]:
        """Assignments for which anything is still held: in flight, or handed in and not merged."""
        return frozenset(self._jobs)

    # -- copies of the model --------------------------------------------------------------------------------------

    def _new(self) -> DeferredModel:
        return DeferredModel(self._pieces.vector(), self._pieces)

    def _copy(self, source: DeferredModel) -> DeferredModel:
        copy = self._new()
        copy.replace(source)
        return copy

    def _hold(self, model: DeferredModel) -> DeferredModel:
        model.users += 1
        return model

    def _let_go(self, model: DeferredModel | None) -> None:
        if model is None:
            return
        model.users -= 1
        if not model.users:
            model.abandon()
            self._pieces.give(model.flat_P)

    def _global_snapshot(self) -> DeferredModel:
        """The global model as it is now, kept; one copy serves all who read the same state."""
        if self._snapshot is not None:
            version, model = self._snapshot
            if version == self._global.version and model.users:
                return self._hold(model)
        model = self._copy(self._global)
        self._snapshot = (self._global.version, model)
        return model

    def _own_of(self, worker: str) -> DeferredModel:
        own = self._own.get(worker)
        if own is None:
            own = self._own[worker] = self._new()
            own.flat_P.copy_(self._initial_P)
        return own

    def _own_to_change(self, worker: str) -> DeferredModel:
        """The worker's own replica, apart from what others remember of it."""
        own = self._own_of(worker)
        if own.users > 1:
            own.users -= 1
            own = self._own[worker] = self._copy(own)
        return own

    # -- the learner seam -----------------------------------------------------------------------------------------

    def begin(self) -> Loss:
        """The loss of the initial model."""
        return self.evaluate(at_s=0.0, epoch=0, update=0)

    def pull(self, assign: Assign) -> None:
        """The working replica becomes a copy of the global model or of the worker's own replica."""
        with self._threads:
            job = self._jobs[assign.id] = _Job(assign)
            work = assign.work
            own = self._own_of(assign.seat.worker) if work.read == "own" else None
            if work.write == "gradient" and own is None and not (self._compensates or self._stats_every):
                # Computed before the model changes, a gradient needs no copy of what it was of.
                self._begin(job, self._piece(assign, 0, 0), 0, self._global)
                return
            if work.write != "in_place":
                job.read = self._global_snapshot()
                job.start = self._hold(own or job.read)
            if work.write == "gradient":
                # Nothing steps on it, so the copy that is kept anyway serves as the working replica.
                job.working = self._hold(job.start or self._global)
            else:
                job.working = self._copy(own or self._global)

    def start(self, assign: Assign, lane: int, step: int) -> None:
        """The piece is of the working replica, or of the global model, as it is now."""
        job = self._jobs.get(assign.id)
        if job is None:
            job = self._jobs[assign.id] = _Job(assign)
        if lane in job.pieces:
            return  # an accelerator's gradient: begun when the model was pulled
        piece = self._piece(assign, lane, step)
        model = job.working or self._global
        if self._together and assign.work.write == "in_place" and job.working is None:
            with self._threads:
                model = job.read = job.read or self._global_snapshot()
        if assign.work.write == "gradient" and job.read is None and self._compensates:
            # Delay compensation would need it: of a team, the state that its first lane read.
            with self._threads:
                job.read = self._global_snapshot()
        if self._stats_every and not (lane or step):
            self._measure(job, model, piece)
        self._begin(job, piece, lane, model)

    @staticmethod
    def _piece(assign: Assign, lane: int, step: int) -> Piece:
        batch = assign.work.batch
        low = assign.start + (step * assign.lanes + lane) * batch
        return Piece((assign.epoch, low, min(low + batch, assign.stop)))

    @staticmethod
    def _begin(job: _Job, piece: Piece, lane: int, model: DeferredModel) -> None:
        """The piece is of the model as it is now."""
        model.users += 1
        model.read(piece)
        job.pieces[lane] = (piece, model)

    def _measure(self, job: _Job, model: DeferredModel, piece: Piece) -> None:
        """Gradient norms of a piece that reads the model as it is now, where the assignment is one that measures."""
        rows = measured_rows(job.assign, self._stats_every)
        if rows is not None:
            with self._threads:
                model.land()
                big_sq, small_sq = self._pieces.squared_norms(model.flat_P, piece, rows[1])
            job.stats = statistics(big_sq, small_sq, rows)

    def finish(self, assign: Assign, lane: int, step: int) -> None:
        """The piece takes effect on the model it was read from; a `gradient` waits for its merge."""
        job = self._jobs[assign.id]
        piece, model = job.pieces.pop(lane)
        if assign.work.write == "gradient":
            job.gradients.append((piece, model))
            return
        rate = assign.work.rate
        with self._threads:
            if model is job.read:
                # The piece belongs to the state that all lanes have read, and changes the model as it is now.
                model.settle()
                self._global.subtract(piece, rate, piece.rows, 1.0 - rate * self._decay)
            else:
                model.step(piece, rate, self._decay)
        self._let_go(model)

    def push(self, assign: Assign) -> None:
        """The working replica overwrites the global model."""
        working = self._jobs[assign.id].working
        if working is not None:
            with self._threads:
                self._global.take_over(working)

    def result(self, assign: Assign) -> Mapping[str, float]:
        """The assignment is handed in: a `keep` replica is the worker's own from now on."""
        write = assign.work.write
        job = self._jobs.get(assign.id)
        if write == "in_place":
            self._free(self._jobs.pop(assign.id, None))
        elif write == "keep":
            working = self._jobs[assign.id].working
            if working is not None:
                worker = assign.seat.worker
                self._let_go(self._own.get(worker))
                self._own[worker] = self._hold(working)
        return _NOTHING if job is None else job.stats

    def merge(self, merge: Merge) -> None:
        """The merge takes effect on the global model, and on the replicas that it moves or writes back to."""
        if merge.rule == "discard":
            self.drop(merge.inputs)
            return
        with self._threads:
            jobs = [self._jobs.pop(key) for key in merge.inputs]
            if merge.rule == "gradient" and not (merge.momentum or merge.compensate):
                self._subtract_gradients(merge, jobs)
            else:
                self._apply(merge, jobs)
            for worker in merge.write_back:
                self._own_to_change(worker).replace(self._global)
            for job in jobs:
                self._free(job)

    def drop(self, ids: Iterable[int]) -> None:
        """Results are discarded, or assignments lost: whatever is held for them goes."""
        for key in ids:
            self._free(self._jobs.pop(key, None))

    def evaluate(self, *, at_s: float, epoch: int, update: int) -> Loss:
        """Loss and score of the global model over all training and test rows; inf or nan where it has diverged."""
        train, test = self._losses()
        return loss_of_sums(train, test, at_s=at_s, end_s=at_s, epoch=epoch, update=update)

    def _losses(self) -> tuple[LossSum, LossSum]:
        version = self._global.version
        if self._last_loss is None or self._last_loss[0] != version:
            with self._threads:
                self._global.land()
                flat_P = self._global.flat_P
                train, test = (
                    sum_rows(self._network, flat_P, part, 0, part.rows) for part in (self._data.train, self._data.test)
                )
            self._last_loss = (version, train, test)
        return self._last_loss[1:]

    # -- merges ---------------------------------------------------------------------------------------------------

    def _subtract_gradients(self, merge: Merge, jobs: list[_Job]) -> None:
        """A gradient merge without memory: the gradients go straight into the model, without being formed."""
        beta = 1.0 - merge.rate * self._decay
        self._merging.forget_velocity()
        for job, weight in zip(jobs, merge.weights, strict=True):
            pieces = self._settled(job, merge)
            rows = sum(piece.rows for piece in pieces)
            for piece in pieces:
                self._global.subtract(piece, merge.rate * weight, rows, beta)
                beta = 1.0
            # The model owns the pieces now and releases them when it has written them.
            for _, source in job.gradients:
                self._let_go(source)
            job.gradients.clear()

    def _settled(self, job: _Job, merge: Merge) -> list[Piece]:
        """The computed pieces of a gradient."""
        if not job.gradients:
            raise ValueError(
                f"merge {merge.id}: rule 'gradient' needs results of write 'gradient', got {job.assign.work.write!r} "
                f"of assignment {job.assign.id}"
            )
        for _, source in job.gradients:
            source.settle()
        return [piece for piece, _ in job.gradients]

    def _apply(self, merge: Merge, jobs: list[_Job]) -> None:
        """Any other merge, by the rules of `hetsgd.models.merging`."""
        gradients: list[Tensor] = []
        inputs = []
        for job in jobs:
            read = job.read.array if job.read is not None else None
            if merge.rule == "gradient":
                gradient_P = self._pieces.vector()
                gradients.append(gradient_P)
                self._pieces.mean(self._settled(job, merge), gradient_P)
                inputs.append(Input(gradient=gradient_P.numpy(), read=read))
            else:
                start = job.start.array if job.start is not None else None
                inputs.append(Input(replica=self._replica_of(job, merge), start=start, read=read))
        self._merging.apply(merge, self._global.writable(), inputs)
        for gradient_P in gradients:
            self._pieces.give(gradient_P)

    def _replica_of(self, job: _Job, merge: Merge) -> NDArray[Any]:
        """The replica behind a result: what was handed in, or the worker's own as it is now (`keep`)."""
        write, working = job.assign.work.write, job.working
        if write == "keep":
            # The worker's own replica moves; the job's hold on it must not make that a copy.
            job.working = None
            self._let_go(working)
            worker = job.assign.seat.worker
            if merge.rule == "elastic":
                return self._own_to_change(worker).writable()
            return self._own_of(worker).array
        if write == "replica" and working is not None:
            return working.writable()
        raise ValueError(
            f"merge {merge.id}: rule {merge.rule!r} needs results of write 'replica' or 'keep', got {write!r} "
            f"of assignment {job.assign.id}"
        )

    def _free(self, job: _Job | None) -> None:
        """Give back all that an assignment holds."""
        if job is None:
            return
        for piece, source in (*job.pieces.values(), *job.gradients):
            source.forget(piece)
            self._pieces.release(piece)
            self._let_go(source)
        for model in (job.working, job.start, job.read):
            self._let_go(model)
