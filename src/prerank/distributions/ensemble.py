"""Raw samples as a distribution."""

from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.distributions.joint import JointDistribution
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.inputs import (
    Shape,
    as_generator,
    as_missing,
    as_points,
    as_tensor,
    check_finite,
    check_same_device,
)

__all__ = ["Ensemble", "check_unweighted"]


class Ensemble(JointDistribution):
    r"""S samples per row, as numpy arrays, tables or tensors.

    .. math:: \hat F(A) = \sum_{s=1}^S w_s 1\{y_s \in A\}, \qquad \sum_s w_s = 1.

    Pre-ranks and scores use the members themselves: nothing is drawn anew. Members that carry a
    gradient keep it, so an ensemble of differentiable samples can be trained through.

    Args:
        samples: `(S, ..., N, D)`, the sample axis first, S >= 2.
        weights: `(S,)` or `(S, ..., N)`, non-negative; normalised over S. Equal by default.
        missing: `"available"` takes NaN where a member has no value. Then only functions with an
            argument of this name look at the ensemble.

    Example:
        >>> import numpy as np
        >>> members = np.random.default_rng(0).normal(size=(20, 50, 3))
        >>> Ensemble(members).batch_shape, Ensemble(members).event_shape
        (torch.Size([50]), torch.Size([3]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector
    has_rsample = False

    def __init__(self, samples: object, weights: object = None, *, missing: str = "raise") -> None:
        gaps = as_missing(missing)
        remedy = "remove those rows or impute them first"
        if not gaps:
            remedy += ", or pass missing='available'"
        points = as_points(samples, "samples", min_dims=3, gaps=gaps, remedy=remedy)
        if points.shape[0] < 2:
            raise ShapeError(
                f"samples has shape {tuple(points.shape)}: the first axis is the sample axis and "
                "needs at least 2 samples"
            )
        self.samples = points
        self.weights = None if weights is None else _normalise(weights, points)
        self.has_gaps = gaps and bool(points.isnan().any())
        if self.has_gaps and weights is not None:
            raise InputError(
                "samples with weights have missing values: remove those rows, or pass samples of "
                "equal weight"
            )
        super().__init__(points.shape[1:-1], points.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "Ensemble":
        """Return the same ensemble with batch axes broadcast to `batch_shape`."""
        lead = (1,) * (len(batch_shape) - len(self.batch_shape))

        def widened(tensor: Tensor, *event: int) -> Tensor:
            rows = tensor.reshape(len(tensor), *lead, *tensor.shape[1:])
            return rows.expand(len(tensor), *batch_shape, *event)

        weights = None if self.weights is None else widened(self.weights)
        return self._like(widened(self.samples, *self.event_shape), weights)

    @cached_property
    def extremes(self) -> Tensor:
        """Smallest and largest number of all members, `(2,)`; they are looked through once."""
        return torch.stack(self.samples.detach().aminmax())

    @property
    def mean(self) -> Tensor:
        """Mean of the members, `(..., D)`."""
        return self._average(self.samples)

    @property
    def variance(self) -> Tensor:
        """Variance of the empirical law (divided by S, not S - 1), `(..., D)`."""
        return self._average((self.samples - self.mean).square())

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance of the empirical law, `(..., D, D)`."""
        centred = self.samples - self.mean
        if self.weights is None:
            return torch.einsum("s...d,s...e->...de", centred, centred) / centred.shape[0]
        return torch.einsum("s...,s...d,s...e->...de", self.weights, centred, centred)

    def sample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw members with replacement: `(*sample_shape, *batch_shape, D)`."""
        source = as_generator(generator, f"sample {tuple(sample_shape)}")
        size, dim = self.samples.shape[0], self.samples.shape[-1]
        with torch.no_grad():
            n = torch.Size(sample_shape).numel()
            weights = self.weights
            if weights is None:
                weights = self.samples.new_full((size, *self.batch_shape), 1.0 / size)
            flat = weights.reshape(size, -1).mT.to(source.device if source else weights.device)
            index = torch.multinomial(flat, n, replacement=True, generator=source)
            index = index.mT.reshape(n, *self.batch_shape, 1).to(self.samples.device)
            chosen = self.samples.gather(0, index.expand(n, *self.batch_shape, dim))
            return chosen.reshape(*sample_shape, *self.batch_shape, dim)

    def at_precision_of(self, y: object) -> "Ensemble":
        """Return the members in the lower of their precision and that of `y`.

        A value that was stored in float32 does not tie with the same value in float64.
        """
        dtype = as_tensor(y, "y", gaps=True).dtype
        if dtype in (self.samples.dtype, torch.float64):
            return self
        return self._like(self.samples.to(dtype), self.weights)

    def log_prob(self, value: Tensor) -> Tensor:
        """Raise: samples have no density."""
        raise NotApplicableError(
            "an Ensemble has no density: use a pre-rank that needs none, such as 'copula', or "
            "a distribution with log_prob"
        )

    def _like(self, samples: Tensor, weights: Tensor | None) -> "Ensemble":
        return Ensemble(samples, weights, missing="available" if self.has_gaps else "raise")

    def _average(self, value: Tensor) -> Tensor:
        if self.weights is None:
            return value.mean(0)
        return (self.weights.unsqueeze(-1) * value).sum(0)


def _normalise(weights: object, samples: Tensor) -> Tensor:
    value = as_tensor(weights, "weights").to(samples.dtype)
    shape = samples.shape[:-1]
    check_same_device(samples, value, ("samples", "weights"))
    check_finite(value, "weights")
    if value.shape == shape[:1]:
        value = value.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)
    if value.shape != shape:
        raise ShapeError(
            f"weights has shape {tuple(value.shape)}, but samples has {tuple(samples.shape)}: "
            f"weights must be {tuple(shape[:1])} or {tuple(shape)}"
        )
    total = value.sum(0)
    if bool((value < 0).any()) or not bool((total > 0).all()):
        raise InputError("weights must be non-negative and sum to a positive number in every row")
    return value / total


def check_unweighted(dist: Distribution, action: str) -> None:
    """Refuse samples with weights where PITs must be exactly uniform for a calibrated forecast.

    Args:
        dist: any distribution.
        action: what is to be done, a verb for the message.
    """
    if isinstance(dist, Ensemble) and dist.weights is not None:
        raise InputError(
            "dist has weighted samples, whose PITs are not exactly uniform even if it is "
            f"calibrated, so that p-values would be wrong: {action} samples of equal weight"
        )
