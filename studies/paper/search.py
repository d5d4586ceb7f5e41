"""The settings that the paper does not publish: a search for those that explain its figures, one for each server.

Every setting of a grid is simulated (timing only) on covtype and w8a; those whose every figure lies within its bar
form the region that is reported. They are tried on the other data sets too, where nothing is published here: how far
they differ there is how little is known. One of them stands for the region: near its middle, with small errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from hetsgd.studies.case import source_digest
from hetsgd.studies.failure import RunFailed
from hetsgd.studies.paper.bars import EPOCH_BAR, ROWS_FACTOR, SHARE_BAR, Check, checks, cpu_rows_ratio, misfit
from hetsgd.studies.paper.implementation import SETTINGS, Setting, Start
from hetsgd.studies.paper.prediction import predict
from hetsgd.studies.paper.published import DATASETS
from hetsgd.studies.pool import run_all

BATCHES: Final = (2048, 4096, 8192, 16384)
SEARCHED: Final = ("covtype", "w8a")
_CHUNK: Final = 6
# A setting that is this far off on the small data set is not tried on the large one.
_HOPELESS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting with its errors by figure, and the worst in units of its bar.

    `others`: data set, epoch in seconds and CPU share where nothing is published, of settings within all bars.
    """

    setting: Setting
    errors: tuple[tuple[str, float], ...]
    worst: float
    others: tuple[tuple[str, float, float], ...] = ()

    @property
    def within(self) -> bool:
        """Whether every figure lies within its bar."""
        return self.worst <= 1.0

    def share_error(self) -> float:
        """The largest error of a share of updates."""
        return max((abs(error) for label, error in self.errors if "cpu_update_share" in label), default=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What was tried for one server: the GPU batches of the fixed algorithms, and Adaptive's settings.

    `tried` settings in all; `settings` are those that were not hopeless.
    """

    gpu: str
    batches: tuple[Tried, ...]
    settings: tuple[Tried, ...]
    tried: int

    @property
    def best(self) -> Setting:
        """What stands for the server: the batch with the smallest worst error, and a setting within all bars.

        That with the smallest sum of its worst error and its mean distance from the medians of the region on the
        other data sets, both in units of the bars; of equal ones the first. Where no setting is within all bars, the
        one with the smallest worst error.
        """
        batch = min(self.batches, key=lambda tried: tried.worst).setting.batch
        inside = self.within
        if not inside:
            return replace(min(self.settings, key=lambda tried: tried.worst).setting, batch=batch)
        middles = [
            (median(tried.others[i][1] for tried in inside), median(tried.others[i][2] for tried in inside))
            for i in range(len(inside[0].others))
        ]

        def cost(tried: Tried) -> float:
            apart = [
                abs(math.log(epoch_s / middle_s)) / EPOCH_BAR + abs(share - middle) / SHARE_BAR
                for (_, epoch_s, share), (middle_s, middle) in zip(tried.others, middles, strict=True)
            ]
            return tried.worst + math.fsum(apart) / (2 * len(apart))

        return replace(min(inside, key=cost).setting, batch=batch)

    @property
    def within(self) -> tuple[Tried, ...]:
        """The settings of Adaptive all of whose figures lie within their bars."""
        return tuple(tried for tried in self.settings if tried.within)


def grid(gpu: str, *, quick: bool = False) -> list[Setting]:
    """The settings of Adaptive that are tried for a server; `quick`: some of them, around the shipped one."""
    shipped = SETTINGS[gpu]
    lowers: Sequence[int] = (256, 384) if quick else (128, 192, 256, 384)
    uppers: Sequence[int] = (384, 512) if quick else (384, 512, shipped.batch)
    betas: Sequence[float] = (1.0,) if quick else (1.0, 0.5)
    # Up to what the smallest data set has rows for: a team of 64 takes 12,288 of 12,920 at 192 each.
    cpu_uppers: Sequence[int] = (32, 192) if quick else (32, 64, 128, 192)
    counts: tuple[Literal["epoch", "run"], ...] = ("epoch", "run")
    starts: tuple[Start, ...] = ("hogbatch", "balanced")
    return [
        Setting(batch=shipped.batch, lower=lower, upper=upper, cpu_upper=cpu, beta=beta, counts=of, start=start)
        for lower, upper, cpu, beta, of, start in product(lowers, uppers, cpu_uppers, betas, counts, starts)
    ]


def try_batch(gpu: str, setting: Setting) -> Tried:
    """The fixed algorithms at a GPU batch."""
    found: list[Check] = []
    ratios = []
    for dataset in SEARCHED:
        for algorithm in ("gpu", "cpu+gpu"):
            predicted = predict(gpu, dataset, algorithm, setting)
            found += checks(gpu, dataset, algorithm, predicted)
            ratio = cpu_rows_ratio(gpu, dataset, predicted) if algorithm == "cpu+gpu" else None
            if ratio is not None:
                ratios.append((f"{dataset}, cpu+gpu, CPU rows/s", ratio - 1.0))
    factors = [abs(math.log1p(error)) / math.log(ROWS_FACTOR) for _, error in ratios]
    return Tried(setting=setting, errors=(*_labelled(found), *ratios), worst=max([misfit(found), *factors]))


def try_setting(gpu: str, setting: Setting) -> Tried | None:
    """Adaptive with a setting; None where it is hopeless."""
    small = checks(gpu, "w8a", "adaptive", predict(gpu, "w8a", "adaptive", setting))
    if misfit(small) > _HOPELESS:
        return None
    found = small + checks(gpu, "covtype", "adaptive", predict(gpu, "covtype", "adaptive", setting))
    worst = misfit(found)
    others = []
    for dataset in DATASETS if worst <= 1.0 else ():
        if dataset not in SEARCHED:
            predicted = predict(gpu, dataset, "adaptive", setting)
            others.append((dataset, predicted.epoch_s, predicted.cpu_share))
    return Tried(setting=setting, errors=_labelled(found), worst=worst, others=tuple(others))


def _labelled(found: Sequence[Check]) -> tuple[tuple[str, float], ...]:
    return tuple((f"{c.key.dataset}, {c.key.algorithm}, {c.key.metric}", c.error) for c in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Work for one process: settings of one server; `fixed`: only their batch counts."""

    gpu: str
    fixed: bool
    settings: tuple[Setting, ...]

    @property
    def name(self) -> str:
        return json.dumps([self.gpu, self.fixed, [asdict(setting) for setting in self.settings]])


def _work(chunk: _Chunk) -> list[Tried | None]:
    """Try the settings of a chunk; called in a child process."""
    attempt = try_batch if chunk.fixed else try_setting
    return [attempt(chunk.gpu, setting) for setting in chunk.settings]


def search(
    folder: Path, gpus: Sequence[str], *, workers: int, quick: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> dict[str, Region]:  # fmt: skip
    """Try all settings, in parallel; what was tried before with the same model is taken from `folder`.

    Raises RunFailed where a simulation fails.
    """
    chunks = [chunk for gpu in gpus for chunk in _chunks(gpu, quick)]
    store = _Store(folder / "search.json")
    todo = [chunk for chunk in chunks if chunk.name not in store.known]
    for done, outcome in enumerate(run_all(_work, todo, workers), 1):
        if outcome.error:
            raise RunFailed(f"search on {todo[outcome.index].gpu}: {outcome.error}")
        store.add(todo[outcome.index].name, outcome.value)
        progress(done / len(todo))
    found = {chunk: store.known[chunk.name] for chunk in chunks}
    return {
        gpu: Region(
            gpu=gpu, batches=_of(found, gpu, True), settings=_of(found, gpu, False), tried=len(grid(gpu, quick=quick))
        )
        for gpu in gpus
    }


def _chunks(gpu: str, quick: bool) -> Iterator[_Chunk]:
    for batch in BATCHES:
        yield _Chunk(gpu=gpu, fixed=True, settings=(replace(SETTINGS[gpu], batch=batch),))
    settings = grid(gpu, quick=quick)
    for first in range(0, len(settings), _CHUNK):
        yield _Chunk(gpu=gpu, fixed=False, settings=tuple(settings[first : first + _CHUNK]))


def _of(found: Mapping[_Chunk, Sequence[Tried | None]], gpu: str, fixed: bool) -> tuple[Tried, ...]:
    own = [tried for chunk, each in found.items() if chunk.gpu == gpu and chunk.fixed == fixed for tried in each]
    return tuple(tried for tried in own if tried is not None)


class _Store:
    """What was tried, in a file of the study's folder; of another version of the model nothing is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = f"{source_digest()} {_digest_here()}"
        self.known: dict[str, list[Tried | None]] = {}
        if path.is_file():
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                content = {}
            if content.get("model") == self._digest:
                self.known = {name: [_tried(item) for item in items] for name, items in content["tried"].items()}

    def add(self, name: str, tried: list[Tried | None]) -> None:
        """Keep what a chunk brought, at once."""
        self.known[name] = tried
        entries = {key: [None if item is None else asdict(item) for item in items] for key, items in self.known.items()}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps({"model": self._digest, "tried": entries}), encoding="utf-8")
        part.replace(self._path)


def _digest_here() -> str:
    """What this folder adds to the model: how cells are planned and measured, and what they are held against."""
    import hashlib

    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.suffix in (".py", ".csv"):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _tried(item: dict[str, Any] | None) -> Tried | None:
    if item is None:
        return None
    errors = tuple((str(label), float(error)) for label, error in item["errors"])
    others = tuple((str(dataset), float(epoch_s), float(share)) for dataset, epoch_s, share in item["others"])
    return Tried(setting=Setting(**item["setting"]), errors=errors, worst=float(item["worst"]), others=others)
