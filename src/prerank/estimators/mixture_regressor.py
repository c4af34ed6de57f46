"""A multi-output regressor that predicts Gaussian mixtures and is calibrated while it trains."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.distributions import GaussianMixture
from prerank.distributions.densities import mixture_quantiles
from prerank.estimators.base import JointRegressor
from prerank.models import MixtureNetwork
from prerank.preranks import PreRankLike

__all__ = ["MixtureRegressor"]


class MixtureRegressor(JointRegressor):
    r"""Mixture density network trained with a calibration penalty.

    .. math:: \min_\theta \; \frac1N \sum_i -\log f_\theta(y_i \mid x_i)
              + \lambda \, R(\text{preranks})

    Inputs and targets are standardised by the training rows; training, selection, scores and
    diagnosis happen in these units, predictions come back in the original ones. A fifth of the
    rows validates: training stops on the objective there, without the penalty first and then,
    going on from there, with it, which aims at calibration on those rows too. Inputs beyond the
    range of the training rows are taken as its end: a network would go on in a straight line,
    however far.

    Args:
        n_components: number of Gaussians.
        hidden: widths of the hidden layers.
        scale_floor: least scale of a Gaussian, in standard deviations of the targets. Where these
            take few values, one well below the gap between them (.05, say) keeps the densities
            from becoming spikes.
        preranks: what the penalty looks at, such as `"marginal+hdr"`.
        strength: lambda, or `"auto"`: the one with the least calibration error on validation rows
            whose energy score stays within the budget, over three paired splits.
        budget: by how much the energy score may worsen, for `"auto"`.
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
        >>> x, y = AR1Regression(dim=3).sample(400, generator=0)
        >>> model = MixtureRegressor(n_components=1, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(x.numpy(), y.numpy()).predict(x.numpy()).shape
        (400, 3)
    """

    network_: MixtureNetwork

    def __init__(
        self,
        n_components: int = 5,
        *,
        hidden: Sequence[int] = (100, 100),
        scale_floor: float = 1e-3,
        preranks: PreRankLike = "marginal+hdr",
        strength: float | str = 10.0,
        budget: float = 0.10,
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
        self.n_components = n_components

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Predictive means in original units, `(N, D)`, or `(N,)` after a fit to a vector."""
        return self._shaped(self.predict_dist(X).mean)

    def predict_dist(self, X: Any) -> GaussianMixture:
        """Predictive distributions in original units, in float64."""
        dist = super().predict_dist(X)
        assert isinstance(dist, GaussianMixture)
        return dist

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> npt.NDArray[np.float64]:
        """Marginal quantiles in original units, `(Q, N, D)`."""
        levels = torch.tensor([float(q) for q in quantiles], dtype=torch.float64)
        margins = self.predict_dist(X).project(torch.eye(self.n_outputs_, dtype=torch.float64))
        return self._shaped(mixture_quantiles(margins, levels))

    @property
    def _particulars(self) -> Mapping[str, str]:
        return {"components": str(self.n_components)}

    def _build(self, n_inputs: int, n_targets: int) -> MixtureNetwork:
        return MixtureNetwork(
            n_inputs,
            n_targets,
            self.n_components,
            tuple(self.hidden),
            scale_floor=self.scale_floor,
        )

    def _law(self, x: Tensor) -> GaussianMixture:
        with torch.no_grad():
            dist = self.network_(self.theta_, x.to(self.theta_.dtype).unsqueeze(0))
        return GaussianMixture(
            dist.logits[0].double(),
            dist.loc[0].double(),
            dist.scale_tril[0].double(),
            validate_args=False,
        )
