"""Data of every format, from a workload file to a run on both engines: the same points learn the same."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from hetsgd.studies import resolve
from hetsgd.studies.main import app

ROWS: Final = 60
A = np.arange(ROWS) % 7 + 0.5
B = (np.arange(ROWS) * 3) % 5 - 2.0
KIND = (A > 3).astype(int)
MARKS = np.column_stack([KIND, np.ones(ROWS, int), np.arange(ROWS) % 2])
WORDS = np.array(["low", "high"])
SIMULATED = ("--machine", "ucmerced-k80", "--policy", "hogbatch", "--set", "policy.accelerator_batch=16",
             "--set", "machine.cpu_lanes=2", "--set", "run.learning_rate=0.1", "--updates", "30", "--json")  # fmt: skip


@pytest.fixture(autouse=True)
def told_anew() -> None:
    """A text is told once in a process, and every test is to see it."""
    resolve._tell.cache_clear()


def libsvm(labels: list[str], first: int = 1) -> bytes:
    rows = zip(labels, A, B, strict=True)
    body = "".join(f"{label} {first}:{a!r} {first + 3}:{b!r} # a gap\n\n" for label, a, b in rows)
    return ("# points\n" + body.replace("np.float64(", "").replace(")", "")).encode()


def csv() -> bytes:
    return ("a,b,kind\n" + "".join(f"{a},{b},{word}\n" for a, b, word in zip(A, B, WORDS[KIND], strict=True))).encode()


def arff(sparse: bool) -> bytes:
    head = "@relation points\n@attribute a numeric\n@attribute b numeric\n"
    head += "".join(f"@attribute m{number} {{0,1}}\n" for number in range(3)) + "@data\n"
    lines = []
    for a, b, marks in zip(A, B, MARKS, strict=True):
        cells = [a, b, *marks]
        pairs = ",".join(f"{place} {cell}" for place, cell in enumerate(cells) if cell)
        lines.append(f"{{{pairs}}}" if sparse else ",".join(map(str, cells)))
    return (head + "\n".join(lines) + "\n").encode()


def npz(path: Path) -> None:
    np.savez(path, x=np.column_stack([A, B]), y=KIND)


def parquet(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": A, "b": B, "kind": WORDS[KIND]}), path)


SEVERAL = [",".join(str(place) for place in np.flatnonzero(row)) for row in MARKS]
XML = b'<labels><label name="m0"/><label name="m1"/><label name="m2"/></labels>'
# name of the file, its content, keys of the workload, features, outputs, what the balance says
CASES: Final[dict[str, tuple[str, Any, str, int, int, str]]] = {
    "libsvm": ("p.svm", libsvm([f"{2 * kind - 1:+d}" for kind in KIND]), "", 4, 2, "-1: "),
    "libsvm from 0, declared": ("p.svm", libsvm(list(map(str, KIND)), 0), "first_index = 0\nclasses = 2", 4, 2, "0: "),
    "libsvm, many classes": ("p.svm", libsvm([str(int(a)) for a in A]), "features = 9", 9, 7, "6: "),
    "libsvm, several labels": ("p.svm", libsvm(SEVERAL), "multilabel = true", 4, 3, "labels: 3"),
    "libsvm.bz2": ("p.svm.bz2", bz2.compress(libsvm(list(map(str, KIND)))), "", 4, 2, "0: "),
    "libsvm.gz without a suffix": ("p.gz", gzip.compress(libsvm(list(map(str, KIND)))), "", 4, 2, "0: "),
    "csv": ("p.csv", csv(), 'label = "kind"', 2, 2, "high: "),
    "csv.xz": ("p.csv.xz", lzma.compress(csv()), "", 2, 2, "high: "),
    "arff, labels by count": ("p.arff", arff(sparse=False), 'label = "last 3"', 2, 3, "labels: 3"),
    "arff, labels by XML": ("p.arff", arff(sparse=False), 'label = "p.xml"', 2, 3, "labels: 3"),
    "arff, sparse": ("p.arff", arff(sparse=True), 'label = "last 3"', 2, 3, "labels: 3"),
    "npz": ("p.npz", npz, "", 2, 2, "1: "),
    "parquet": ("p.parquet", parquet, "", 2, 2, "high: "),
}  # fmt: skip


def put(folder: Path, name: str, content: bytes | Callable[[Path], None], keys: str) -> Path:
    """The data file, an XML file with label names and the workload file beside it."""
    (folder / "p.xml").write_bytes(XML)
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        content(folder / name)
    path = folder / "own.toml"
    path.write_text(f'dataset = "{name}"\nhidden = [8]\nactivation = "tanh"\n{keys}\n', encoding="utf-8")
    return path


def run(*words: str) -> tuple[dict[str, Any], str]:
    """The record that a command prints, and its log."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.stderr
    record: dict[str, Any] = json.loads(result.stdout)
    return record, result.stderr


@pytest.mark.parametrize("case", CASES)
def test_data_of_every_format_learn_in_the_simulator(case: str, tmp_path: Path) -> None:
    name, content, keys, features, outputs, balance = CASES[case]
    workload = str(put(tmp_path, name, content, keys))
    record, log = run("simulate", "--workload", workload, *SIMULATED)
    assert (record["workload"]["rows"], record["workload"]["test_rows"]) == (48, 12)
    assert (record["workload"]["features"], record["workload"]["outputs"]) == (features, outputs)
    assert record["loss"][-1]["train"] < record["loss"][0]["train"]
    assert balance in log


@pytest.mark.parametrize("case", ["libsvm, several labels", "parquet"])
def test_data_of_ones_own_learn_for_real(case: str, tmp_path: Path) -> None:
    name, content, keys, *_, balance = CASES[case]
    workload = str(put(tmp_path, name, content, keys))
    record, log = run(
        "train", "--workload", workload, "--policy", "hogwild", "--cpu-lanes", "1", "--accelerators", "none",
        "--set", "run.learning_rate=0.1", "--updates", "100", "--json",
    )  # fmt: skip
    assert record["loss"][-1]["train"] < record["loss"][0]["train"]
    assert balance in log


@pytest.mark.parametrize(
    ("name", "content", "keys", "says"),
    [
        ("p.svm", b"0 1:1\n1 5:1\n" * 9, "features = 4", "p.svm, line 2: an index must be <= 4 (4 features"),
        ("p.svm", b"0 1:1\n7 5:1\n" * 9, "classes = 2", "p.svm, line 2: a label must be one of 0, 1, got 7"),
        ("p.csv", b"a,kind\n1,x\n2,y\n" * 1, 'label = "knd"', "label column 'knd' is not there (did you mean 'kind'?)"),
        ("p.csv", b"1,x\n2,x\n", "", "at least two classes are needed, every row has label x"),
        ("p.csv", b"a,kind\n", "", "p.csv: must hold rows below the header"),
        ("p.csv", b"", "", "p.csv: must hold rows, the file is empty"),
        ("p.csv", b"1,x\nnan,y\n", "", "p.csv, line 2, column 1: "),
        ("p.csv", b"1,2,x\n3,4,y\n" * 9, "features = 3", "must have the declared 3 features, got 2"),
        ("p.csv", b"1,2,x\n3,4,y\n" * 9, "outputs = 3", "outputs: must be that of the data, 2, got 3"),
        ("p.csv", b"1,2,x\n3,4,y\n" * 9, "rows = 99", "rows: must be that of the data, 14, got 99"),
        ("p.npz", b"PK\x03\x04garbage", "", "p.npz: must be a whole .npz archive"),
        ("p.csv.bz2", bz2.compress(csv()) + b"!", "", "p.csv.bz2: must be a whole .bz2 file"),
    ],
)  # fmt: skip
def test_bad_data_end_with_code_2_and_one_message(
    name: str, content: bytes, keys: str, says: str, tmp_path: Path
) -> None:
    workload = put(tmp_path, name, content, keys)
    result = CliRunner().invoke(app, ["simulate", "--workload", str(workload), *SIMULATED])
    assert result.exit_code == 2
    assert says in result.stderr
    assert str(workload) in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
