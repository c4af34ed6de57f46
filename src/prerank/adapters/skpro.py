"""Distributions of skpro, which hold a distribution for every row and column of a table."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from prerank.adapters.labels import Labelled, by_label, check_frame, same_labels
from prerank.adapters.mixtures import Mixture, mixture
from prerank.distributions import Ensemble
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.extras import library
from prerank.inputs import as_count, as_generator, wrong_type

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["from_skpro"]


@overload
def from_skpro(
    dist: object,
    y: None = None,
    *,
    n_samples: int = 100,
    generator: torch.Generator | int | None = None,
) -> Distribution: ...


@overload
def from_skpro(
    dist: object,
    y: "pd.DataFrame",
    *,
    n_samples: int = 100,
    generator: torch.Generator | int | None = None,
) -> Labelled: ...


def from_skpro(
    dist: object,
    y: "pd.DataFrame | None" = None,
    *,
    n_samples: int = 100,
    generator: torch.Generator | int | None = None,
) -> Distribution | Labelled:
    """The distribution of `predict_proba(X)`, exact where it is known and by samples elsewhere.

    The columns of most laws of skpro are independent of each other given x. Normal, LogNormal,
    Laplace, TDistribution, Uniform, Gamma, Exponential, Weibull, HalfNormal, Beta and Poisson give
    their counterpart in torch, a Mixture the mixture of its parts, and an Empirical
    distribution the `Ensemble` of its own samples. Of any other distribution samples are drawn.

    Args:
        dist: a distribution of skpro with N rows and D columns.
        y: observations with the same rows and columns, in any order. Without them rows and columns
            are those of `dist`, in its order, and observations have to come in the same.
        n_samples: draws, for laws that are not known here.
        generator: a generator or seed of these draws. skpro takes them from numpy's global state,
            which is seeded for the call and left as it was.

    Returns:
        A distribution with `batch_shape (N,)` and `event_shape (D,)`, in float64. With `y` it comes
        as a `Labelled`, with the observations in its order.

    Example:
        >>> import numpy as np, pandas as pd, prerank
        >>> from skpro.distributions import Normal as SkproNormal
        >>> rng = np.random.default_rng(0)
        >>> mean = rng.normal(size=(200, 2))
        >>> y = pd.DataFrame(mean + rng.normal(size=(200, 2)), columns=["height", "weight"])
        >>> predicted = SkproNormal(mu=mean, sigma=1.0, index=y.index, columns=y.columns)
        >>> dist = from_skpro(predicted)
        >>> dist.batch_shape, dist.event_shape
        (torch.Size([200]), torch.Size([2]))
        >>> table = prerank.diagnose(dist, y, generator=0).table
        >>> shuffled = y.sample(frac=1, random_state=0)
        >>> table.equals(prerank.diagnose(*from_skpro(predicted, shuffled), generator=0).table)
        True
    """
    families = library("skpro.distributions", "from_skpro")
    base = library("skpro.distributions.base", "from_skpro").BaseDistribution
    if not isinstance(dist, base):
        raise wrong_type("dist", dist, "a distribution of skpro, as predict_proba returns it")
    if dist.ndim != 2:
        raise ShapeError("dist is a scalar distribution of skpro: it needs an index and columns")
    count = as_count(n_samples, "n_samples", minimum=2)
    if y is not None:
        check_frame(y, "y")
        same_labels("rows", dist.index, y.index, "dist")
        same_labels("columns", dist.columns, y.columns, "dist")
    known = _exact(dist, families)
    if known is None:
        with _forked_numpy(as_generator(generator, "skpro")):
            drawn = dist.sample(count)
        known = Ensemble(drawn.to_numpy().reshape(count, *dist.shape))
    if y is None:
        return known
    return Labelled(known, y.reindex(index=dist.index, columns=dist.columns))


def _exact(dist: Any, families: Any) -> Distribution | None:
    """The same distribution in torch, None where it is not known."""
    name = type(dist).__name__
    # The class itself, not a subclass: that may be another distribution.
    if name in _FAMILIES and type(dist) is getattr(families, name, None):
        parameters = {key: _tensor(value) for key, value in dist.get_params_df().items()}
        return td.Independent(_FAMILIES[name](parameters), 1)
    if type(dist) is families.Mixture:
        return _mixture(dist, families)
    if type(dist) is families.Empirical:
        return _empirical(dist)
    return None


_Parameters = Mapping[str, Tensor]

_FAMILIES: dict[str, Callable[[_Parameters], Distribution]] = {
    "Normal": lambda p: td.Normal(p["mu"], p["sigma"]),
    "LogNormal": lambda p: td.LogNormal(p["mu"], p["sigma"]),
    "Laplace": lambda p: td.Laplace(p["mu"], p["scale"]),
    "TDistribution": lambda p: td.StudentT(p["df"], p["mu"], p["sigma"]),
    "Uniform": lambda p: td.Uniform(p["lower"], p["upper"]),
    "Gamma": lambda p: td.Gamma(p["alpha"], p["beta"]),
    "Exponential": lambda p: td.Exponential(p["rate"]),
    "Weibull": lambda p: td.Weibull(p["scale"], p["k"]),
    "HalfNormal": lambda p: td.HalfNormal(p["sigma"]),
    "Beta": lambda p: td.Beta(p["alpha"], p["beta"]),
    "Poisson": lambda p: td.Poisson(p["mu"]),
}


def _mixture(dist: Any, families: Any) -> Distribution:
    # skpro 2.16 draws all samples of a mixture from a single part, so it has to be put together
    # from laws that are known.
    margins = []
    for part in dist.distributions:
        inner = part[1] if isinstance(part, tuple) else part
        known = _exact(inner, families)
        if not isinstance(known, td.Independent):
            raise InputTypeError(
                f"dist is a Mixture with a part {type(inner).__name__}, whose distribution is not "
                "known here: mix samples (S, N, D) of the parts yourself, and wrap them in "
                "prerank.Ensemble"
            )
        margins.append(known)
    weights = np.ones(len(margins)) if dist.weights is None else np.asarray(dist.weights, float)
    if not dist.indep_cols:
        return mixture(margins, weights=weights)
    # The part is chosen for each column by itself.
    share = _tensor(weights / weights.sum())
    return td.Independent(Mixture([margin.base_dist for margin in margins], share), 1)


def _empirical(dist: Any) -> Ensemble:
    unknown = ~dist.index.isin(dist.spl.index.droplevel(0))
    if unknown.any():
        raise InputError(
            f"dist is an Empirical distribution with {unknown.sum()} rows that have no sample, "
            f"such as {dist.index[unknown][0]}: its index must name rows of its samples"
        )
    samples = by_label(dist.spl[list(dist.columns)], "dist.spl", dist.index)
    if dist.weights is None:
        return Ensemble(samples)
    weights = dist.weights.reindex(dist.spl.index).to_frame()
    return Ensemble(samples, by_label(weights, "dist.weights", dist.index)[..., 0])


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))


@contextmanager
def _forked_numpy(source: torch.Generator | None) -> Iterator[None]:
    """Run numpy's global generator from a seed of `source`, and put it back; without, as it is."""
    if source is None:
        yield
        return
    state = np.random.get_state()  # noqa: NPY002
    try:
        seed = int(torch.randint(2**32, (), generator=source, device=source.device))
        np.random.seed(seed)  # noqa: NPY002
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
