"""Training that can be broken off, and goes on where it was."""

import time
from os import PathLike
from pathlib import Path

from prerank.errors import InputError
from prerank.files import check_within
from prerank.training.trainer import Trainer

__all__ = ["Checkpoint", "Interrupted"]


class Interrupted(Exception):  # noqa: N818 (not an error: all that was trained is kept)
    """Training was broken off in good order: calling it again goes on from the checkpoint."""


class Checkpoint:
    """A file that follows the training of one stack.

    Args:
        path: where to keep it.
        every: seconds between two versions.
        until: time, as `time.monotonic` counts it, at which training is to be broken off.
    """

    def __init__(
        self, path: str | PathLike[str], *, every: float = 30.0, until: float = float("inf")
    ) -> None:
        self.path = Path(path)
        self.every = every
        self.until = until
        self._written = time.monotonic()

    def part(self, name: str, trainer: Trainer) -> "Checkpoint":
        """The file of one part of the training, beside this one; other runs have another."""
        path = self.path.with_name(f"{self.path.name}.{name}-{trainer.fingerprint[:12]}")
        return Checkpoint(path, every=self.every, until=self.until)

    def resume(self, trainer: Trainer) -> None:
        """Go on from the file, if it is there and of this training; remove it if it is not."""
        if self.path.exists():
            try:
                trainer.load(check_within(self.path, self.path.parent))
            except InputError:
                self.path.unlink()

    def follow(self, trainer: Trainer) -> None:
        """To be called after each epoch: write where it is time, raise where time is up."""
        now = time.monotonic()
        if now >= self.until and not trainer.done:
            trainer.save(self.path)
            raise Interrupted(f"time is up: {self.path} has what was trained so far")
        if trainer.done or now - self._written >= self.every:
            trainer.save(self.path)
            self._written = now

    def drop(self) -> None:
        """Remove the file and those of its parts: what they were for is done."""
        for path in (self.path, *self.path.parent.glob(f"{self.path.name}.*")):
            path.unlink(missing_ok=True)
