"""Writing in one step or not at all, locks, and files that are refused before they are used."""

import ctypes
import os
import secrets
import shutil
import sys
import tempfile
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

_SMALL = 2**30  # bytes that a file may hold, however short it is
_RENAME_EXCHANGE = 2  # flag of renameat2
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
        with temporary.open("rb") as written:
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
        hold = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            folder = hold / "new"
            folder.mkdir()
            yield folder
            check(out)
            _swap(folder, target, hold / "old")
        finally:
            shutil.rmtree(hold, ignore_errors=True)


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
    with tempfile.TemporaryFile(dir=folder):
        pass


def check_size(path: Path, claimed: int) -> None:
    """Refuse a file whose header claims far more than can be in it, before that is allocated.

    Args:
        path: of the file.
        claimed: bytes that its values would take.

    Example:
        >>> check_size(Path(__file__), 2**40)
        Traceback (most recent call last):
        prerank.errors.InputError: the file claims to hold 1024.0 GiB ...
    """
    stored = path.stat().st_size
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
        with suppress(filelock.Timeout):
            lock.acquire()
        self._locks.append(lock)
        return lock.is_locked

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self._locks.pop().release()


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
