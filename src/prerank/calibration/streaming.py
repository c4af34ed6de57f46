"""Calibration over batches, without the bias of averaging over batches."""

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration.error import pce
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_generator
from prerank.pits import pit
from prerank.preranks import PreRankLike, parse

__all__ = ["ProjectedCalibrationError"]


class ProjectedCalibrationError:
    """Collect PITs batch by batch, compute the PCE once.

    Args:
        prerank: as in `pit`.
        n_samples: draws per row where there is no closed form.
        levels: as in `pce`.
        generator: a generator or seed; its stream runs on from batch to batch.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> metric = ProjectedCalibrationError("scale", generator=0)
        >>> for _ in range(4):
        ...     dist = MultivariateNormal(torch.zeros(250, 2), torch.eye(2))
        ...     metric.update(dist, dist.sample())
        >>> metric.pits.shape, metric.compute().shape
        (torch.Size([1000, 1]), torch.Size([1]))
    """

    def __init__(
        self,
        prerank: PreRankLike,
        *,
        n_samples: int = 100,
        levels: int = 100,
        generator: torch.Generator | int | None = None,
    ) -> None:
        self.preranks = parse(prerank)
        self.n_samples = n_samples
        self.levels = levels
        self._generator = as_generator(generator, "draw")
        self._batches: list[Tensor] = []

    def update(self, dist: Distribution, y: object) -> None:
        """Add the PITs of one batch."""
        z = pit(dist, y, self.preranks, n_samples=self.n_samples, generator=self._generator)
        if self._batches and not _fits(self._batches[0], z):
            raise ShapeError(
                f"this batch has PITs of shape {tuple(z.shape)}, earlier ones "
                f"{tuple(self._batches[0].shape)}: stack axes and components must not change (use "
                "pca with a fixed number of components)"
            )
        self._batches.append(z)

    @property
    def pits(self) -> Tensor:
        """All PITs so far, `(..., N, J)`."""
        if not self._batches:
            raise InputError("no batch yet: call update(dist, y) first")
        return torch.cat(self._batches, dim=-2)

    def compute(self) -> Tensor:
        """PCE over all rows so far, `(..., J)`."""
        return pce(self.pits, levels=self.levels)

    def reset(self) -> None:
        """Forget all PITs."""
        self._batches.clear()


def _fits(first: Tensor, other: Tensor) -> bool:
    return first.shape[:-2] == other.shape[:-2] and first.shape[-1] == other.shape[-1]
