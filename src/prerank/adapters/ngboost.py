"""Distributions that NGBoost predicts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from prerank.adapters.products import product
from prerank.errors import InputTypeError
from prerank.extras import library
from prerank.inputs import wrong_type

__all__ = ["from_ngboost"]


def from_ngboost(dist: object) -> Distribution:
    """The exact distribution of `NGBRegressor.pred_dist(X)`.

    `MultivariateNormal(k)` gives a torch `MultivariateNormal` over k targets. A distribution of one
    target gives D = 1; a list of them, from one regressor for each target, their product: targets
    that are independent given x.

    Args:
        dist: what `pred_dist` returns for N rows, or a list of D of them. Families: Normal,
            LogNormal, MultivariateNormal, Laplace, T, Cauchy, Gamma, Exponential, Weibull,
            HalfNormal, Beta and Poisson.

    Returns:
        A distribution with `batch_shape (N,)` and `event_shape (D,)`, in float64.

    Example:
        >>> import numpy as np, prerank
        >>> from ngboost import NGBRegressor
        >>> from ngboost.distns import MultivariateNormal
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> Y = X + rng.normal(size=(300, 1)) * [1.0, 0.8]
        >>> Y[:, 1] += 0.6 * rng.normal(size=300)
        >>> model = NGBRegressor(Dist=MultivariateNormal(2), n_estimators=50, verbose=False)
        >>> dist = from_ngboost(model.fit(X[:200], Y[:200]).pred_dist(X[200:]))
        >>> dist.batch_shape, dist.event_shape
        (torch.Size([100]), torch.Size([2]))
        >>> table = prerank.diagnose(dist, Y[200:], generator=0).table
    """
    distns = library("ngboost.distns", "from_ngboost")
    dists = list(dist) if isinstance(dist, list | tuple) else [dist]
    for part in dists:
        if not isinstance(part, distns.RegressionDistn):
            raise wrong_type("dist", part, "what NGBRegressor.pred_dist returns, or a list of them")
    if len(dists) == 1 and getattr(dists[0], "multi_output", False):
        return _multivariate(dists[0])
    return product([_margin(part, distns) for part in dists])


def _multivariate(dist: Any) -> td.MultivariateNormal:
    # NGBoost has the factor of the precision, L L'.
    factor = _tensor(dist.L)
    return td.MultivariateNormal(_tensor(dist.loc), precision_matrix=factor @ factor.mT)


def _student(dist: Any) -> td.StudentT:
    loc = _tensor(dist.loc)
    return td.StudentT(_tensor(dist.df).expand_as(loc), loc, _tensor(dist.scale))


# By class of NGBoost, and found by isinstance: subclasses fix a parameter, or the degrees of
# freedom (Cauchy).
_FAMILIES: dict[str, Callable[[Any], Distribution]] = {
    "Normal": lambda d: td.Normal(_tensor(d.loc), _tensor(d.scale)),
    "LogNormal": lambda d: td.LogNormal(_tensor(d.loc), _tensor(d.scale)),
    "Laplace": lambda d: td.Laplace(_tensor(d.loc), _tensor(d.scale)),
    "T": _student,
    "TFixedDf": _student,
    "TFixedDfFixedVar": _student,
    "Gamma": lambda d: td.Gamma(_tensor(d.alpha), _tensor(d.beta)),
    "Exponential": lambda d: td.Exponential(1 / _tensor(d.scale)),
    "Weibull": lambda d: td.Weibull(_tensor(d.scale), _tensor(d.shape)),
    "HalfNormal": lambda d: td.HalfNormal(_tensor(d.scale)),
    "Beta": lambda d: td.Beta(_tensor(d.alpha), _tensor(d.beta)),
    "Poisson": lambda d: td.Poisson(_tensor(d.mu)),
}


def _margin(dist: Any, distns: Any) -> Distribution:
    for name, build in _FAMILIES.items():
        if isinstance(dist, getattr(distns, name, ())):  # not every version has them all
            return build(dist)
    raise InputTypeError(
        f"dist is a {type(dist).__name__} of NGBoost, whose distribution is not known here; known "
        f"are {', '.join(_FAMILIES)} and, alone, MultivariateNormal. Draw samples (S, N, D) of it "
        "and wrap them in prerank.Ensemble"
    )


def _tensor(value: npt.ArrayLike | Sequence[float]) -> Tensor:
    return torch.from_numpy(np.array(value, dtype=np.float64))
