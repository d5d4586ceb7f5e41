"""Fetching from a server on this machine: whole and right, or nothing and a way out."""

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hetsgd.models.data import homes, known
from hetsgd.models.data.catalogue import load
from hetsgd.models.data.dataset import DataError, MissingDataError
from hetsgd.models.data.download import DownloadError, fetch
from hetsgd.models.data.homes import Home
from hetsgd.models.workload_file import WorkloadError, load_workload

CONTENT = b"0 1:1\n1 2:1\n" * 40_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(BaseHTTPRequestHandler):
    """Serves `files`; some paths misbehave."""

    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        content = self.files.get(self.path.rpartition("/")[2])
        if self.path == "/silent":
            time.sleep(0.5)
            return
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.end_headers()
            return
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if not self.path.startswith("/unsized"):
            self.send_header("Content-Length", str(len(content) + (7 if self.path.startswith("/cut") else 0)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test's output is its own."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(Server, "files", {"good": CONTENT, "empty": b""})
    monkeypatch.setattr(Server, "asked", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_a_good_file_arrives_whole_with_progress(server: str, tmp_path: Path) -> None:
    told: list[str] = []
    steps: list[tuple[int, int | None]] = []
    home = Home(file="data.svm", url=f"{server}/good", sha256=SHA256)
    path = fetch(home, tmp_path / "new", progress=lambda *step: steps.append(step), tell=told.append)
    assert path == tmp_path / "new" / "data.svm"
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["data.svm"]
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert [step[0] for step in steps] == sorted({step[0] for step in steps})
    assert told == [f"fetching {server}/good"]


def test_without_a_checksum_the_computed_one_is_told(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(Home(file="data.svm", url=f"{server}/moved"), tmp_path)
    fetch(Home(file="other.svm", url=f"{server}/unsized/good"), tmp_path)
    said = capsys.readouterr()
    assert f"data.svm: checksum not known, computed sha256 {SHA256}" in said.err
    assert said.out == ""
    assert (tmp_path / "other.svm").read_bytes() == CONTENT


def refused_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/file"


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("/good", {"sha256": "0" * 64}, f"its sha256 must be {'0' * 64}, got {SHA256}"),
        ("/cut/good", {}, "it must have 480,007 bytes, 480,000 came before the connection ended"),
        ("/absent", {}, "the server answers 404 Not Found"),
        ("/empty", {}, "it is empty"),
        ("/silent", {}, "the server is silent"),
        (None, {}, "no connection: .*refused"),
    ],
)
def test_what_goes_wrong_leaves_nothing_and_says_where_to_put_the_file(
    server: str, tmp_path: Path, path: str | None, options: dict[str, Any], message: str
) -> None:
    home = Home(file="data.svm", url=refused_url() if path is None else server + path, **options)
    old = tmp_path / "data.svm"
    old.write_bytes(b"what was there before")
    with pytest.raises(DownloadError, match=rf"could not be fetched \({message}") as caught:
        fetch(home, tmp_path, timeout_s=0.2)
    assert str(caught.value).endswith(f"put it at {old}")
    assert old.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [old]


def test_a_server_that_trickles_is_left(server: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="it took more than 0 s"):
        fetch(Home(file="data.svm", url=f"{server}/good"), tmp_path, longest_s=0.0)


def test_a_folder_that_cannot_be_made_is_refused(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DownloadError, match=r"could not be fetched .*put it at .*file/data.svm"):
        fetch(Home(file="data.svm", url=f"{server}/good"), tmp_path / "file")
    with pytest.raises(ValueError, match="url must start with https:// or http://, got 'file:///etc/hosts'"):
        Home(file="data.svm", url="file:///etc/hosts")


ROWS = 60
TOY = "".join(f"{1 if row % 2 else -1} {1 + row % 300}:1\n" for row in range(ROWS)).encode()


@pytest.fixture
def toy_w8a(server: str, monkeypatch: pytest.MonkeyPatch, no_sets: Path) -> Path:
    """w8a as this server has it; returns where it is fetched to."""
    Server.files["w8a"] = TOY
    entry = known.KNOWN["w8a"]
    monkeypatch.setitem(known.KNOWN, "w8a", known.KnownSet(files=entry.files, rows=ROWS, features=300))
    monkeypatch.setitem(homes.HOMES, "w8a", (Home(file="w8a", url=f"{server}/w8a"),))
    return no_sets / "data" / "w8a"


def test_a_known_set_is_fetched_once_and_only_on_request(toy_w8a: Path) -> None:
    with pytest.raises(MissingDataError, match="data set w8a is not on this machine"):
        load("w8a")
    assert Server.asked == []
    seen: list[int] = []
    first = load("w8a", download=True, test_fraction=0, progress=lambda done, total: seen.append(done))
    assert (first.rows, seen[-1], Server.asked) == (ROWS, len(TOY), ["/w8a"])
    assert [path.name for path in toy_w8a.iterdir()] == ["w8a"]
    again = load("w8a", download=True, test_fraction=0)
    assert (again.rows, Server.asked) == (ROWS, ["/w8a"])
    assert load("w8a").source.startswith("w8a: 60 rows x 300 features")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TOY + b"1 1:1\n", "60 rows are published, got 61"),
        (b"<html>sign in to the network first</html>", "w8a: must hold rows below the header, found none"),
    ],
)
def test_another_content_than_the_published_set_is_not_kept(toy_w8a: Path, content: bytes, message: str) -> None:
    Server.files["w8a"] = content
    with pytest.raises(DataError, match=rf"is not the published set \(.*{message}.*nothing was kept\. put w8a"):
        load("w8a", download=True)
    assert list(toy_w8a.iterdir()) == []


def test_without_a_network_the_message_names_the_place(toy_w8a: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(homes.HOMES, "w8a", (Home(file="w8a", url=refused_url()),))
    with pytest.raises(DownloadError, match="no connection") as caught:
        load("w8a", download=True)
    assert str(caught.value).endswith(f"put it at {toy_w8a / 'w8a'}")


@pytest.mark.parametrize(
    ("path", "sha256", "says"),
    [
        ("w8a", hashlib.sha256(TOY).hexdigest(), None),
        ("w8a", "0" * 64, "its sha256 must be 000"),
        ("cut/w8a", None, "came before the connection ended"),
    ],
)
def test_a_workload_fetches_its_data_where_it_is_asked_to(
    toy_w8a: Path, server: str, monkeypatch: pytest.MonkeyPatch, path: str, sha256: str | None, says: str | None
) -> None:
    monkeypatch.setitem(homes.HOMES, "w8a", (Home(file="w8a", url=f"{server}/{path}", sha256=sha256),))
    assert load_workload("w8a", data=False).workload.rows == 49_749  # timing needs the shape alone
    with pytest.raises(WorkloadError) as missing:
        load_workload("w8a")
    for part in (str(toy_w8a), f"{server}/{path}", sha256 or "not known", "--set workload.download=true"):
        assert part in str(missing.value)
    asked = {"download": "true", "test_fraction": "0"}  # an override of the rows makes the file's shape void
    if says is None:
        assert load_workload("w8a", asked).workload.rows == ROWS
        return
    with pytest.raises(WorkloadError, match=f"--set: workload.test_fraction, workload.download: .*{says}"):
        load_workload("w8a", asked)
    assert list(toy_w8a.iterdir()) == []


def test_fetching_is_for_known_sets_with_an_address(no_sets: Path, tmp_path: Path) -> None:
    assert load("covtype-sample", download=True).rows == 46_481
    with pytest.raises(MissingDataError, match=r"no public address of letter is known: put letter.svm"):
        load("letter", download=True)
    with pytest.raises(DataError, match="download must be left out for a file"):
        load(tmp_path / "a.csv", download=True)


def test_the_homes_are_those_of_known_sets_and_files() -> None:
    assert {"covtype", "w8a", "real-sim", "delicious"} <= set(homes.HOMES) <= set(known.KNOWN)
    for name, found in homes.HOMES.items():
        entry = known.KNOWN[name]
        files = entry.files + entry.test_files
        assert all(home.file in files or Path(home.file).stem in files for home in found)
        assert all(home.url.startswith("https://") for home in found)
        assert all(home.sha256 is None or len(home.sha256) == 64 for home in found)
