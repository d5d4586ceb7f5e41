"""The entry point of `hetsgd`: signals first, since loading the commands takes a moment in which one may come."""

from __future__ import annotations

import os
import sys
from typing import Any

from hetsgd.studies.failure import EXIT_INTERRUPTED
from hetsgd.studies.interrupts import Ending
from hetsgd.studies.screen import mend_closed_streams


def __getattr__(name: str) -> Any:
    """`app`, the commands as a typer program, loaded when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hetsgd.studies.program import app

    return app


def main() -> None:
    """Run the command line and exit with its code; SIGTERM and SIGHUP end a run as Ctrl-C does, what there is saved."""
    mend_closed_streams()
    with Ending() as ending:
        _run(ending)


def _run(ending: Ending) -> None:
    # `package.module:object` finds modules of the working folder, after everything that is installed.
    sys.path.append(os.getcwd())
    try:
        from hetsgd.studies.program import app

        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except SystemExit as end:
        # Code that a signal fell into may have made another error of it.
        raise SystemExit(EXIT_INTERRUPTED if ending.received else end.code) from None
    finally:
        ending.close()


if __name__ == "__main__":
    main()
