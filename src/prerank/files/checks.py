"""Files that are refused before they are read: claims that do not fit their size, and links."""

from pathlib import Path

from prerank.errors import InputError

__all__ = ["check_size", "check_within"]

_SMALL = 2**30  # bytes that a file may hold, however short it is
_PACKED = 1032  # the most bytes that deflate packs into one


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
            "corrupt or malicious"
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
