"""Regression problems whose true conditional distribution is known."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from prerank.errors import InputError
from prerank.inputs import as_count, as_generator, as_positive

__all__ = ["SYNTHETIC", "AR1Regression", "OutlierRegression"]


def _check_between(least: float, most: float, **values: float) -> None:
    for name, value in values.items():
        if not least < value < most:
            raise InputError(f"{name} must lie in ({least:g}, {most:g}), got {value}")


@dataclass(frozen=True)
class AR1Regression:
    r"""Normal targets with curved means, spreads that depend on x and AR(1) correlation.

    .. math:: Y_d \mid x \sim N\big(\sin(\pi x_1 + d),\ s(x)^2\big), \quad
              s(x) = c \, \big(\tfrac12 + \tfrac14 (x_2 + 1)\big), \quad
              \mathrm{Corr}(Y_d, Y_e) = r^{|d-e|},

    for d = 0, ..., D - 1 and x uniform on [-1, 1]^2. Two problems that differ in r alone have the
    same margins: the distribution of one, taken as a forecast of the other, has calibrated margins
    and a wrong dependence.

    Args:
        dim: number of targets, D.
        correlation: r, in (-1, 1).
        spread: c, a factor on all standard deviations.

    Example:
        >>> truth = AR1Regression(dim=3)
        >>> x, y = truth.sample(10, generator=0)
        >>> x.shape, y.shape, truth.conditional(x).batch_shape
        (torch.Size([10, 2]), torch.Size([10, 3]), torch.Size([10]))
    """

    dim: int = 4
    correlation: float = 0.7
    spread: float = 1.0

    def __post_init__(self) -> None:
        """Check the settings."""
        as_count(self.dim, "dim", minimum=1)
        as_positive(self.spread, "spread")
        _check_between(-1, 1, correlation=self.correlation)

    def sample(
        self, n: int, *, generator: torch.Generator | int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw n rows: inputs `(n, 2)` and targets `(n, dim)`, in float64."""
        uniform, normal = _noise(n, 2, self.dim, generator)
        x = 2 * uniform - 1
        dist = self.conditional(x)
        return x, dist.loc + (dist.scale_tril @ normal).squeeze(-1)

    def conditional(self, x: Tensor) -> MultivariateNormal:
        """True distribution of the targets given inputs `(..., 2)`."""
        index = torch.arange(self.dim, dtype=x.dtype, device=x.device)
        loc = torch.sin(torch.pi * x[..., :1] + index)
        scale = self.spread * (0.5 + 0.25 * (x[..., 1:] + 1))  # (..., 1)
        correlation = torch.tensor(self.correlation, dtype=x.dtype, device=x.device)
        factor = torch.linalg.cholesky(correlation ** _lags(index))
        return MultivariateNormal(loc, scale_tril=scale.unsqueeze(-1) * factor)


@dataclass(frozen=True)
class OutlierRegression:
    r"""Normal targets with outliers among them: wider, lifted or otherwise correlated.

    .. math:: Y \mid x \sim (1 - p)\, N\big(\mu(x),\ s(x)^2 R(r)\big)
              + p\, N\big(\mu(x) + m\, s(x)\, 1,\ k^2 s(x)^2 R(q)\big),

    .. math:: \mu_d(x) = x_1 \cos d, \quad s(x) = e^{x_2 / 2}, \quad R(r)_{de} = r^{|d-e|},

    for d, e = 0, ..., D - 1 and x uniform on [-1, 1]^2. The inputs do not show which rows are
    outliers. A Gaussian fitted by likelihood stretches, shifts or loses correlation to reach
    them, and is wrong for all other rows; one that ignores them is nearly calibrated.

    Args:
        dim: number of targets, D.
        share: p, of outliers among the rows, in (0, 1).
        factor: k, how many times wider they spread.
        shift: m, by how many standard deviations of the other rows they are lifted.
        correlation: r, of the other rows, in (-1, 1).
        outlier_correlation: q, in (-1, 1).

    Example:
        >>> truth = OutlierRegression(dim=3, share=0.05, factor=5.0)
        >>> x, y = truth.sample(10, generator=0)
        >>> x.shape, y.shape, truth.conditional(x).batch_shape
        (torch.Size([10, 2]), torch.Size([10, 3]), torch.Size([10]))
    """

    dim: int = 3
    share: float = 0.05
    factor: float = 1.0
    shift: float = 0.0
    correlation: float = 0.5
    outlier_correlation: float = 0.5

    def __post_init__(self) -> None:
        """Check the settings."""
        as_count(self.dim, "dim", minimum=1)
        as_positive(self.factor, "factor")
        both = {"correlation": self.correlation, "outlier_correlation": self.outlier_correlation}
        _check_between(-1, 1, **both)
        _check_between(0, 1, share=self.share)
        _check_between(-math.inf, math.inf, shift=self.shift)

    def sample(
        self, n: int, *, generator: torch.Generator | int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw n rows: inputs `(n, 2)` and targets `(n, dim)`, in float64."""
        uniform, normal = _noise(n, 3, self.dim, generator)
        x, outlier = 2 * uniform[:, :2] - 1, uniform[:, 2] < self.share
        parts = self.conditional(x).component_distribution
        assert isinstance(parts, MultivariateNormal)
        points = parts.loc + (parts.scale_tril @ normal.unsqueeze(1)).squeeze(-1)  # (n, 2, D)
        return x, torch.where(outlier.unsqueeze(1), points[:, 1], points[:, 0])

    def conditional(self, x: Tensor) -> MixtureSameFamily:
        """True distribution of the targets given inputs `(..., 2)`; component 1: the outliers."""

        def pair(*values: float) -> Tensor:
            return torch.tensor(values, dtype=x.dtype, device=x.device).reshape(2, 1, 1)

        index = torch.arange(self.dim, dtype=x.dtype, device=x.device)
        mean = x[..., :1] * index.cos()  # (..., D)
        scale = (x[..., 1:] / 2).exp()  # (..., 1)
        both = pair(self.correlation, self.outlier_correlation)
        root = torch.linalg.cholesky(both ** _lags(index))
        factor = scale[..., None, None] * pair(1.0, self.factor) * root  # (..., 2, D, D)
        lift = scale.unsqueeze(-2) * pair(0.0, self.shift).squeeze(-1)  # (..., 2, 1)
        weights = pair(1 - self.share, self.share).flatten().expand(*x.shape[:-1], 2)
        return MixtureSameFamily(
            Categorical(weights),
            MultivariateNormal(mean.unsqueeze(-2) + lift, scale_tril=factor),
        )


SYNTHETIC: dict[str, AR1Regression | OutlierRegression] = {
    "ar1": AR1Regression(dim=3),
    "outliers": OutlierRegression(dim=3, share=0.05, factor=5.0),
}
"""Problems of known distribution that need no file, by the names in plans and `open_dataset`."""


def _noise(
    n: int, uniforms: int, dim: int, generator: torch.Generator | int | None
) -> tuple[Tensor, Tensor]:
    """Uniforms `(n, uniforms)` and normals `(n, dim, 1)`, in float64."""
    source = as_generator(generator, "data")
    as_count(n, "n", minimum=1)
    device = source.device if source else None
    uniform = torch.rand(n, uniforms, generator=source, dtype=torch.float64, device=device)
    normal = torch.randn(n, dim, 1, generator=source, dtype=torch.float64, device=device)
    return uniform, normal


def _lags(index: Tensor) -> Tensor:
    """How far targets lie apart, `(D, D)`."""
    return (index.unsqueeze(-1) - index).abs()
