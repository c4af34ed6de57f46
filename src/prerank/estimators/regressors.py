"""Calibrated multi-output regressors: Gaussian mixtures and spline flows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank import defaults
from prerank.distributions import Bounded, GaussianMixture, Rounded
from prerank.distributions.densities import mixture_quantiles
from prerank.estimators.base import JointRegressor
from prerank.estimators.persistence import read_model
from prerank.models import FlowDistribution, FlowMixture, FlowNetwork, MixtureNetwork
from prerank.models.flow_distribution import point_quantiles
from prerank.recalibration.copies import Copies

__all__ = ["FlowRegressor", "MixtureRegressor", "load_model"]

_ROWS = 2048  # of a flow at a time: each has a thousand points to take quantiles of


@dataclass(kw_only=True, eq=False, repr=False)
class MixtureRegressor(JointRegressor):
    r"""Mixture density network, or several of them, with a calibration head behind.

    .. math:: \min_\theta \; \frac1N \sum_i -\log f_\theta(y_i \mid x_i), \qquad
              \min_h \; \frac1n \sum_j -\log h(f_\theta)(y_j \mid x_j)
              + \lambda \, R(\text{preranks})

    By default, the networks are trained by likelihood alone, and a `prerank.CalibrationHead` h is
    fitted to their forecasts of rows that they were not fitted to. With `method="network"` the
    penalty R is added to the likelihood of the network itself.

    Inputs and targets are standardised by the training rows; training, selection, scores and
    diagnosis happen in these units, predictions come back in the original ones. A fifth of the
    rows stops the training. A network with a penalty is trained without it first, and goes on
    from there with it. Inputs beyond the range of the training rows are taken as its end: a network
    would go on in a straight line, however far.

    Args:
        n_components: number of Gaussians.
        hidden: widths of the hidden layers.
        scale_floor: least scale of a Gaussian, in standard deviations of the targets.
        method: `"head"`; `"network"` for a penalty on the network; `"none"` for likelihood alone.
        members: number of networks, trained in one stack; their mixture is the prediction, with
            `members * n_components` Gaussians before a head, and up to five times as many behind
            it. For methods `"head"` and `"none"`: a mixture of
            networks that are each calibrated is too wide.
        folds: which rows the head is fitted to. 0: those that stop the training. K: all rows, by
            cross-fitting: K networks for each member, of which each is stopped by one fold and
            trained on the others. None: 5 for fewer than 500 rows, else 0.
        preranks: what the penalty looks at; by default `"all"` for a head and `"marginal+hdr"` for
            a network.
        strength: lambda. 0 fits a head, or a network, by likelihood alone. `"auto"`: for a head its
            default of 10; for a network the strength with the least calibration error on
            validation rows whose scores stay within the budgets beyond the noise of these rows,
            over three paired splits (see `prerank.training.search_in_stages`).
        budget: by how much the energy score may worsen, for a network and `"auto"`.
        nll_budget: by how many nats the negative log-likelihood may worsen there; None for any.
        discrete: `"auto"`: targets with few values, or with atoms, are spread for training, and
            the forecasts rounded (`prerank.distributions.Rounding`). False takes all as continuous.
        bounds: of targets by name, such as `{"humid": (0, 100), "rain": (0, None)}`: no draw,
            quantile or mean lies beyond. A bound that rows have as their value is an atom
            (`discrete`); towards others the density falls to 0 (`prerank.distributions.Bounded`).
        impute: fill missing inputs of a DataFrame by the median of the rows of `fit`, and tell the
            network by a flag where a column lacked values there. They are refused otherwise.
        dates: take features of the columns of dates of a DataFrame
            (`prerank.files.date_features.DateFeatures`): a trend and cycles. They are refused
            otherwise.
        max_epochs: upper limit, without the penalty and again with it.
        patience: epochs without improvement after which training stops.
        batch_size: rows per step.
        lr: learning rate; with the penalty, three tenths of it.
        device: such as `"cpu"` or `"cuda"`; the GPU where there is one, by default.
        random_state: seed of splits, initial weights and noise.
        verbose: 1 shows a progress bar.

    Attributes:
        strength_: the strength that was used.
        selection_: the `Selection` of a network's `"auto"`, else None.
        head_: the fitted `CalibrationHead`, else None; `head_.report()` says what it changes.
        head_rows_: number of rows that it was fitted to.
        folds_: number of folds of the cross-fitting; 0 for none.
        rounding_: the `Rounding` of discrete targets; `rounding_.words(target_names_)` lists them.
        n_outputs_: number of targets.
        target_names_: their names.

    Example:
        >>> from prerank.datasets import AR1Regression
        >>> x, y = AR1Regression(dim=3).sample(400, generator=0)
        >>> model = MixtureRegressor(n_components=1, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(x.numpy(), y.numpy()).predict(x.numpy()).shape
        (400, 3)
        >>> model.folds_, model.head_rows_
        (5, 400)
    """

    n_components: int = field(default=defaults.N_COMPONENTS, kw_only=False)

    network_: MixtureNetwork = field(init=False)
    network_class = MixtureNetwork
    own_parameter = "n_components", "components"

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Predictive means in original units, `(N, D)`, or `(N,)` after a fit to a vector."""
        return self._labelled(self._shaped(self.predict_dist(X).mean), X)

    def predict_dist(self, X: Any) -> GaussianMixture | Rounded | Bounded:
        """Predictive distributions in original units, in float64.

        `Rounded` ones where targets are discrete; their `base` is the mixture of spread targets.
        `Bounded` ones where targets have bounds; their `base` is the mixture on the whole line.
        """
        dist = super().predict_dist(X)
        assert isinstance(dist, GaussianMixture | Rounded | Bounded)
        return dist

    def _quantiles(self, X: Any, levels: list[float]) -> Tensor:
        dist = self._spread_dist(X)
        assert isinstance(dist, GaussianMixture)
        margins = dist.project(torch.eye(self.n_outputs_, dtype=torch.float64))
        return mixture_quantiles(margins, torch.tensor(levels, dtype=torch.float64))


@dataclass(kw_only=True, eq=False, repr=False)
class FlowRegressor(JointRegressor):
    r"""Triangular spline flow, or several of them, with a calibration head behind.

    The same face as `MixtureRegressor`, for distributions that are not mixtures of a few
    Gaussians: skewed, bounded or curved ones (`prerank.models.FlowNetwork` has the map). It needs
    zuko (the extra `flows`), and more time: every sample of the penalty goes through the networks,
    and members are trained one after the other. There is no cross-fitting: a head is fitted to the
    rows that stop the training, of which there must be 20. Standardisation, splits and stopping are
    those of `MixtureRegressor`.

    `predict` gives medians, target by target, not means: the mean of a flow can rest on draws that
    are too rare to be met. Medians and quantiles are those of 1,024 scrambled Sobol points, the
    same for every row, so they are no matter of chance.

    Args:
        bins: of each spline.
        hidden: widths of the hidden layers.
        scale_floor: least scale of a target given those before it, in standard deviations of the
            targets; splines make it narrower in places.
        n_samples: draws per row of a network's penalty, on which its time depends.
        **others: `method`, `members`, `folds`, `preranks`, `strength`, `budget`, `nll_budget`,
            `discrete`, `bounds`, `impute`, `dates`, `max_epochs`, `patience`, `batch_size`, `lr`,
            `device`, `random_state` and `verbose`, as for `MixtureRegressor`; so are the attributes
            after `fit`.

    Example:
        >>> from prerank.datasets import AR1Regression
        >>> x, y = AR1Regression(dim=2).sample(400, generator=0)
        >>> model = FlowRegressor(hidden=(8,), n_samples=10, max_epochs=2, random_state=0)
        >>> model.fit(x.numpy(), y.numpy()).predict_dist(x.numpy()).log_prob(y).shape
        torch.Size([400])
    """

    bins: int = field(default=8, kw_only=False)
    hidden: Sequence[int] = (64, 64)
    n_samples: int = 32

    network_: FlowNetwork = field(init=False)
    network_class = FlowNetwork
    own_parameter = "bins", "bins of a spline"

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Predictive medians in original units, `(N, D)`, or `(N,)` after a fit to a vector."""
        return self._labelled(self._snapped_quantiles(X, [0.5])[0], X)

    def _forecast(self, x: Tensor) -> Distribution:
        dist = super()._forecast(x)
        # A head looks at the moments of a forecast, which a mixture has from even points.
        if isinstance(dist, FlowDistribution) and self.head_ is not None:
            return FlowMixture([dist])
        return dist

    def _quantiles(self, X: Any, levels: list[float]) -> Tensor:
        parts = self._standard_inputs(X).split(_ROWS, 1)
        standard = [point_quantiles(_points(self._distribution(rows)), levels) for rows in parts]
        loc, scale = self._units
        return loc + scale * torch.cat(standard, -2)

    @property
    def _penalty_draws(self) -> int:
        return self.n_samples


def _points(dist: Any) -> Tensor:
    """Points that stand for the forecasts of a flow, the same noise in all rows: `(S, N, D)`."""
    if not isinstance(dist, Copies):
        points: Tensor = dist.points()
        return points
    base: Any = dist.base
    points = base.points()
    # Points of each copy in proportion to its share, spread over all of them.
    turn = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    edges = dist.shares[0].cumsum(-1)[:-1].double()
    chosen = torch.bucketize((turn + 0.5) / len(points), edges)
    return dist.place(points, chosen.unsqueeze(-1).expand(points.shape[:2]))


def load_model(path: str | PathLike[str]) -> JointRegressor:
    """Read a model that a regressor's `save` wrote.

    Files of another format, with missing parts, or with settings or weights that do not match their
    hash are refused.
    """
    model: JointRegressor = read_model(path, (MixtureRegressor, FlowRegressor))
    return model
