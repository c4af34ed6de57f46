"""Normal scores of the targets of Gaussian mixtures, and their quantiles, in closed form."""

import torch
from torch import Tensor

from prerank.distributions import GaussianMixture
from prerank.numerics.matrices import row_norms

__all__ = ["MixtureMargins", "normal_cdf"]

_BLOCK_VALUES = 2**23  # points times rows, components and targets at a time
_HALVINGS = 60
_LAST = 37.0  # normal score from which on the mass beyond is 0


class MixtureMargins:
    r"""Margins of a mixture on the normal scale, :math:`w_d = \Phi^{-1}(F_d(y_d))`.

    The tail on the side of y is what is computed, so scores have all digits as far as 37. A
    quantile lies between those of the components, where bisection finds it.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.

    Example:
        >>> dist = GaussianMixture(torch.zeros(1, 1), torch.ones(1, 1, 1), torch.ones(1, 1, 1, 1))
        >>> margins = MixtureMargins(dist)
        >>> margins.score(torch.tensor([[21.0]])), margins.quantile(torch.tensor([[20.0]]))
        (tensor([[20.]], dtype=torch.float64), tensor([[21.]], dtype=torch.float64))
    """

    def __init__(self, dist: GaussianMixture) -> None:
        self._loc = dist.loc.double()  # (N, K, D)
        self._scale = row_norms(dist.scale_tril).double()
        self._share = dist.probs.double().unsqueeze(-1)

    def score(self, y: Tensor) -> Tensor:
        """Normal scores of points `(..., N, D)`, in float64."""
        flat = y.double().reshape(-1, *y.shape[-2:])
        blocks = flat.split(max(1, _BLOCK_VALUES // self._loc.numel()))
        return torch.cat([self._scores(block) for block in blocks]).reshape(y.shape)

    def quantile(self, w: Tensor) -> Tensor:
        """Values at normal scores `(N, D)`, in float64."""
        ends = self._loc + self._scale * w.double().unsqueeze(-2)
        low, high = ends.amin(-2), ends.amax(-2)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = self._scores(middle.unsqueeze(0))[0] < w
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        # Scores beyond have no digits: any value may be there.
        return torch.where(w.abs() > _LAST, w.sign() * torch.inf, 0.5 * (low + high))

    def of_row(self, row: int) -> "MixtureMargins":
        """The margins of one row."""
        own = object.__new__(MixtureMargins)
        parts = (part[row : row + 1] for part in (self._loc, self._scale, self._share))
        own._loc, own._scale, own._share = parts
        return own

    def _scores(self, y: Tensor) -> Tensor:
        sign = torch.where(y > (self._share * self._loc).sum(-2), -1.0, 1.0)
        distance = sign.unsqueeze(-2) * (y.unsqueeze(-2) - self._loc) / self._scale
        tail = (self._share * normal_cdf(distance)).sum(-2).clamp_max(1)
        return sign * torch.special.ndtri(tail)


def normal_cdf(x: Tensor) -> Tensor:
    """Of the lower tail all digits, where `torch.special.ndtr` has none below -8.

    Example:
        >>> normal_cdf(torch.tensor(-20.0, dtype=torch.float64))
        tensor(2.7536e-89, dtype=torch.float64)
    """
    return 0.5 * torch.erfc(-x * 0.5**0.5)
