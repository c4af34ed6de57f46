"""Named tensors that tell when they are damaged."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.files.atomic import write_atomically

__all__ = ["digest", "read_tensors", "write_tensors"]

_DIGEST = "sha256"  # under which a file of tensors tells that of its content


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

    told = {**about, _DIGEST: digest(stored, about)}

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
    if told not in (None, digest(tensors, about)):
        raise InputError(f"cannot read {os.fspath(path)}: it is damaged, its SHA-256 is another")
    return tensors, about


def digest(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """SHA-256 of names, types, shapes and numbers, and of the text about them."""
    found = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        found.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
