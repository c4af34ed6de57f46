"""Where commands write: refused before the work begins, whole or absent when it ends."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prerank.errors import InputError

__all__ = ["REPORT", "check_file", "check_folder", "new_folder", "writing"]

REPORT = "report.html"
_SETTINGS = "model.json"
_OF_A_MODEL = re.compile(rf"{re.escape(_SETTINGS)}|{re.escape(REPORT)}|[0-9a-f]+\.safetensors")
_SHOWN_FILES = 3


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
    """Refuse a file to write that cannot be, or that the command reads.

    Args:
        out: the file.
        sources: files that the command reads.
    """
    with writing(out):
        if out.exists() and not out.is_file():
            raise InputError(f"{out} is not a file: it is not replaced")
        for source in sources:
            if out.exists() and source.exists() and out.samefile(source):
                raise InputError(f"{out} is read by this command: choose another file to write")
        _try(out)


def check_folder(out: Path, force: bool) -> None:
    """Refuse a folder that is there, unless it holds a model and nothing else and may go.

    Args:
        out: the folder.
        force: whether a model may be replaced.
    """
    with writing(out):
        if not out.exists():
            _try(out.resolve())
            return
        if not force:
            raise InputError(
                f"{out} is already there: choose another folder, or replace it (--force)"
            )
        others = sorted(file.name for file in out.iterdir() if not _OF_A_MODEL.fullmatch(file.name))
        if others:
            named = ", ".join(others[:_SHOWN_FILES])
            more = ", ..." if len(others) > _SHOWN_FILES else ""
            raise InputError(
                f"{out} holds something else than a model ({named}{more}): it is not replaced"
            )
        if any(out.iterdir()) and not _is_model(out / _SETTINGS):
            raise InputError(f"{out} holds no model of prerank's: it is not replaced")
        _try(out.resolve())


@contextmanager
def new_folder(out: Path, force: bool) -> Iterator[Path]:
    """A folder beside `out` that takes its place when all is well, and is gone otherwise.

    Args:
        out: a link is followed.
        force: whether a model that is there may be replaced.
    """
    target = out.resolve()
    with writing(out):
        target.parent.mkdir(parents=True, exist_ok=True)
        hold = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            folder = hold / "new"
            folder.mkdir()
            yield folder
            check_folder(out, force)  # again: training may have taken hours
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


def _try(path: Path) -> None:
    """Raise what the file system says of a new file beside a path, or where that would be made."""
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    with tempfile.TemporaryFile(dir=folder):
        pass


def _is_model(settings: Path) -> bool:
    """Whether a file is `model.json` of a model, if not necessarily a sound one."""
    try:
        found = json.loads(settings.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and {"format", "class", "weights"} <= set(found)
