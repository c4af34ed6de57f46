"""`prerank`, and `python -m prerank`."""

import contextlib
import importlib.util
import os
import sys
from contextlib import suppress

from prerank.interrupts import leave_when_interrupted

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    leave_when_interrupted()
    import atexit
    import signal

    import prerank
    from prerank.errors import MissingLibraryError
    from prerank.extras import needed_by
    from prerank.waiting import sleeping_threads

    words = sys.argv[1:]
    if words == ["--version"]:  # the core alone has no parser of arguments
        print(f"prerank {prerank.__version__}")
        return
    try:
        os.getcwd()
    except FileNotFoundError:  # libraries that torch needs would end the process
        sys.exit("Error: the current folder was deleted: change to one that exists")
    os.environ.update(sleeping_threads(os.environ))  # torch has not been imported yet
    _ignore_figure_settings()
    try:
        with needed_by(" ".join(["prerank", *words[:1]])):
            from prerank.cli import app

            try:
                app(prog_name="prerank")  # where a command begins its work, interrupts raise again
            except KeyboardInterrupt:  # between its end and that of the process
                sys.exit(130)
            finally:  # an interrupt would only spoil the end of the process
                atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    except MissingLibraryError as error:
        sys.exit(f"Error: {error}")


def _ignore_figure_settings() -> None:
    """Matplotlib obeys a `matplotlibrc` in the folder where it is imported: it may start LaTeX."""
    if os.path.lexists("matplotlibrc") and importlib.util.find_spec("matplotlib") is not None:
        with contextlib.chdir(sys.prefix):
            importlib.import_module("matplotlib")  # reads its settings now


def _forget_current_folder() -> None:
    """Under `python -m`, the current folder comes first: a `torch.py` in it is not a library."""
    import prerank

    with suppress(FileNotFoundError):  # a folder that is gone was not put there
        here = os.getcwd()
        if sys.path[0] == here and os.path.dirname(prerank.__path__[0]) != here:
            del sys.path[0]


if __name__ == "__main__":
    leave_when_interrupted()
    _forget_current_folder()
    main()
