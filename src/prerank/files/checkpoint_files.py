"""Checkpoints of a training in files."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from torch import Tensor

from prerank.files.disk import check_within
from prerank.files.values import read_tensors, write_tensors

__all__ = ["CheckpointFile"]


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

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        """The path, for messages."""
        return str(self.path)

    def load(self) -> tuple[dict[str, Tensor], dict[str, str]] | None:
        """Tensors and text of the checkpoint, or None where there is none."""
        if not self.path.exists():
            return None
        return read_tensors(check_within(self.path, self.path.parent))

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
