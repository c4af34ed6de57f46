"""Files and folders that take their place in one step, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prerank.errors import InputError

__all__ = ["new_folder", "write_atomically", "writing"]

_UMASK = os.umask(0o077)  # the only way to learn it is to set it: once, before there are threads
os.umask(_UMASK)


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[Path], None], *, keep: bool = False
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
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_UMASK)  # temporary files are private by default
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        if not keep or not _linked(temporary, target):
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


def _swap(new: Path, target: Path, old: Path) -> None:
    """Put one folder in the place of another, which goes back if that fails."""
    try:
        if target.exists():
            target.rename(old)
        new.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise


def _linked(new: Path, target: Path) -> bool:
    """Give a file a second name unless there is one; False where that is for the caller to do."""
    try:
        os.link(new, target)
    except FileExistsError:
        return True
    except OSError:  # a file system without links: to look has to do
        return target.exists()
    return True
