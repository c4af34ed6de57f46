"""Linear pre-ranks: coordinates, their mean, principal components, given directions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal
from torch.nn.functional import pad

from prerank.distributions import Ensemble, GaussianMixture
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.inputs import as_tensor, check_finite, parameter_of
from prerank.numerics.matrices import symmetric_eigen
from prerank.preranks.base import Linear

__all__ = ["PCA", "Location", "Marginal", "Projection"]


@dataclass(frozen=True)
class Marginal(Linear):
    r"""Each target on its own: :math:`\rho_d(y) = y_d`, J = D components.

    Sensitive to: bias and wrong spread of single targets. Blind to their dependence.
    """

    name: ClassVar[str] = "marginal"
    divisible: ClassVar[bool] = True
    unitless: ClassVar[bool] = True

    def directions(
        self, dist: Distribution, pool: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return the unit vectors, `(D, D)`."""
        like = _like(dist, pool)
        return torch.eye(dist.event_shape[0], dtype=like.dtype, device=like.device)

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Return the points themselves."""
        return pool

    def component_names(self, targets: Sequence[str], size: int) -> list[str]:
        """Name the components after the targets."""
        return list(targets)


@dataclass(frozen=True)
class Location(Linear):
    r"""Mean over targets: :math:`\rho(y) = \frac1D \sum_d y_d`.

    Sensitive to: a common bias, and to the sum of all covariances. Depends on units.
    """

    name: ClassVar[str] = "location"
    divisible: ClassVar[bool] = True

    def directions(
        self, dist: Distribution, pool: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return the constant vector 1/D, `(1, D)`."""
        dim, like = dist.event_shape[0], _like(dist, pool)
        return torch.full((1, dim), 1 / dim, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Projection(Linear):
    r"""Given directions: :math:`\rho_j(y) = v_j \cdot y`.

    Args:
        vectors: `(J, D)`, or `(*batch_shape, J, D)` where they differ between rows. They must
            not depend on the observations.

    Example:
        >>> contrast = Projection(torch.tensor([[1.0, -1.0]]))
        >>> contrast.label
        'projection'
    """

    vectors: Tensor
    name: ClassVar[str] = "projection"

    def __post_init__(self) -> None:
        """Convert and check the directions."""
        object.__setattr__(self, "vectors", as_tensor(self.vectors, "vectors"))
        check_finite(self.vectors, "vectors")

    def __eq__(self, other: object) -> bool:
        """Compare by identity of the directions."""
        return isinstance(other, Projection) and other.vectors is self.vectors

    def __hash__(self) -> int:
        """Hash by identity of the directions."""
        return id(self.vectors)

    def check(self, dist: Distribution) -> None:
        """Raise where the directions do not fit the targets."""
        shape = self.vectors.shape
        fits = len(shape) >= 2 and shape[-2] >= 1 and shape[-1] == dist.event_shape[0]
        if not fits or not _broadcasts(shape[:-2], dist.batch_shape):
            raise ShapeError(
                f"projection has vectors of shape {tuple(self.vectors.shape)}, but dist has "
                f"batch_shape {tuple(dist.batch_shape)} and event_shape "
                f"{tuple(dist.event_shape)}: vectors must be (J, D) or (*batch_shape, J, D)"
            )

    def directions(
        self, dist: Distribution, pool: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return the given directions."""
        return self.vectors.detach().to(_like(dist, pool))

    @property
    def of_rows(self) -> bool:
        """Whether directions differ between rows."""
        return self.vectors.dim() > 2

    def for_rows(self, rows: Tensor) -> "Projection":
        """The directions of some rows."""
        if self.vectors.dim() < 3 or len(self.vectors) == 1:
            return self
        return Projection(self.vectors[rows.to(self.vectors.device)])

    @property
    def label(self) -> str:
        """The name alone: directions have no short text."""
        return self.name


@dataclass(frozen=True)
class PCA(Linear):
    r"""Principal components of the predictive covariance at x.

    .. math:: \rho_d(x, y) = V_d(x) \cdot y.

    The covariance is the distribution's own where it is known, that of the pooled S + 1 points
    otherwise (with the observation among them, so that all members are treated alike). Each
    eigenvector is oriented so that its entries sum to a positive number, or, where they sum to
    zero, so that the first of its largest entries is positive: without a rule the signs differ
    between rows and hide a bias. Components come in order of variance; directions carry no
    gradient.

    Sensitive to: bias and wrong spread along the axes of the predicted uncertainty. Depends on
    units.

    Args:
        components: None for all, an int for a number, a float in (0, 1) for the smallest number
            whose mean (over rows) explained fraction of variance reaches it.
    """

    components: int | float | None = None
    name: ClassVar[str] = "pca"

    def __post_init__(self) -> None:
        """Check the number of components."""
        c = self.components
        if c is None:
            return
        whole = isinstance(c, int) and not isinstance(c, bool) and c >= 1
        part = isinstance(c, float) and 0 < c < 1
        if not (whole or part):
            raise InputError(
                f"pca components must be None, an int >= 1 or a fraction in (0, 1), got {c!r}"
            )

    def check(self, dist: Distribution) -> None:
        """Raise where more components are asked for than there are targets."""
        dim = dist.event_shape[0]
        if isinstance(self.components, int) and self.components > dim:
            raise NotApplicableError(
                f"{self.label} needs at least {self.components} targets, but D = {dim}: "
                f"use pca({dim}) or pca"
            )

    def directions(
        self, dist: Distribution, pool: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor | None:
        """Return the oriented eigenvectors as rows, `(*batch_shape, J, D)`."""
        decomposition = self.decompose(dist, pool, weights)
        if decomposition is None:
            return None
        values, vectors = decomposition
        return vectors[..., : self.count(values), :]

    def decompose(
        self, dist: Distribution, pool: Tensor | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """Return variances `(*batch_shape, D)`, descending, and all D oriented eigenvectors.

        None where they have to be estimated and there is no pool.
        """
        with torch.no_grad():
            covariance = predictive_covariance(dist)
            if covariance is None:
                if pool is None:
                    return None
                covariance = _pooled_covariance(pool, weights)
                check_finite(covariance, "the covariance of the samples")
            values, vectors = symmetric_eigen(covariance)
            return values.clamp_min(0), _orient(vectors)

    def component_names(self, targets: Sequence[str], size: int) -> list[str]:
        """Name the components pc1, pc2, ..."""
        return [f"pc{j + 1}" for j in range(size)]

    def count(self, values: Tensor) -> int:
        """Number of components to keep, given variances `(..., D)` in descending order."""
        dim = values.shape[-1]
        if self.components is None:
            return dim
        if isinstance(self.components, int):
            return self.components
        explained = _explained(values).reshape(-1, dim).mean(0)
        return min(int((explained < self.components).sum()) + 1, dim)

    def shares(self, values: Tensor) -> Tensor | None:
        """Weights of all D components, `(*stack, D)`, alike for those that count and else 0.

        For a fraction, whose number of components differs between the members of a stack; None
        where that number is given.

        Args:
            values: variances `(*stack, N, D)` in descending order.
        """
        if not isinstance(self.components, float):
            return None
        # A component counts if those before it do not explain the fraction yet.
        before = pad(_explained(values).mean(-2)[..., :-1], (1, 0))
        counted = (before < self.components).to(values.dtype)
        return counted / counted.sum(-1, keepdim=True)


def _explained(values: Tensor) -> Tensor:
    """Cumulated share of the variance."""
    total = values.sum(-1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
    return values.cumsum(-1) / total


def predictive_covariance(dist: Distribution) -> Tensor | None:
    """Return the covariance `(*batch_shape, D, D)` where the distribution knows it, else None."""
    if isinstance(dist, Ensemble):
        return None  # the members are only a sample: the observation has to be pooled with them
    covariance: Tensor | None
    try:
        if isinstance(dist, Independent):
            covariance = torch.diag_embed(dist.variance)
        else:
            covariance = getattr(dist, "covariance_matrix", None)
    except NotImplementedError:
        return None
    if covariance is None or isinstance(dist, GaussianMixture | MultivariateNormal):
        return covariance
    # Heavy tails: a variance that does not exist has no principal components.
    return covariance if bool(torch.isfinite(covariance).all()) else None


def _broadcasts(shape: torch.Size, batch: torch.Size) -> bool:
    try:
        return torch.broadcast_shapes(shape, batch) == batch
    except RuntimeError:
        return False


def _pooled_covariance(pool: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        centred = pool - pool.mean(0)
        return torch.einsum("s...d,s...e->...de", centred, centred) / pool.shape[0]
    share = weights / weights.sum(0)
    centred = pool - (share.unsqueeze(-1) * pool).sum(0)
    return torch.einsum("s...,s...d,s...e->...de", share, centred, centred)


def _orient(vectors: Tensor) -> Tensor:
    """Give each row vector a sign: positive sum, or positive largest entry where the sum is 0."""
    slack = torch.finfo(vectors.dtype).eps ** 0.5
    total, size = vectors.sum(-1), vectors.abs()
    # The first of several equally large entries: rounding must not choose between them.
    first = (size >= size.amax(-1, keepdim=True) - slack).to(torch.uint8).argmax(-1, keepdim=True)
    largest = vectors.gather(-1, first).squeeze(-1)
    tied = total.abs() < slack
    sign = torch.where(tied, largest, total).sign()
    return vectors * torch.where(sign == 0, 1, sign).unsqueeze(-1)


def _like(dist: Distribution, pool: Tensor | None) -> Tensor:
    """A tensor whose dtype and device the directions follow."""
    reference = pool if pool is not None else parameter_of(dist)
    return torch.empty(0) if reference is None else reference
