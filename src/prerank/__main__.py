"""`prerank`, and `python -m prerank`."""

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else somebody wants no interrupts
        signal.signal(signal.SIGINT, _leave)
    from prerank.cli import app

    signal.signal(signal.SIGINT, usual)
    app(prog_name="prerank")


def _leave(*_: object) -> None:
    """End at once: imports take seconds, and there is nothing to undo yet."""
    os.write(2, b"Error: interrupted: nothing was begun\n")
    os._exit(130)


if __name__ == "__main__":
    main()
