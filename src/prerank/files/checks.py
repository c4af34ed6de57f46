"""What is refused before the work: places, sizes and links."""

import tempfile
from pathlib import Path

from prerank.errors import InputError
from prerank.files.atomic import writing

__all__ = ["check_file", "check_place", "check_size", "check_within"]

_SMALL = 2**30  # bytes that a file may hold, however short it is
_PACKED = 1032  # the most bytes that deflate packs into one


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
