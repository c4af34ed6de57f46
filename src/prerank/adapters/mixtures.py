"""Several predictions of the same rows in one: the mixture of their laws."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    constraints,
)

from prerank.distributions import Ensemble, GaussianMixture
from prerank.distributions.draws import kept_state
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.inputs import Shape, as_tensor, check_distribution, check_finite, parameter_of

__all__ = ["Mixture", "as_gaussian_mixture", "mixture", "supported_log_prob"]


class _Gaussians(NamedTuple):
    """Weights `(..., K)`, on a log scale, locations `(..., K, D)` and factors `(..., K, D, D)`."""

    logits: Tensor
    loc: Tensor
    scale_tril: Tensor


def mixture(dists: Sequence[Distribution], *, weights: object = None) -> Distribution:
    r"""The law of a prediction that is chosen at random among M.

    .. math:: F(A) = \sum_{m=1}^M w_m F_m(A), \qquad \sum_m w_m = 1.

    Normals and Gaussian mixtures give a `GaussianMixture`, with its closed forms and its gradients,
    and ensembles of samples an `Ensemble`. All else gives a `Mixture`, whose density and draws are
    exact as well.

    Args:
        dists: M distributions, all of `batch_shape (..., N)` and `event_shape (D,)`.
        weights: `(M,)`, non-negative; normalised. Equal by default.

    Example:
        >>> two = [MultivariateNormal(torch.full((4, 3), m), torch.eye(3)) for m in (0.0, 2.0)]
        >>> both = mixture(two)
        >>> type(both).__name__, both.mean[0], both.variance[0]
        ('GaussianMixture', tensor([1., 1., 1.]), tensor([2., 2., 2.]))
    """
    parts = [check_distribution(dist) for dist in dists]
    share = _check(parts, weights)
    gaussians = [_gaussians(part) for part in parts]
    known = [parameters for parameters in gaussians if parameters is not None]
    if len(known) == len(parts):
        return _join(known, share)
    members = [part for part in parts if isinstance(part, Ensemble)]
    if len(members) == len(parts):
        return _pool(members, share)
    if members:
        raise InputTypeError(
            "dists holds both Ensembles and other distributions: draw samples of the others too, "
            "as in prerank.Ensemble(dist.sample((100,)))"
        )
    return Mixture(parts, share)


def as_gaussian_mixture(dist: Distribution) -> Distribution:
    """Return the same law as a `GaussianMixture` where it is one, else `dist` itself.

    Example:
        >>> from torch.distributions import Categorical
        >>> normal = Independent(Normal(torch.zeros(5, 2, 3), torch.ones(3)), 1)
        >>> dist = MixtureSameFamily(Categorical(logits=torch.zeros(5, 2)), normal)
        >>> type(as_gaussian_mixture(dist)).__name__
        'GaussianMixture'
    """
    parameters = _gaussians(dist)
    return dist if parameters is None else GaussianMixture(*parameters, validate_args=False)


class Mixture(Distribution):
    r"""Mixture of M laws of any kind over the same space.

    .. math:: f(y) = \sum_{m=1}^M w_m f_m(y).

    The component is chosen anew for each row and draw. Draws carry no gradient: the choice of a
    component has none, and there is no common reparameterisation of arbitrary laws.

    Args:
        components: M distributions with the same batch and event shapes.
        weights: `(M,)`, positive and summing to one.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = False

    def __init__(self, components: Sequence[Distribution], weights: Tensor) -> None:
        self.components = tuple(components)
        self.weights = weights
        first = self.components[0]
        super().__init__(first.batch_shape, first.event_shape, validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "Mixture":
        """Return the same mixture with batch axes broadcast to `batch_shape`."""
        size = torch.Size(batch_shape)
        return Mixture([part.expand(size) for part in self.components], self.weights)

    @property
    def mean(self) -> Tensor:
        """Exact mean, `(*batch_shape, *event_shape)`."""
        return self._average([part.mean for part in self.components])

    @property
    def variance(self) -> Tensor:
        """Exact variance: that within the components and that between their means."""
        mean = self.mean
        return self._average(
            [part.variance + (part.mean - mean).square() for part in self.components]
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, *batch_shape, *event_shape)`."""
        parts = torch.stack([supported_log_prob(part, value) for part in self.components])
        log_weights = self.weights.log().reshape(-1, *[1] * (parts.dim() - 1))
        return torch.logsumexp(log_weights + parts, 0)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Draw from the mixture: `(*sample_shape, *batch_shape, *event_shape)`."""
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            draws = torch.stack([part.sample(shape) for part in self.components])
            places = shape + self.batch_shape
            chosen = torch.multinomial(self.weights, places.numel(), replacement=True)
            chosen = chosen.reshape(1, *places, *[1] * len(self.event_shape))
            return draws.gather(0, chosen.expand(1, *draws.shape[1:])).squeeze(0)

    def _average(self, values: Sequence[Tensor]) -> Tensor:
        return torch.einsum("m...,m->...", torch.stack(list(values)), self.weights)


def supported_log_prob(dist: Distribution, value: Tensor) -> Tensor:
    """The log-density, minus infinity outside the support of this one component."""
    try:
        support = dist.support
    except NotImplementedError:  # as for a `Mixture` itself
        support = None
    if support is None:
        return dist.log_prob(value)
    inside: Tensor = support.check(value)
    if inside.dim() > value.dim() - len(dist.event_shape):
        inside = inside.all(-1)
    if bool(inside.all()):
        return dist.log_prob(value)
    within = inside.reshape(*inside.shape, *[1] * len(dist.event_shape))
    # Any point of the support will do: its density is not used.
    with kept_state():
        other = dist.sample()
    density = dist.log_prob(torch.where(within, value, other))
    return torch.where(inside, density, -torch.inf)


def _check(dists: Sequence[Distribution], weights: object) -> Tensor:
    """The weights, normalised, in dtype and on the device of the distributions."""
    if not dists:
        raise InputError("dists is empty: give at least one distribution")
    for dist in dists[1:]:
        if (dist.batch_shape, dist.event_shape) != (dists[0].batch_shape, dists[0].event_shape):
            raise ShapeError(
                f"dists have batch_shape {tuple(dists[0].batch_shape)} and event_shape "
                f"{tuple(dists[0].event_shape)}, but also {tuple(dist.batch_shape)} and "
                f"{tuple(dist.event_shape)}: all must predict the same rows and targets"
            )
    parameter = parameter_of(dists[0])
    like = torch.empty(0) if parameter is None else parameter
    if weights is None:
        return torch.full((len(dists),), 1 / len(dists), dtype=like.dtype, device=like.device)
    share = as_tensor(weights, "weights").to(like)
    if share.shape != (len(dists),):
        raise ShapeError(
            f"weights has shape {tuple(share.shape)}, but there are {len(dists)} distributions"
        )
    check_finite(share, "weights", remedy="give one finite weight for each distribution")
    if bool((share < 0).any()) or not bool(share.sum() > 0):
        raise InputError("weights must be non-negative and sum to a positive number")
    return share / share.sum()


def _join(parts: Sequence[_Gaussians], weights: Tensor) -> GaussianMixture:
    """One mixture of all components, each weighted by its own weight and that of its part."""
    logits = [
        torch.log_softmax(part.logits, -1) + w for part, w in zip(parts, weights.log(), strict=True)
    ]
    return GaussianMixture(
        torch.cat(logits, -1),
        torch.cat([part.loc for part in parts], -2),
        torch.cat([part.scale_tril for part in parts], -3),
        validate_args=False,
    )


def _pool(parts: Sequence[Ensemble], weights: Tensor) -> Ensemble:
    """All members, weighted only where they do not count alike."""
    samples = torch.cat([part.samples for part in parts])
    sizes = {len(part.samples) for part in parts}
    plain = all(part.weights is None for part in parts)
    if plain and len(sizes) == 1 and bool((weights == weights[0]).all()):
        return Ensemble(samples)
    shares = []
    for part, weight in zip(parts, weights, strict=True):
        own = part.weights
        if own is None:
            own = part.samples.new_full(part.samples.shape[:-1], 1 / len(part.samples))
        shares.append(weight * own)
    return Ensemble(samples, torch.cat(shares))


@singledispatch
def _gaussians(dist: Distribution) -> _Gaussians | None:
    """The components of a law that is a mixture of Gaussians, None for any other."""
    return None


@_gaussians.register
def _(dist: GaussianMixture) -> _Gaussians:
    return _Gaussians(dist.logits, dist.loc, dist.scale_tril)


@_gaussians.register(MultivariateNormal)
@_gaussians.register(LowRankMultivariateNormal)
def _(dist: MultivariateNormal | LowRankMultivariateNormal) -> _Gaussians:
    return _one(dist.loc, dist.scale_tril)


@_gaussians.register(Independent)
def _(dist: Independent[Any]) -> _Gaussians | None:
    base = dist.base_dist
    if not isinstance(base, Normal) or dist.reinterpreted_batch_ndims != 1:
        return None
    return _one(base.loc, torch.diag_embed(base.scale))


@_gaussians.register
def _(dist: MixtureSameFamily) -> _Gaussians | None:
    inner = _gaussians(dist.component_distribution)  # one component each, (..., K, 1)
    if inner is None or inner.logits.shape[-1] > 1:
        return None
    batch = dist.batch_shape
    logits = dist.mixture_distribution.logits
    return _Gaussians(
        logits.expand(*batch, logits.shape[-1]), inner.loc.squeeze(-2), inner.scale_tril.squeeze(-3)
    )


def _one(loc: Tensor, scale_tril: Tensor) -> _Gaussians:
    return _Gaussians(torch.zeros_like(loc[..., :1]), loc.unsqueeze(-2), scale_tril.unsqueeze(-3))
