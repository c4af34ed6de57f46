"""Writing in one step or not at all, locks, and files that are refused before they are used."""

import ctypes
import glob
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prerank.errors import InputError

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = [
    "FileLock",
    "check_file",
    "check_place",
    "check_size",
    "check_within",
    "new_folder",
    "write_atomically",
    "writing",
]

_PROBE = 2**20  # bytes: a model with its report has about as many
_SMALL = 2**30  # bytes that a file may hold, however short it is
_RENAME_EXCHANGE = 2  # flag of renameat2
_JUST_MADE = 1.0  # seconds
_HELD = "held.lock"  # in a folder that waits to take its place: held as long as its process lives
_PARTS = ("new", "old")  # what else may be in it
_PACKED = 1032  # the most bytes that deflate packs into one


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[Path], object], *, keep: bool = False
) -> Path:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step.

    Whatever happens, `path` holds either its old content or all of the new one.

    Args:
        path: of the file.
        write: is given the path of the temporary file.
        keep: leave a file that is there as it is: of several writers, the first one wins.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InputError(f"{target} is not a file: it is not replaced")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    # Not by `tempfile`, whose files are private: the kernel applies the umask to these rights.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    rights = os.fstat(handle).st_mode & 0o777
    os.close(handle)
    try:
        write(temporary)
        temporary.chmod(rights)  # a library may have put a private file in its place
        with temporary.open("r+b") as written:  # Windows writes out what is open for writing only
            os.fsync(written.fileno())
        if keep:
            with suppress(OSError):  # of one that is there, or a file system without links
                os.link(temporary, target)
        if not keep or not target.exists():
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file where the file system refuses it, and take back folders made on its way."""
    missing: list[Path] = []
    try:
        os.fsencode(path)
        if "\0" in str(path):
            raise ValueError("no path holds null characters")
    except ValueError as error:
        raise InputError(f"cannot write {str(path)!r}: {error}") from error
    try:
        missing = [folder for folder in path.absolute().parents if not folder.exists()]
        yield
    except BaseException as error:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot write {path}: {reason}") from error
        raise


@contextmanager
def new_folder(out: Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """A folder beside `out` that takes its place when all is well, and is gone otherwise.

    Args:
        out: a link is followed.
        check: raises where what is at `out` must not be replaced. It is asked at the end: hours may
            have passed.

    Example:
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
    target = out.resolve()
    with writing(out):
        target.parent.mkdir(parents=True, exist_ok=True)
        _recover(target)
        hold = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        hold.mkdir(mode=0o700)
        try:
            with FileLock(hold / _HELD):
                folder = hold / "new"
                folder.mkdir()
                yield folder
                check(out)
                _swap(folder, target, hold / "old")
        finally:
            _discard(hold)


def check_file(out: Path, *sources: Path) -> None:
    """Refuse a file to write that cannot be, or that is read as well.

    Args:
        out: the file.
        sources: files that are read.
    """
    with writing(out):
        if out.exists() and not out.is_file():
            raise InputError(f"{out} is not a file: it is not replaced")
        for source in sources:
            if out.exists() and source.exists() and out.samefile(source):
                raise InputError(f"{out} is read by this command: choose another file to write")
        check_place(out)


def check_place(path: Path) -> None:
    """Raise what the file system says of a new file beside a path, or where that would be made."""
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(_PROBE))  # a full disk takes new files, but no content
        probe.flush()


def check_size(path: Path, claimed: int, stored: int | None = None) -> None:
    """Refuse a file whose header claims far more than can be in it, before that is allocated.

    Args:
        path: of the file.
        claimed: bytes that its values would take.
        stored: bytes that it has; those of the file by default.

    Example:
        >>> check_size(Path(__file__), 2**40)
        Traceback (most recent call last):
        prerank.errors.InputError: the file claims to hold 1024.0 GiB ...
    """
    stored = path.stat().st_size if stored is None else stored
    if claimed > max(_SMALL, _PACKED * stored):
        raise InputError(
            f"the file claims to hold {claimed / 2**30:.1f} GiB and has {stored} bytes: it is "
            "corrupt or malicious"
        )


def check_within(path: Path, folder: Path) -> Path:
    """Refuse a path that a link leads out of its folder, or what is no file; else return it."""
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # no text for the system, links in a ring
        raise InputError(f"cannot read {path}: {error}") from error
    if not inside:
        raise InputError(
            f"{path} is a link that leads out of {folder}: put a copy in its place, or remove it"
        )
    if path.exists() and not (path.is_file() or path.is_dir()):  # to read a pipe could take forever
        raise InputError(f"{path} is neither a file nor a folder: remove it")
    return path


class FileLock:
    """A lock that is free again when its block or its process ends, however that ends.

    Args:
        path: of a file that is made for the purpose, and stays.
        wait: until another holder has released it.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "unit.lock"
        >>> with FileLock(path) as first, FileLock(path) as second:
        ...     first, second
        (True, False)
    """

    def __init__(self, path: str | os.PathLike[str], *, wait: bool = False) -> None:
        self._path = Path(path)
        self._wait = wait
        self._locks: list[BaseFileLock] = []  # of the blocks that are open

    def __enter__(self) -> bool:
        """Take the lock and return whether it is held."""
        import filelock

        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A soft lock would outlive a process that is killed.
        lock = filelock.FileLock(self._path, blocking=self._wait, fallback_to_soft=False)
        self._locks.append(lock)
        try:
            with suppress(filelock.Timeout):
                lock.acquire()
            return lock.is_locked
        except BaseException:  # an interrupt: the block does not begin, nor end
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Release it."""
        lock = self._locks.pop()
        try:
            lock.release()
        finally:
            lock.release(force=True)  # nothing is left to do, but where an interrupt came before


def _recover(target: Path) -> None:
    """Take away what killed processes left of a new folder; the old one goes back if it is gone.

    A folder of such a name that holds anything else, or has no lock, is somebody's own.
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
    """Whether a process left this folder; one that is empty goes at once.

    That one was just made, or its process was killed as it made or removed it.
    """
    try:
        inside = {path.name for path in hold.iterdir()}
        if not inside and time.time() - hold.stat().st_mtime > _JUST_MADE:
            hold.rmdir()
        locked = (hold / _HELD).is_file() and not hold.is_symlink()
    except OSError:  # a file, or gone by now
        return False
    return locked and inside <= {*_PARTS, _HELD}


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
    if target.exists() and _exchange(new, target):
        return  # what was there is now at `new`, and goes with it
    try:
        if target.exists():
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
