"""Files and folders that are whole or absent: refused before the work, written in one step."""

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prerank.errors import InputError

__all__ = [
    "FileLock",
    "check_file",
    "check_json",
    "check_place",
    "check_size",
    "check_within",
    "new_folder",
    "read_json",
    "read_tensors",
    "versions",
    "write_atomically",
    "write_json",
    "write_tensors",
    "writing",
]

_SMALL = 2**30  # bytes that a file may hold, however short it is
_PACKED = 1032  # the most bytes that deflate packs into one

_DIGEST = "sha256"  # under which a file of tensors tells that of its content
_UMASK = os.umask(0o077)  # the only way to learn it is to set it: once, before there are threads
os.umask(_UMASK)

_PACKAGES = ("prerank", "torch", "numpy", "scipy", "pandas", "pyarrow")


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
            "damaged, or means harm"
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


def write_json(path: str | os.PathLike[str], value: object) -> Path:
    """Write a value as JSON."""
    text = check_json(value)
    return write_atomically(path, lambda file: _write_text(file, text))


def check_json(value: object) -> str:
    """Turn a value into JSON text, or raise `InputError` where it has none."""
    try:
        return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"this value cannot be saved as JSON: {error}") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; a broken one raises `InputError` with its name."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last where brackets are too deep
        raise InputError(f"cannot read {os.fspath(path)}: {error}") from error


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: Mapping[str, str]
) -> Path:
    """Write named tensors, with text about them, in the safetensors format.

    Tensors that share memory are stored, and come back, as separate ones. The file has a SHA-256 of
    all of it, since the format itself would read a flipped bit as another number.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # Copies, because the format refuses tensors that share memory.
    stored = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }

    told = {**about, _DIGEST: _digest(stored, about)}

    def save(file: Path) -> None:
        try:
            save_file(stored, file, metadata=told)
        except SafetensorError as error:  # of the file system, such as a full disk
            raise OSError(f"cannot write {os.fspath(path)}: {error}") from error

    return write_atomically(path, save)


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `write_tensors` wrote; a broken file raises `InputError` with its name."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = dict(file.metadata() or {})
            tensors = {name: torch.clone(file.get_tensor(name)) for name in list(file.keys())}
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {os.fspath(path)}: {error}") from error
    told = about.pop(_DIGEST, None)  # None where an older version wrote it
    if told not in (None, _digest(tensors, about)):
        raise InputError(f"cannot read {os.fspath(path)}: it is damaged, its SHA-256 is another")
    return tensors, about


class FileLock:
    """A lock that is free again when its block or its process ends, however that ends.

    Args:
        path: of a file that is made for the purpose, and stays.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "unit.lock"
        >>> with FileLock(path) as first, FileLock(path) as second:
        ...     first, second
        (True, False)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._handles: list[int | None] = []  # of the blocks that are open, None where refused

    def __enter__(self) -> bool:
        """Take the lock and say whether it could be had; never wait."""
        import fcntl  # not on every system: only who needs locks needs it

        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A link could make a file anywhere.
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            self._handles.append(None)
            return False
        self._handles.append(handle)
        return True

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        handle = self._handles.pop()
        if handle is not None:
            os.close(handle)


def versions() -> dict[str, str]:
    """Of what results come from: Python, and the packages that compute."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from source
            found[name] = "source"
    return found


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


def _digest(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """SHA-256 of names, types, shapes and numbers, and of the text about them."""
    found = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        found.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _write_text(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
