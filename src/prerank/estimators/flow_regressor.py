"""A multi-output regressor that predicts spline flows and is calibrated while it trains."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.estimators.base import JointRegressor
from prerank.models import FlowLaw, FlowNetwork
from prerank.preranks import PreRankLike

__all__ = ["FlowRegressor"]

_ROWS = 2048  # at a time: each has a thousand points to take quantiles of


class FlowRegressor(JointRegressor):
    r"""Triangular spline flow trained with a calibration penalty.

    .. math:: \min_\theta \; \frac1N \sum_i -\log f_\theta(y_i \mid x_i)
              + \lambda \, R(\text{preranks})

    The same face as `MixtureRegressor`, for laws that are no mixtures of a few Gaussians: skewed,
    bounded or curved ones (`prerank.models.FlowNetwork` has the map). It needs zuko
    (the extra `flows`), and more time: every sample of the penalty goes through the
    networks. Standardisation, splits and stopping are those of `MixtureRegressor`.

    `predict` gives medians, target by target, not means: the mean of a flow can rest on draws that
    are too rare to be met. Medians and quantiles are those of 1,024 scrambled Sobol points, the
    same for every row, so they are no matter of chance.

    Args:
        bins: of each spline.
        hidden: widths of the hidden layers.
        scale_floor: least scale of a target given those before it, in standard deviations of the
            targets; splines make it narrower in places.
        preranks: what the penalty looks at, such as `"marginal+hdr"`.
        strength: lambda, or `"auto"`: the one with the least calibration error on validation rows
            whose energy score stays within the budget, over three paired splits.
        budget: by how much the energy score may worsen, for `"auto"`.
        n_samples: draws per row of the penalty, on which its time depends.
        max_epochs: upper limit, without the penalty and again with it.
        patience: epochs without improvement after which training stops.
        batch_size: rows per step.
        lr: learning rate; with the penalty, three tenths of it.
        device: such as `"cpu"` or `"cuda"`; the GPU where there is one, by default.
        random_state: seed of splits, initial weights and noise.
        verbose: 1 shows a progress bar.

    Attributes:
        strength_: the strength that was used.
        selection_: the `Selection` of `"auto"`, else None.
        n_outputs_: number of targets.
        target_names_: their names.

    Example:
        >>> from prerank.datasets import AR1Regression
        >>> x, y = AR1Regression(dim=2).sample(400, generator=0)
        >>> model = FlowRegressor(hidden=(8,), n_samples=10, max_epochs=2, random_state=0)
        >>> model.fit(x.numpy(), y.numpy()).predict_dist(x.numpy()).log_prob(y).shape
        torch.Size([400])
    """

    network_: FlowNetwork

    def __init__(
        self,
        bins: int = 8,
        *,
        hidden: Sequence[int] = (64, 64),
        scale_floor: float = 1e-3,
        preranks: PreRankLike = "marginal+hdr",
        strength: float | str = 10.0,
        budget: float = 0.10,
        n_samples: int = 32,
        max_epochs: int = 1000,
        patience: int = 15,
        batch_size: int = 256,
        lr: float = 1e-3,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            hidden=hidden,
            scale_floor=scale_floor,
            preranks=preranks,
            strength=strength,
            budget=budget,
            max_epochs=max_epochs,
            patience=patience,
            batch_size=batch_size,
            lr=lr,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.bins = bins
        self.n_samples = n_samples

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Predictive medians in original units, `(N, D)`, or `(N,)` after a fit to a vector."""
        median: npt.NDArray[np.float64] = self.predict_quantiles(X, [0.5])[0]
        return median

    def predict_dist(self, X: Any) -> FlowLaw:
        """Predictive distributions in original units, in float64."""
        dist = super().predict_dist(X)
        assert isinstance(dist, FlowLaw)
        return dist

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> npt.NDArray[np.float64]:
        """Marginal quantiles in original units, `(Q, N, D)`."""
        levels = [float(q) for q in quantiles]
        parts = self._standard_inputs(X).split(_ROWS)
        found = torch.cat([self._law(rows).quantiles(levels) for rows in parts], -2)
        loc, scale = self._units
        return self._shaped(loc + scale * found)

    @property
    def _penalty_draws(self) -> int:
        return self.n_samples

    @property
    def _particulars(self) -> Mapping[str, str]:
        return {"bins of a spline": str(self.bins)}

    def _build(self, n_inputs: int, n_targets: int) -> FlowNetwork:
        return FlowNetwork(
            n_inputs,
            n_targets,
            self.bins,
            tuple(self.hidden),
            scale_floor=self.scale_floor,
        )

    def _law(self, x: Tensor) -> FlowLaw:
        return self.network_.law(self.theta_[0].double(), x)
