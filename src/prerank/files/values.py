"""Values as JSON."""

import json
import os
from pathlib import Path
from typing import Any

from prerank.errors import InputError
from prerank.files.atomic import write_atomically

__all__ = ["check_json", "read_json", "write_json"]


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


def _write_text(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
