"""Drawing from any distribution: exact samples to judge by, weighted ones to train through."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from prerank.distributions.ensemble import Ensemble
from prerank.distributions.mixture import GaussianMixture
from prerank.distributions.noise import standard_normal, standard_uniform
from prerank.errors import GradientError
from prerank.inputs import as_count, as_generator

__all__ = ["Draws", "draw", "draw_differentiable"]


class Draws(NamedTuple):
    """Points with weights.

    Attributes:
        points: `(S, *batch_shape, D)`.
        weights: `(S, *batch_shape)`, summing to one over S; None when all are 1/S.
    """

    points: Tensor
    weights: Tensor | None = None


def draw(
    dist: Distribution,
    n_samples: int,
    *,
    generator: torch.Generator | int | None = None,
    gradient: bool = False,
) -> Draws:
    """Draw independent samples of the exact law.

    The noise is independent across rows and shared by the members of a stack: for
    `batch_shape (M, N)` the M predictors are judged on common random numbers, and the result
    is that of M separate calls with the same seed. (Distributions that prerank does not know
    draw all their noise themselves, under a forked global state.)

    Args:
        dist: any distribution over vectors. An `Ensemble` gives its own members.
        n_samples: S, at least 2.
        generator: a generator or seed.
        gradient: use `rsample` where there is one.
    """
    as_count(n_samples, "n_samples", minimum=2)
    with torch.set_grad_enabled(gradient and torch.is_grad_enabled()):
        if isinstance(dist, Ensemble):
            return Draws(dist.samples, dist.weights)
        return Draws(_points(dist, n_samples, as_generator(generator)))


def draw_differentiable(
    dist: Distribution, n_samples: int, *, generator: torch.Generator | int | None = None
) -> Draws:
    """Draw points whose weighted averages have the gradient of the expectation.

    A `GaussianMixture` gives stratified draws with weights, an `Ensemble` its members, anything
    else `rsample`.

    Raises:
        GradientError: for a distribution without `rsample`. No sampler is swapped in for it.
    """
    as_count(n_samples, "n_samples", minimum=2)
    source = as_generator(generator)
    if isinstance(dist, Ensemble):
        return Draws(dist.samples, dist.weights)
    if isinstance(dist, GaussianMixture):
        rows = _row_shape(dist)
        offset = standard_uniform(rows, like=dist.loc, generator=source)
        normal = standard_normal(
            (n_samples, *rows, *dist.event_shape), like=dist.loc, generator=source
        )
        return Draws(*dist.stratify(offset, normal))
    if not dist.has_rsample:
        raise GradientError(
            f"{type(dist).__name__} has no rsample, so no gradient reaches its parameters: it can "
            "be diagnosed but not trained through. An Ensemble of differentiable samples can, and "
            "prerank.GaussianMixture has an rsample for mixtures"
        )
    return Draws(_points(dist, n_samples, source))


def _row_shape(dist: Distribution) -> tuple[int, ...]:
    """Shape of noise that is fresh for each row and broadcast over the stack."""
    return (*[1] * (len(dist.batch_shape) - 1), *dist.batch_shape[-1:])


@singledispatch
def _points(dist: Distribution, n: int, generator: torch.Generator | None) -> Tensor:
    """Draw from a distribution of another library; gradients follow the grad mode."""
    with _forked_state(generator):
        if dist.has_rsample and torch.is_grad_enabled():
            return dist.rsample(torch.Size((n,)))
        return dist.sample(torch.Size((n,)))


@_points.register
def _(dist: GaussianMixture, n: int, generator: torch.Generator | None) -> Tensor:
    rows = _row_shape(dist)
    uniform = standard_uniform((n, *rows), like=dist.loc, generator=generator)
    normal = standard_normal((n, *rows, *dist.event_shape), like=dist.loc, generator=generator)
    with torch.no_grad():
        points = dist.place(dist.locate(uniform), normal)
    return dist.with_gradient(points)


@_points.register
def _(dist: MultivariateNormal, n: int, generator: torch.Generator | None) -> Tensor:
    shape = (n, *_row_shape(dist), *dist.event_shape)
    normal = standard_normal(shape, like=dist.loc, generator=generator)
    return dist.loc + (dist.scale_tril @ normal.unsqueeze(-1)).squeeze(-1)


@_points.register(Independent)
def _(dist: Independent[Any], n: int, generator: torch.Generator | None) -> Tensor:
    base = dist.base_dist
    if not isinstance(base, Normal):
        return _points.dispatch(Distribution)(dist, n, generator)
    shape = (n, *_row_shape(dist), *dist.event_shape)
    normal = standard_normal(shape, like=base.loc, generator=generator)
    return base.loc + base.scale * normal


@contextmanager
def _forked_state(generator: torch.Generator | None) -> Iterator[None]:
    """Run torch's global generators from a seed of ours, and put them back afterwards."""
    if generator is None:
        yield
        return
    seed = torch.randint(2**62, (), generator=generator, device=generator.device)
    with torch.random.fork_rng():
        torch.manual_seed(int(seed))
        yield
