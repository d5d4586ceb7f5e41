"""The known data sets: their files, what these must hold, where they lie and how to get them; imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path

from hetsgd.models.data.folders import COMPRESSIONS, cache_folder, data_folders
from hetsgd.models.data.homes import HOMES, Home


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSet:
    """Files of one known data set, in the folder of its name; the first that exists is read.

    `rows` are the published ones, all parts together. `label` chooses the label columns where the format needs
    it, `classes` are the labels that may occur, `first_index` is what LIBSVM text counts from. `positive` makes the
    task "this class against the rest".
    """

    files: tuple[str, ...]
    rows: int
    features: int
    test_files: tuple[str, ...] = ()
    multilabel: bool = False
    label: str | None = None
    classes: tuple[str, ...] | None = None
    first_index: int | None = None
    positive: str | None = None


SAMPLE = "covtype-sample"
"""The data set that is always at hand."""

_TWO = ("-1", "1")

KNOWN: dict[str, KnownSet] = {
    "covtype": KnownSet(
        files=("covtype.csv", "covtype.data", "covtype.libsvm.binary.scale", "covtype.libsvm.binary"),
        rows=581_012,
        features=54,
        positive="2",
    ),
    "w8a": KnownSet(files=("w8a", "w8a.txt"), rows=49_749, features=300, classes=_TWO, first_index=1),
    "real-sim": KnownSet(files=("real-sim", "real-sim.txt"), rows=72_309, features=20_958, classes=_TWO, first_index=1),
    "delicious": KnownSet(
        files=("delicious-train.arff",),
        test_files=("delicious-test.arff",),
        rows=16_105,
        features=500,
        multilabel=True,
        # By count: the published XML file misspells one of the 983 labels.
        label="last 983",
    ),
    "a9a": KnownSet(
        files=("a9a", "a9a.txt"), test_files=("a9a.t",), rows=48_842, features=123, classes=_TWO, first_index=1
    ),
    "letter": KnownSet(
        files=("letter.svm",),
        rows=20_000,
        features=16,
        classes=tuple(str(letter) for letter in range(1, 27)),
        first_index=1,
    ),
    "mnist10k": KnownSet(
        files=("mnist10k.svm",),
        rows=10_000,
        features=784,
        classes=tuple(str(digit) for digit in range(10)),
        first_index=1,
    ),
    "tmc2007_500": KnownSet(
        files=("tmc2007_500.svm",),
        rows=28_596,
        features=500,
        multilabel=True,
        classes=tuple(str(label) for label in range(22)),
        first_index=1,
    ),
}
"""The known data sets that live in files; the embedded sample is none of them."""

COVTYPE_LIBSVM_COUNTS = (283_301, 297_711)
"""Rows of class 2 and of all others in LIBSVM's binary covtype.

Its labels are 1 and 2, and what has been written about them disagrees on which one is class 2: the counts tell.
"""


def find(name: str, files: tuple[str, ...]) -> Path | None:
    """The first of the files that exists, plain or compressed, in the folders that may hold data sets."""
    candidates = (
        folder / name / f"{file}{compression}"
        for folder in data_folders()
        for file in files
        for compression in COMPRESSIONS
    )
    return next((path for path in candidates if path.is_file()), None)


def download_folder(name: str) -> Path:
    """Where the files of a known data set are fetched to."""
    return cache_folder() / "data" / name


def fetch_words(name: str) -> str:
    """How a set with a public address is fetched, with addresses and checksums; empty for one without."""
    if name not in HOMES:
        return ""
    homes = " and ".join(f"{home.url} (sha256 {home.sha256 or 'not known'})" for home in HOMES[name])
    return (
        f'--set workload.download=true (in Python: load("{name}", download=True)) fetches {homes} '
        f"into {download_folder(name)}"
    )


def how_to_get(name: str) -> str:
    """What a person can do to have the full set, without naming folders: for a data set's own description."""
    if name in HOMES:
        return f'load("{name}", download=True) or workload.download=true fetches it'
    return f"put {KNOWN[name].files[0]} into the folder {name} of HETSGD_DATA"


def where_to_put(name: str) -> str:
    """The files of the full set and the folders that may hold them, for messages."""
    known = KNOWN[name]
    folders = " or ".join(str(folder / name) for folder in data_folders())
    files = " and ".join((known.files[0], *known.test_files))
    return f"put {files} (plain, .xz, .bz2 or .gz) into {folders}; HETSGD_DATA names the folder above"


def missing_message(name: str) -> str:
    """The message that a set is not at hand, with all that a person can do about it."""
    text = f"data set {name} is not on this machine: {where_to_put(name)}"
    fetched = fetch_words(name)
    return f"{text}; or {fetched}" if fetched else f"{text}; no public address of it is known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Whether a data set is at hand, and by which files; which are wanted, where they go and where they come from."""

    at_hand: bool
    files: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    homes: tuple[Home, ...] = ()


def whereabouts(name: str) -> Whereabouts:
    """Where a known data set is, or what it wants; opens no file. Without its published test part it is at hand."""
    if name == SAMPLE:
        return Whereabouts(at_hand=True)
    known = KNOWN[name]
    train = find(name, known.files)
    found = [train, find(name, known.test_files)]
    return Whereabouts(
        at_hand=train is not None,
        files=tuple(str(path) for path in found if path is not None),
        wanted=(known.files[0], *known.test_files),
        folders=tuple(str(folder / name) for folder in data_folders()),
        homes=HOMES.get(name, ()),
    )
