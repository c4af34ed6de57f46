"""Values as JSON, tensors with a checksum, checkpoints, and the versions of what computed them."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.files.disk import as_path, check_within, write_atomically
from prerank.numerics.kernels import numba_version

__all__ = [
    "CheckpointFile",
    "check_json",
    "digest",
    "read_json",
    "read_tensors",
    "versions",
    "write_json",
    "write_tensors",
]

_SIZE = 8  # bytes that hold the length of the header of such a file, which is a multiple of it
_DIGEST = "sha256"  # under which a file of tensors keeps the hash of its content
_PACKAGES = ("prerank", "torch", "numpy", "scipy", "pandas", "pyarrow")


def write_json(path: str | os.PathLike[str], value: object) -> Path:
    """Write a value as JSON."""
    text = check_json(value)
    return write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))


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


@needed_by("write_tensors")
def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: Mapping[str, str]
) -> Path:
    """Write named tensors, with text about them, in the safetensors format.

    Tensors that share memory are stored, and come back, as separate ones. The file has a SHA-256 of
    all of it, since the format itself would read a flipped bit as another number. Equal tensors and
    text make equal bytes.
    """
    from safetensors.torch import save

    # Copies, because the format refuses tensors that share memory.
    stored = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    described = {**about, _DIGEST: digest(stored, about)}

    # Bytes: by itself the library would write to a file of a name that nobody knows after a kill.
    content = _in_order(save(stored, described))
    return write_atomically(path, lambda file: file.write_bytes(content))


def _in_order(content: bytes) -> bytes:
    """A file of tensors whose texts are sorted, which the library writes in any order."""
    start = _SIZE + int.from_bytes(content[:_SIZE], "little")
    header = json.loads(content[_SIZE:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _SIZE)
    return len(text).to_bytes(_SIZE, "little") + text + content[start:]


@needed_by("read_tensors")
def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `write_tensors` wrote; a broken file raises `InputError` with its name."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(as_path(path), framework="pt") as file:
            about = dict(file.metadata() or {})
            tensors = {name: torch.clone(file.get_tensor(name)) for name in list(file.keys())}
    except (OSError, RuntimeError, SafetensorError) as error:  # the second of one that is gone
        # Folders and devices give words such as "No such device".
        reason = error if not Path(path).is_dir() else "it is a folder, not a .safetensors file"
        raise InputError(f"cannot read {os.fspath(path)}: {reason}") from error
    expected = about.pop(_DIGEST, None)  # None where an older version wrote it
    if expected not in (None, digest(tensors, about)):
        raise InputError(f"cannot read {os.fspath(path)}: it is damaged, its SHA-256 is another")
    return tensors, about


class CheckpointFile:
    """A file that holds a checkpoint, with files for the parts of the training beside it.

    Args:
        path: of the file; links to files elsewhere are not followed.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = CheckpointFile(folder + "/run").part("plain")
        ...     file.save({"theta": torch.ones(2)}, {"runs": "two"})
        ...     file.load()
        ({'theta': tensor([1., 1.])}, {'runs': 'two'})
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        """The path, for messages."""
        return str(self.path)

    @needed_by("CheckpointFile.load")
    def load(self) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """Tensors and text of the checkpoint, or None where there is none."""
        if not as_path(self.path).exists():
            return None
        return read_tensors(check_within(self.path, self.path.parent))

    @needed_by("CheckpointFile.save")
    def save(self, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Replace the checkpoint, in one step."""
        write_tensors(self.path, tensors, about)

    def discard(self) -> None:
        """Remove the file and those of its parts."""
        for path in (self.path, *self.path.parent.glob(f"{self.path.name}.*")):
            path.unlink(missing_ok=True)

    def part(self, name: str) -> "CheckpointFile":
        """The file of one part of the training, beside this one."""
        return CheckpointFile(self.path.with_name(f"{self.path.name}.{name}"))


def digest(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """SHA-256 of names, types, shapes and numbers, and of the text about them."""
    found = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        found.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute, to store beside results."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from source
            found[name] = "source"
    # The metadata of some builds lack the label, such as +cu130.
    found |= {"torch": str(torch.__version__)}
    compiler = numba_version()
    return found if compiler is None else found | {"numba": compiler}
