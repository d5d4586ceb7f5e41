"""The commands of `hetsgd` and how they end.

Results go to stdout, progress and log to stderr. Exit codes: 0 done, 2 bad input, 3 the run failed, 130
interrupted with everything so far saved.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperGroup

from hetsgd import __version__
from hetsgd.models.foreign import told
from hetsgd.studies.commands import (
    calibrate,
    compare,
    listing,
    paper,
    pilots,
    simulate,
    study,
    trace,
    train,
    validate,
)
from hetsgd.studies.failure import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RUN_FAILED,
    BadInput,
    Interrupted,
    NotSaved,
    RunFailed,
)
from hetsgd.studies.screen import discard_stdout, say, showing

# The parser's own errors (unknown option, missing value); typer brings its parser under different names.
_UsageProblem: Final[type[Exception]] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException" and issubclass(kind, Exception)
)

_HELP: Final = """Which scheduling policy trains fastest on a CPU and its accelerators: simulated and real.

Start here:

\b
  hetsgd list policies
  hetsgd simulate --machine aws-p3.16xlarge --policy adaptive-hogbatch
  hetsgd train --policy hogbatch --epochs 3
  hetsgd study run studies/quickstart.toml --out out/quickstart
"""


class Commands(TyperGroup):
    """The group of all commands; ends the process with the exit code and the one message that the error asks for."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command line and exit with its code."""
        sys.exit(self._code(*args, **extra))

    def _code(self, *args: Any, **extra: Any) -> int:
        options: dict[str, Any] = {**extra, "standalone_mode": False}
        try:
            code = super().main(*args, **options)
            with showing():  # what is still in the buffer of stdout
                pass
        except BadInput as error:
            say(f"hetsgd: {error}")
            return EXIT_BAD_INPUT
        except RunFailed as error:
            say(f"hetsgd: the run failed: {error}")
            return EXIT_RUN_FAILED
        except NotSaved as error:
            say(f"hetsgd: not saved: {error}")
            return EXIT_RUN_FAILED
        except Interrupted as error:
            say(f"hetsgd: interrupted; {error}")
            return EXIT_INTERRUPTED
        except (KeyboardInterrupt, typer.Abort):
            code = EXIT_INTERRUPTED
        except SystemExit as error:
            if isinstance(error.__context__, OSError) and error.__context__.errno == errno.EPIPE:
                # The parser's answer to a reader of stdout that has gone away, and has what it wanted.
                discard_stdout()
                return EXIT_DONE
            say(f"hetsgd: the run failed: something that it called ended the program ({told(error)})")
            return EXIT_RUN_FAILED
        except _UsageProblem as error:
            return _usage(error, extra.get("args") or sys.argv[1:])
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - a fault of ours must still end with code 3
            if os.environ.get("HETSGD_TRACEBACK"):
                traceback.print_exc()
            hint = "set HETSGD_TRACEBACK=1 to see where"
            say(f"hetsgd: the run failed: {told(error)} ({hint})")
            return EXIT_RUN_FAILED
        if code == EXIT_INTERRUPTED:  # the parser's answer to a KeyboardInterrupt that nobody had anything to add to
            say("hetsgd: interrupted before there was a result to keep")
        return code if isinstance(code, int) else EXIT_DONE


def _usage(error: BaseException, words: Sequence[str]) -> int:
    message = getattr(error, "format_message", lambda: str(error))()
    for option in getattr(getattr(error, "param", None), "opts", ()):
        if option in words[:-1]:
            # The parser says which rule is broken, not always by what.
            value = words[list(words).index(option) + 1]
            message = message if repr(value) in message else f"{message}, got {value!r}"
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "hetsgd"
    if message:
        say(f"hetsgd: {' '.join(message.split())} (see: {path} --help)")
    elif context is not None:
        say(context.get_help())
    return EXIT_BAD_INPUT


app = typer.Typer(
    cls=Commands, help=_HELP, no_args_is_help=True, add_completion=False, rich_markup_mode="rich",
    pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        print(f"hetsgd {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Options of the program itself; the help of the group is the module's."""


listing.add(app)
simulate.add(app)
train.add(app)
validate.add(app)
calibrate.add(app)
pilots.add(app)
study.add(app)
compare.add(app)
trace.add(app)
paper.add(app)
