"""Build the wheel, compare it with the source folders, and smoke-test it in a clean environment.

Run by ``make wheel-check``. The clean environment holds the wheel only; its dependencies are read from the
development environment, whose editable hetsgd is not visible there (a path named in a ``.pth`` file has its
own ``.pth`` files ignored), so that every import of hetsgd is served by the wheel. That the dependencies are
all declared is checked by test_packaging.py.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("sim", "real", "models", "studies")

IMPORTS = """
import importlib, sys
from pathlib import Path
home = Path(sys.prefix).resolve()
for name in ("hetsgd", "hetsgd.models", "hetsgd.sim", "hetsgd.real", "hetsgd.studies"):
    file = Path(importlib.import_module(name).__file__).resolve()
    if not file.is_relative_to(home):
        sys.exit(f"{name} was imported from {file}, not from the wheel in {home}")
"""


def expected_files() -> set[str]:
    """Return the files that the wheel must hold, by their names in the wheel."""
    files = {"hetsgd/__init__.py", "hetsgd/py.typed"}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                files.add(f"hetsgd/{path.relative_to(ROOT).as_posix()}")
    return files


def check_contents(wheel: Path) -> None:
    """Exit with the difference if the wheel's files are not exactly the package's."""
    names = zipfile.ZipFile(wheel).namelist()
    if len(names) != len(set(names)):
        sys.exit(f"{wheel.name} holds a file twice: {sorted(n for n in set(names) if names.count(n) > 1)}")
    packed = {name for name in names if ".dist-info/" not in name and not name.endswith("/")}
    missing, surplus = expected_files() - packed, packed - expected_files()
    if missing or surplus:
        sys.exit(f"{wheel.name} lacks {sorted(missing)} and holds {sorted(surplus)} beyond the package")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        sys.exit(f"{wheel.name} does not hold the licence")


def run(command: list[str], cwd: Path) -> str:
    """Run a command outside the source tree and return what it printed; exit with its output if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} of {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, compare, install, use."""
    with tempfile.TemporaryDirectory(prefix="hetsgd wheel ") as name:
        scratch = Path(name)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", name, str(ROOT)]
        run([*pip, *build], scratch)
        (wheel,) = scratch.glob("hetsgd-*.whl")
        check_contents(wheel)

        home = scratch / "env"
        venv.create(home, with_pip=False, symlinks=True)
        python = home / "bin" / "python"
        run(
            [*pip, "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
            scratch,
        )
        run([str(python), "-I", "-c", IMPORTS], scratch)

        site = Path(run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], scratch).strip())
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        hetsgd = str(home / "bin" / "hetsgd")
        run([hetsgd, "--help"], scratch)
        for kind in ("machines", "workloads", "policies", "datasets"):
            if '"name"' not in run([hetsgd, "list", kind, "--json"], scratch):
                sys.exit(f"the installed wheel lists no {kind}: is a data file missing?")
        print(f"{wheel.name}: {len(expected_files())} files, as in the source folders; installed and used")


if __name__ == "__main__":
    main()
