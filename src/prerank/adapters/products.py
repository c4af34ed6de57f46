"""Targets that are independent given x, each with a law of its own."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal, constraints

from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.inputs import Shape

__all__ = ["Product", "product"]


def product(margins: Sequence[Distribution]) -> Distribution:
    r"""The joint law of D targets that are predicted one by one.

    .. math:: f(y) = \prod_{d=1}^D f_d(y_d).

    Args:
        margins: D distributions with `batch_shape (..., N)` and `event_shape ()`. Normals alone
            give `Independent(Normal)`, for which prerank has closed forms; else a `Product`.

    Example:
        >>> from torch.distributions import Gamma
        >>> both = product([Normal(torch.zeros(5), 1.0), Gamma(torch.ones(5), 2.0)])
        >>> both.batch_shape, both.event_shape, both.mean[0]
        (torch.Size([5]), torch.Size([2]), tensor([0.0000, 0.5000]))
    """
    parts = list(margins)
    if not parts:
        raise InputError("margins is empty: give one distribution for each target")
    for part in parts:
        if not isinstance(part, Distribution):
            raise InputTypeError(
                f"margins must be torch.distributions.Distribution, got {type(part).__name__}"
            )
        if part.event_shape or part.batch_shape != parts[0].batch_shape:
            raise ShapeError(
                f"margins have batch_shape {tuple(parts[0].batch_shape)}, but also "
                f"{tuple(part.batch_shape)} with event_shape {tuple(part.event_shape)}: each must "
                "be a law of one number for every row"
            )
    normals = [part for part in parts if isinstance(part, Normal)]
    if len(normals) < len(parts):
        return Product(parts)
    loc = torch.stack([part.loc for part in normals], -1)
    scale = torch.stack([part.scale for part in normals], -1)
    return Independent(Normal(loc, scale, validate_args=False), 1, validate_args=False)


class Product(Distribution):
    r"""Independent targets, `batch_shape (..., N)` and `event_shape (D,)`.

    Args:
        margins: D laws of one number each, `batch_shape (..., N)`.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(self, margins: Sequence[Distribution]) -> None:
        self.margins = tuple(margins)
        self.has_rsample = all(margin.has_rsample for margin in self.margins)
        self.first = self.margins[0]  # tells dtype and device, which are not looked for in tuples
        size = torch.Size((len(self.margins),))
        super().__init__(self.first.batch_shape, size, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """The product of the supports."""
        each = [margin.support for margin in self.margins]
        return constraints.independent(constraints.stack(each, dim=-1), 1)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "Product":
        """Return the same product with batch axes broadcast to `batch_shape`."""
        return Product([margin.expand(torch.Size(batch_shape)) for margin in self.margins])

    @property
    def mean(self) -> Tensor:
        """Exact mean, `(*batch_shape, D)`."""
        return torch.stack([margin.mean for margin in self.margins], -1)

    @property
    def variance(self) -> Tensor:
        """Exact variance of each target, `(*batch_shape, D)`."""
        return torch.stack([margin.variance for margin in self.margins], -1)

    @property
    def covariance_matrix(self) -> Tensor:
        """Diagonal, `(*batch_shape, D, D)`."""
        return torch.diag_embed(self.variance)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, *batch_shape, D)`."""
        terms = [m.log_prob(v) for m, v in zip(self.margins, value.unbind(-1), strict=True)]
        return torch.stack(terms).sum(0)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Draw every target by itself: `(*sample_shape, *batch_shape, D)`."""
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            return torch.stack([margin.sample(shape) for margin in self.margins], -1)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        """Draw with gradients, where every margin can."""
        shape = torch.Size(sample_shape)
        return torch.stack([margin.rsample(shape) for margin in self.margins], -1)
