"""`prerank`, and `python -m prerank`."""

import atexit
import os
import signal
import sys

import prerank
from prerank.errors import MissingLibraryError
from prerank.extras import needed_by

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    words = sys.argv[1:]
    if words == ["--version"]:  # the core alone has no parser of arguments
        print(f"prerank {prerank.__version__}")
        return
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else somebody wants no interrupts
        signal.signal(signal.SIGINT, _leave)
    try:
        with needed_by(" ".join(["prerank", *words[:1]])):
            from prerank.cli import app

            signal.signal(signal.SIGINT, usual)
            try:
                app(prog_name="prerank")
            finally:  # an interrupt would only spoil the end of the process
                atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    except MissingLibraryError as error:
        sys.exit(f"Error: {error}")


def _leave(*_: object) -> None:
    """End at once: imports take seconds, and there is nothing to undo yet."""
    os.write(2, b"Error: interrupted: nothing was begun\n")
    os._exit(130)


def _forget_current_folder() -> None:
    """Under `python -m`, the current folder comes first: a `torch.py` in it is not a library."""
    here = os.getcwd()
    if sys.path[0] == here and os.path.dirname(prerank.__path__[0]) != here:
        del sys.path[0]


if __name__ == "__main__":
    _forget_current_folder()
    main()
