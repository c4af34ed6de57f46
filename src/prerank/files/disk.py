"""Writing in one step or not at all, locks, and files that are refused before they are used."""

import errno
import os
import secrets
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
    "as_path",
    "check_file",
    "check_not_mounted",
    "check_place",
    "check_size",
    "check_within",
    "write_atomically",
    "writing",
]

_PROBE = 2**20  # bytes: a model with its report has about as many
_SMALL = 2**30  # bytes that a file may hold, however short it is
_SHOWN = 100  # characters of a path that is too long
_PACKED = 1032  # the most bytes that deflate packs into one


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path, unless the system can have no such file: it is too long, or no text for it.

    Example:
        >>> as_path("a" * 5000)
        Traceback (most recent call last):
        prerank.errors.InputError: no file can be called 'aaa...': File name too long
    """
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", errno.ENAMETOOLONG)
        if number == errno.ENAMETOOLONG:
            shown = repr(str(path)[:_SHOWN])
            reason = getattr(error, "strerror", error)
            raise InputError(f"no file can be called {shown}: {reason}") from error
    return Path(path)


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
    target = as_path(path)
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
    as_path(path)
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


def check_file(out: Path, *sources: Path) -> None:
    """Refuse a file to write that cannot be, or that is read as well.

    Args:
        out: the file.
        sources: files that are read.
    """
    with writing(out):
        if out.exists() and not out.is_file():
            raise InputError(f"{out} is not a file: it is not replaced")
        check_not_mounted(out)
        for source in sources:
            if out.exists() and source.exists() and out.samefile(source):
                raise InputError(f"{out} is read by this command: choose another file to write")
        check_place(out)


def check_not_mounted(path: Path) -> None:
    """Refuse to replace where another file system is mounted: no system would do it."""
    if os.path.ismount(path):
        raise InputError(
            f"{path} is a mount point, which cannot be replaced: choose a path below or beside it"
        )


def check_place(path: Path) -> None:
    """Raise what the file system says of a new file beside a path, or where that would be made."""
    as_path(path.absolute().parent / f".{path.name}.{'0' * 8}")  # such a name is written first
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
        odd = path.exists() and not (path.is_file() or path.is_dir())
    except (OSError, ValueError, RuntimeError) as error:  # no text for the system, links in a ring
        reason = getattr(error, "strerror", None) or error  # which would name the file again
        raise InputError(f"cannot read {path}: {reason}") from error
    if not inside:
        raise InputError(
            f"{path} is a link that leads out of {folder}: put a copy in its place, or remove it"
        )
    if odd:  # to read a pipe could take forever
        raise InputError(f"{path} is neither a file nor a folder: remove it")
    return path


class FileLock:
    """A lock that is free again when its block or its process ends, however that ends.

    It is held on the file that is at its path now. A file that was moved away or deleted while its
    lock was waited for keeps nobody apart: the lock is taken again.

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

        taken: list[os.stat_result] = []
        while True:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(
                self._path,
                blocking=self._wait,
                fallback_to_soft=False,  # a soft lock would outlive a process that is killed
                on_acquired=lambda handle: taken.append(os.fstat(handle)),
            )
            self._locks.append(lock)
            try:
                with suppress(filelock.Timeout):
                    lock.acquire()
                if not lock.is_locked or self._is_at_path(taken[-1]):
                    return lock.is_locked
            except BaseException:  # an interrupt: the block does not begin, nor end
                self.__exit__()
                raise
            self.__exit__()

    def __exit__(self, *_: object) -> None:
        """Release it."""
        lock = self._locks.pop()
        try:
            lock.release()
        finally:
            lock.release(force=True)  # nothing is left to do, but where an interrupt came before

    def _is_at_path(self, taken: os.stat_result) -> bool:
        try:
            return os.path.samestat(taken, self._path.lstat())
        except FileNotFoundError:
            return False
