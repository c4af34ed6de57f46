"""Locks between processes."""

import os
from pathlib import Path

__all__ = ["FileLock"]


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
