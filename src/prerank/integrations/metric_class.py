"""The projected calibration error as a metric of torchmetrics."""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration import pce
from prerank.defaults import LEVELS, N_SAMPLES, SEED
from prerank.extras import library
from prerank.inputs import as_count
from prerank.pits import pit
from prerank.preranks import PreRankLike, parse

__all__ = ["torchmetric"]


def torchmetric(
    prerank: PreRankLike,
    *,
    n_samples: int = N_SAMPLES,
    levels: int = LEVELS,
    seed: int = SEED,
    **options: Any,
) -> Any:
    r"""A `torchmetrics.Metric`: the PCE over the rows of all batches and processes.

    .. math:: \frac1J \sum_j \frac1L \sum_l |\alpha_l - \hat F_{Z_j}(\alpha_l)|

    PITs are collected, and the error is computed once: a mean over batches would have a floor of
    its own. `update(dist, y)` takes what `prerank.pit` takes. Compare the result with
    `prerank.pce_floor(n)`, the error of a calibrated forecast of n rows. For one value for each
    component use `prerank.ProjectedCalibrationError`.

    Args:
        prerank: as in `pit`.
        n_samples: draws per row where there is no closed form.
        levels: of the PCE.
        seed: of draws and ties, which are others in each batch and each process.
        options: of `torchmetrics.Metric`, such as `sync_on_compute`.

    Returns:
        A metric, for `self.log` of Lightning, `MetricCollection` and the like.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> metric = torchmetric("scale")
        >>> for _ in range(4):
        ...     dist = MultivariateNormal(torch.zeros(250, 2), torch.eye(2))
        ...     metric.update(dist, dist.sample())
        >>> bool(metric.compute() < 0.05)
        True
    """
    return _metric_class()(prerank, n_samples=n_samples, levels=levels, seed=seed, **options)


@cache
def _metric_class() -> type:
    torchmetrics = library("torchmetrics", "torchmetric")

    class CalibrationMetric(torchmetrics.Metric):  # type: ignore[misc, name-defined]
        """PCE over all rows; `torchmetric` makes it."""

        is_differentiable = False
        higher_is_better = False
        full_state_update = False
        plot_lower_bound = 0.0

        def __init__(
            self, prerank: PreRankLike, *, n_samples: int, levels: int, seed: int, **options: Any
        ) -> None:
            super().__init__(**options)
            parse(prerank)
            self.prerank = prerank
            self.n_samples, self.levels = n_samples, levels
            self.seed = as_count(seed, "seed", minimum=0)
            self.add_state("pits", default=[], dist_reduce_fx="cat")

        def update(self, dist: Distribution, y: object) -> None:
            """Add the PITs of a batch."""
            together = torch.distributed.is_available() and torch.distributed.is_initialized()
            place = [self.seed, torch.distributed.get_rank() if together else 0, len(self.pits)]
            [number] = np.random.SeedSequence(place).generate_state(1, np.uint64) >> np.uint64(1)
            z = pit(dist, y, self.prerank, n_samples=self.n_samples, generator=int(number))
            self.pits.append(z.detach())

        def compute(self) -> Tensor:
            """Mean of the PCE over the components."""
            return pce(torchmetrics.utilities.dim_zero_cat(self.pits), levels=self.levels).mean()

    CalibrationMetric.__qualname__ = "CalibrationMetric"  # where pickle finds it
    return CalibrationMetric


def __getattr__(name: str) -> Any:
    """The class, for pickle: torchmetrics is not imported before it is needed."""
    if name == "CalibrationMetric":
        return _metric_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
