"""Interrupts before a command has begun its work: they end the process at once.

Imports take seconds, there is nothing to undo yet, and a library that is interrupted in the middle
of its import may swallow the interrupt. This module loads before all others, and loads none.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` itself takes longer to load
import os

__all__ = ["leave_when_interrupted", "restore"]


def leave_when_interrupted() -> bool:
    """Let an interrupt end the process, unless somebody else handles or ignores interrupts.

    Returns whether that is new.
    """
    return _replace(signal.default_int_handler, _leave)


def restore() -> None:
    """Let an interrupt raise `KeyboardInterrupt` again."""
    _replace(_leave, signal.default_int_handler)


def _replace(old: object, new: object) -> bool:
    if signal.getsignal(signal.SIGINT) is not old:
        return False
    try:
        signal.signal(signal.SIGINT, new)
    except ValueError:  # not in the main thread, where interrupts do not arrive
        return False
    return True


def _leave(*_: object) -> None:
    os.write(2, b"Error: interrupted before the command started\n")
    os._exit(130)
