"""Where the files of the known data sets can be fetched; imports nothing heavy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a public data file lives; `sha256` (hex) is that of the file as served, None where it is not known."""

    file: str
    url: str
    sha256: str | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"{self.file}: url must start with https:// or http://, got {self.url!r}")


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_MULAN = "https://raw.githubusercontent.com/tsoumakas/mulan/master/data/multi-label"

HOMES: dict[str, tuple[Home, ...]] = {
    "covtype": (Home(file="covtype.libsvm.binary.scale.bz2", url=f"{_LIBSVM}/covtype.libsvm.binary.scale.bz2"),),
    "w8a": (Home(file="w8a", url=f"{_LIBSVM}/w8a"),),
    "real-sim": (Home(file="real-sim.bz2", url=f"{_LIBSVM}/real-sim.bz2"),),
    "delicious": (
        Home(file="delicious-train.arff", url=f"{_MULAN}/delicious/delicious-train.arff"),
        Home(file="delicious-test.arff", url=f"{_MULAN}/delicious/delicious-test.arff"),
    ),
    "a9a": (
        Home(
            file="a9a",
            url=f"{_LIBSVM}/a9a",
            sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
        ),
        Home(
            file="a9a.t",
            url=f"{_LIBSVM}/a9a.t",
            sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
        ),
    ),
}
"""Public addresses of the files, by data set."""
