"""Files that are whole or absent: atomic writes of text, JSON and tensors."""

import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prerank.errors import InputError

__all__ = [
    "FileLock",
    "check_json",
    "read_json",
    "read_tensors",
    "versions",
    "write_atomically",
    "write_json",
    "write_tensors",
]

_PACKAGES = ("prerank", "torch", "numpy", "scipy", "pandas", "pyarrow")


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], None]) -> Path:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step.

    Whatever happens, `path` holds either its old content or all of the new one.
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
        temporary.chmod(0o666 & ~_umask())  # temporary files are private by default
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return target


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
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {os.fspath(path)}: {error}") from error


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: Mapping[str, str]
) -> Path:
    """Write named tensors, with text about them, in the safetensors format.

    Tensors that share memory are stored, and come back, as separate ones.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # Copies, because the format refuses tensors that share memory.
    stored = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }

    def save(file: Path) -> None:
        try:
            save_file(stored, file, metadata=dict(about))
        except SafetensorError as error:  # of the file system, such as a full disk
            raise OSError(f"cannot write {os.fspath(path)}: {error}") from error

    return write_atomically(path, save)


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `write_tensors` wrote; a broken file raises `InputError` with its name."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = dict(file.metadata() or {})
            return {name: torch.clone(file.get_tensor(name)) for name in list(file.keys())}, about
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {os.fspath(path)}: {error}") from error


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
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_text(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
