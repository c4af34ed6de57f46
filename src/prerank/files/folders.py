"""Folders that take the place of others in one step, or not at all."""

import ctypes
import glob
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from prerank.files.disk import FileLock, writing

__all__ = ["LOCK", "new_folder"]

LOCK = ".lock"
"""File in a folder: whoever changes the folder, or puts another in its place, holds its lock."""

_RENAME_EXCHANGE = 2  # flag of renameat2
_HELD = "held.lock"  # in a folder that waits to take its place: held as long as its process lives
_PARTS = ("new", "old")  # what else may be in it


@contextmanager
def new_folder(out: Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """A folder beside `out` that takes its place when all is well, and is gone otherwise.

    Args:
        out: a link is followed.
        check: raises where what is at `out` must not be replaced. It is asked at the end, since
            hours may have passed: first without the lock of what is there, which would be a new
            file in a folder of others, and then with it.

    Example:
        >>> import tempfile
        >>> from prerank.errors import InputError
        >>> def refuse(path: Path) -> None:
        ...     if path.exists():
        ...         raise InputError(f"{path} is already there")
        >>> out = Path(tempfile.mkdtemp()) / "model"
        >>> with new_folder(out, refuse) as folder:
        ...     _ = (folder / "weights").write_text("1, 2")
        ...     out.exists()
        False
        >>> [file.name for file in out.iterdir()]
        ['weights']
    """
    import filelock  # noqa: F401  # it takes its time: killed meanwhile, an unmarked folder stays

    with writing(out):
        target = Path(os.path.realpath(out))
        target.parent.mkdir(parents=True, exist_ok=True)
        _recover(target)
        hold = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        hold.mkdir(mode=0o700)
        try:
            with FileLock(hold / _HELD):
                (hold / _HELD).write_bytes(_mark(hold))
                folder = hold / "new"
                folder.mkdir()
                yield folder
                while not _placed(folder, target, hold / "old", partial(check, out)):
                    pass  # another folder has come to an empty place
        finally:
            _discard(hold)


def _placed(new: Path, target: Path, old: Path, check: Callable[[], None]) -> bool:
    """Put a folder in its place, unless another one comes to an empty place at the same time."""
    check()  # what belongs to others gets no lock
    there = target.exists()
    with _locked(target) if there else nullcontext():
        check()
        try:
            _swap(new, target, old) if there else new.rename(target)
        except OSError:
            if there or not target.exists():
                raise
            return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; where nothing comes of it, no new file stays in there."""
    lock = folder / LOCK
    made = not os.path.lexists(lock)
    with FileLock(lock, wait=True):
        try:
            yield
        except BaseException:
            if made:
                lock.unlink(missing_ok=True)
            raise


def _mark(hold: Path) -> bytes:
    """What tells a folder that prerank made from one of the same name: its lock holds this."""
    return b"made by prerank: " + os.fsencode(hold.name) + b"\n"


def _recover(target: Path) -> None:
    """Take away what killed processes left of a new folder; the old one goes back if it is gone.

    A folder of such a name without a mark, or with anything else in it, is somebody's own.
    """
    for hold in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}"):
        if not _is_left(hold):
            continue
        with FileLock(hold / _HELD) as ended:
            if ended and (hold / "old").exists() and not target.exists():
                (hold / "old").rename(target)
        if ended:
            _discard(hold)


def _is_left(hold: Path) -> bool:
    """Whether a process made this folder, whether it still lives or not."""
    lock, mark = hold / _HELD, _mark(hold)
    try:
        if hold.is_symlink() or lock.is_symlink() or not lock.is_file():
            return False
        with lock.open("rb") as file:
            marked = file.read(len(mark) + 1) == mark
        return marked and {path.name for path in hold.iterdir()} <= {*_PARTS, _HELD}
    except OSError:  # a file, or gone by now
        return False


def _discard(hold: Path) -> None:
    """Remove a folder of `new_folder`, its lock last: without it, it would be somebody's own."""
    for part in _PARTS:
        shutil.rmtree(hold / part, ignore_errors=True)
    with suppress(OSError):
        if {path.name for path in hold.iterdir()} <= {_HELD}:
            (hold / _HELD).unlink(missing_ok=True)
            hold.rmdir()


def _swap(new: Path, target: Path, old: Path) -> None:
    """Put one folder in the place of another, which goes back if that fails."""
    if _exchange(new, target):
        return  # what was there is now at `new`, and goes with it
    try:
        target.rename(old)
        new.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths in one step, so that there is no moment without either.

    Returns whether the system could: Linux can, on most file systems.
    """
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    paths = (os.fsencode(path.absolute()) for path in (one, other))
    first, second = (ctypes.c_char_p(path) for path in paths)
    here = -100  # AT_FDCWD
    return bool(rename(here, first, here, second, ctypes.c_uint(_RENAME_EXCHANGE)) == 0)
