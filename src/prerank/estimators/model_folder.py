"""The folder of a model: which files in it are the model's, and what may be replaced or deleted."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from prerank.errors import InputError
from prerank.files import (
    check_not_mounted,
    check_place,
    check_within,
    read_json,
    read_tensors,
    writing,
)
from prerank.files.folders import LOCK

__all__ = [
    "REPORT",
    "SETTINGS",
    "check_model_folder",
    "check_saving_place",
    "settings_digest",
    "settings_of",
    "sha256_of",
    "steady",
    "stored_name",
    "sweep",
]

SETTINGS = "model.json"
REPORT = "report.html"
"""Name of the page that may lie beside a model."""

# What `write_atomically` had not put in place yet, and a part without its final name.
_HALF = re.compile(
    r"\.model\.json\.[0-9a-f]{8}|\.{1,2}[0-9a-f]{16}\.part(\.[0-9a-f]{8})?"
    r"|\.report\.html\.[0-9a-f]{8}"
)
_STORED = re.compile(r"[0-9a-f]{16}\.safetensors")
_SHOWN_FILES = 3

Result = TypeVar("Result")


def check_model_folder(path: str | PathLike[str], *, replace: bool = False) -> None:
    """Refuse a folder for a new model that is there, or cannot be written.

    Args:
        path: of the folder.
        replace: whether it may be there, if it holds a model and its report and nothing else.
    """
    out = Path(path)
    with writing(out):
        target = Path(os.path.realpath(out))
        if target.is_symlink():
            raise InputError(f"{out} is a link that leads to itself: remove it")
        if not out.exists():
            check_place(target)
            return
        if not replace:
            raise InputError(
                f"{out} is already there: choose another folder, or replace it (--force)"
            )
        check_not_mounted(target)
        steady(out, lambda: _check_content(out))
        check_place(target)


def steady(folder: Path, read: Callable[[], Result]) -> Result:
    """Read the model in a folder, again if that fails while another model takes its place."""
    while True:
        written = _written(folder)
        try:
            return read()
        except (InputError, OSError):
            if _written(folder) == written:
                raise


def check_saving_place(folder: Path) -> None:
    """Refuse to save where something else is in the place of the folder, or of its lock."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder: choose another one to save to")
    if os.path.lexists(lock := folder / LOCK) and not _is_plain(lock):
        raise InputError(f"{lock} is not a file: remove it, or choose another folder")


def settings_of(folder: Path) -> dict[str, Any] | None:
    """Settings of the model in a folder, or None where there is none.

    A `model.json` that another program wrote, or somebody changed, is refused: the hash that it
    holds is not its own.
    """
    file = folder / SETTINGS
    if not os.path.lexists(file):
        return None
    if not check_within(file, folder).is_file():
        raise InputError(f"{file} is not a file: remove it, or choose another folder")
    try:
        found = read_json(file)
        if isinstance(found, dict) and found.pop("sha256", None) == settings_digest(found):
            return found
    except (InputError, RecursionError):
        pass
    raise InputError(
        f"{file} is not of a model of prerank's, or was changed: remove it, or choose another "
        "folder"
    )


def settings_digest(settings: dict[str, Any]) -> str:
    """Hash of settings, whatever the order and the spaces that they are written with."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sweep(folder: Path, before: dict[str, Any] | None) -> None:
    """Delete what the model in a folder does not need: leftovers, and parts of the one before it.

    To be called under the lock. What a save left that was interrupted just before or after
    `model.json` took its place follows from the settings that are in place now.

    Args:
        folder: of a model.
        before: settings of the model that was there before.
    """
    now = settings_of(folder)
    replaced = {folder / name for name in _named(before) - _named(now)}
    for file in _leftovers(folder, now) | set(filter(_is_plain, replaced)):
        file.unlink(missing_ok=True)


def stored_name(file: Path) -> str:
    """Name of a part of a model: the hash of its bytes."""
    return f"{sha256_of(file)[:16]}.safetensors"


def sha256_of(file: Path) -> str:
    """Hash of the bytes of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _written(folder: Path) -> tuple[int, int] | None:
    """What every save changes, also one of the same model."""
    try:
        found = (folder / SETTINGS).stat()
    except (OSError, ValueError):  # reading it says what is wrong
        return None
    return found.st_ino, found.st_mtime_ns


def _check_content(out: Path) -> None:
    """Refuse a folder that holds anything but a model, its report and what killed saves left."""
    try:
        settings = settings_of(out)
    except InputError as error:
        raise InputError(f"{out} holds no model of prerank's: it is not replaced") from error
    found = set(out.iterdir()) - _leftovers(out, settings)
    kept = {file for file in found if os.path.lexists(file)}  # a save may take away its own files
    own = {SETTINGS, LOCK, REPORT} | _named(settings)
    others = sorted(f.name for f in kept if f.name not in own or not _is_plain(f))
    if others:
        named = ", ".join(others[:_SHOWN_FILES])
        more = ", ..." if len(others) > _SHOWN_FILES else ""
        raise InputError(
            f"{out} holds something else than a model ({named}{more}): it is not replaced"
        )
    if settings is None and kept - {out / LOCK}:
        raise InputError(f"{out} holds no model of prerank's: it is not replaced")


def _leftovers(folder: Path, settings: dict[str, Any] | None) -> set[Path]:
    """Files that killed saves wrote, and that no model needs.

    They are half written, or parts whose model was never completed: the name of a part is the hash
    of its bytes, which files of others do not have, and the settings do not name it.
    """
    named = _named(settings)
    unnamed = {file for file in folder.iterdir() if _is_plain(file) and file.name not in named}
    return {file for file in unnamed if _HALF.fullmatch(file.name) or _is_part(file)}


def _named(settings: dict[str, Any] | None) -> set[str]:
    """Names of the parts of a model."""
    names = (str((settings or {}).get(part)) for part in ("weights", "head"))
    return {name for name in names if _STORED.fullmatch(name)}


def _is_plain(file: Path) -> bool:
    """Whether it is a file: no folder, no link."""
    return file.is_file() and not file.is_symlink()


def _is_part(file: Path) -> bool:
    try:
        if not _STORED.fullmatch(file.name) or stored_name(file) != file.name:
            return False
        read_tensors(file)
    except (InputError, OSError):
        return False
    return True
