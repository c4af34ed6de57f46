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
from prerank.distributions.noise import Noise, RunNoise, as_noise, row_normal, row_uniform
from prerank.errors import GradientError
from prerank.inputs import as_count

__all__ = [
    "Draws",
    "Sweep",
    "draw",
    "draw_differentiable",
    "draw_points",
    "draw_sweep",
    "forked_state",
    "kept_state",
]


class Draws(NamedTuple):
    """Points with weights.

    Attributes:
        points: `(S, *batch_shape, D)`.
        weights: `(S, *batch_shape)`, summing to one over S; None when all are 1/S.
    """

    points: Tensor
    weights: Tensor | None = None


class Sweep(NamedTuple):
    """Noise of one set of stratified draws: see `GaussianMixture.stratify`.

    Attributes:
        offset: `(*stack, N)`, broadcastable over the stack.
        start: like `offset`.
        normal: `(S, *stack, N, D)`.
    """

    offset: Tensor
    start: Tensor
    normal: Tensor


def draw(
    dist: Distribution, n_samples: int, *, generator: Noise | int = None, gradient: bool = False
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
    noise = as_noise(generator)
    with torch.set_grad_enabled(gradient and torch.is_grad_enabled()):
        if isinstance(dist, Ensemble):
            return Draws(dist.samples, dist.weights)
        return Draws(draw_points(dist, n_samples, noise))


def draw_differentiable(
    dist: Distribution, n_samples: int, *, generator: Noise | int = None
) -> Draws:
    """Draw points whose weighted averages have the gradient of the expectation.

    A `GaussianMixture` gives stratified draws with weights, an `Ensemble` its members, a
    distribution with a method `differentiable_draws(n, noise)` those, anything else `rsample`.

    Raises:
        GradientError: for a distribution without `rsample`. No sampler is swapped in for it.
    """
    as_count(n_samples, "n_samples", minimum=2)
    source = as_noise(generator)
    if isinstance(dist, Ensemble):
        return Draws(dist.samples, dist.weights)
    if isinstance(dist, GaussianMixture):
        return Draws(*dist.stratify(*draw_sweep(dist, n_samples, source)))
    if hasattr(dist, "differentiable_draws"):
        return dist.differentiable_draws(n_samples, source)
    if not dist.has_rsample:
        raise GradientError(
            f"{type(dist).__name__} has no rsample, so no gradient reaches its parameters: it can "
            "be diagnosed but not trained through. An Ensemble of differentiable samples can, and "
            "prerank.GaussianMixture has an rsample for mixtures"
        )
    return Draws(draw_points(dist, n_samples, source))


def draw_sweep(dist: GaussianMixture, n: int, noise: Noise) -> Sweep:
    """Draw the noise of n stratified draws."""
    shape = dist.batch_shape, tuple(dist.event_shape)
    offset, start = row_uniform(2, dist.batch_shape, like=dist.loc, noise=noise)
    return Sweep(offset, start, row_normal(n, *shape, like=dist.loc, noise=noise))


@singledispatch
def draw_points(dist: Distribution, n: int, noise: Noise) -> Tensor:
    """Draw from a distribution of another library; gradients follow the grad mode."""
    with forked_state(noise):
        if dist.has_rsample and torch.is_grad_enabled():
            return dist.rsample(torch.Size((n,)))
        return dist.sample(torch.Size((n,)))


@draw_points.register
def _(dist: GaussianMixture, n: int, noise: Noise) -> Tensor:
    uniform = row_uniform(n, dist.batch_shape, like=dist.loc, noise=noise)
    normal = row_normal(n, dist.batch_shape, tuple(dist.event_shape), like=dist.loc, noise=noise)
    with torch.no_grad():
        points = dist.place(dist.locate(uniform), normal)
    return dist.with_gradient(points)


@draw_points.register
def _(dist: MultivariateNormal, n: int, noise: Noise) -> Tensor:
    normal = row_normal(n, dist.batch_shape, tuple(dist.event_shape), like=dist.loc, noise=noise)
    return dist.loc + (dist.scale_tril @ normal.unsqueeze(-1)).squeeze(-1)


@draw_points.register(Independent)
def _(dist: Independent[Any], n: int, noise: Noise) -> Tensor:
    base = dist.base_dist
    if not isinstance(base, Normal):
        return draw_points.dispatch(Distribution)(dist, n, noise)
    normal = row_normal(n, dist.batch_shape, tuple(dist.event_shape), like=base.loc, noise=noise)
    return base.loc + base.scale * normal


@contextmanager
def forked_state(noise: Noise) -> Iterator[None]:
    """Run torch's global generators from a seed of `noise`, and put them back afterwards.

    Example:
        >>> before = torch.get_rng_state()
        >>> with forked_state(torch.Generator().manual_seed(0)):
        ...     points = torch.randn(3)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """
    if noise is None:
        yield
        return
    if isinstance(noise, RunNoise):
        seed = noise.seed()
    else:
        seed = int(torch.randint(2**62, (), generator=noise, device=noise.device))
    with kept_state():
        if torch.cuda.is_initialized() or not torch.backends.cuda.is_built():
            torch.manual_seed(seed)
        else:  # which would keep the seed for the day on which CUDA begins
            torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def kept_state() -> Iterator[None]:
    """Leave torch's global generators as they were; GPUs that nothing uses stay asleep.

    Example:
        >>> before = torch.get_rng_state()
        >>> with kept_state():
        ...     points = torch.randn(3)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """
    with torch.random.fork_rng(None if torch.cuda.is_initialized() else []):
        yield
