"""Regression problems whose true conditional law is known."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank.errors import InputError
from prerank.inputs import as_count, as_generator

__all__ = ["AR1Regression"]


@dataclass(frozen=True)
class AR1Regression:
    r"""Normal targets with curved means, spreads that depend on x and AR(1) correlation.

    .. math:: Y_d \mid x \sim N\big(\sin(\pi x_1 + d),\ s(x)^2\big), \quad
              s(x) = c \, \big(\tfrac12 + \tfrac14 (x_2 + 1)\big), \quad
              \mathrm{Corr}(Y_d, Y_e) = r^{|d-e|},

    for d = 0, ..., D - 1 and x uniform on [-1, 1]^2. Two problems that differ in r alone have the
    same margins, so the law of one is a prediction for the other whose every margin is right and
    whose joint law is wrong.

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
        if not -1 < self.correlation < 1:
            raise InputError(f"correlation must lie in (-1, 1), got {self.correlation}")
        if not self.spread > 0:
            raise InputError(f"spread must be positive, got {self.spread}")

    def sample(
        self, n: int, *, generator: torch.Generator | int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw n rows: inputs `(n, 2)` and targets `(n, dim)`, in float64."""
        source = as_generator(generator, "data")
        as_count(n, "n", minimum=1)
        like = torch.empty(0, dtype=torch.float64, device=source.device if source else None)
        x = 2 * torch.rand(n, 2, generator=source, dtype=like.dtype, device=like.device) - 1
        law = self.conditional(x)
        shape = (n, self.dim, 1)
        noise = torch.randn(shape, generator=source, dtype=like.dtype, device=like.device)
        return x, law.loc + (law.scale_tril @ noise).squeeze(-1)

    def conditional(self, x: Tensor) -> MultivariateNormal:
        """True law of the targets given inputs `(..., 2)`."""
        index = torch.arange(self.dim, dtype=x.dtype, device=x.device)
        loc = torch.sin(torch.pi * x[..., :1] + index)
        scale = self.spread * (0.5 + 0.25 * (x[..., 1:] + 1))  # (..., 1)
        lag = (index.unsqueeze(-1) - index).abs()
        correlation = torch.tensor(self.correlation, dtype=x.dtype, device=x.device) ** lag
        factor = torch.linalg.cholesky(correlation)
        return MultivariateNormal(loc, scale_tril=scale.unsqueeze(-1) * factor)
