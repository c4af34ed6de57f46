r"""Evidence against calibration that may be looked at after every row.

PITs of a calibrated forecast are uniform given all that was known when the forecast was issued. A
bet is a density f on [0, 1]: whoever stakes one unit on it has f(Z) units after the row, which is
one unit on average. Capital that grows is evidence against uniformity.

.. math:: E_t = \sum_k \pi_k \sum_{s \le t} w_s \prod_{r=s}^{t} f_k(Z_r) + \sum_{s > t} w_s

is the capital of a gambler who splits one unit over bets k and over start times s: a change in row
1,000 is met by the part that is staked from then on. All starts of one bet share one number,
:math:`A_t = (A_{t-1} + w_t) f_k(Z_t)`, so the memory does not grow with t. E is non-negative and
has expectation 1 at every stopping time (it is a martingale), so by Ville's inequality a calibrated
forecast ever reaches :math:`1/\alpha` with probability :math:`\alpha` at most.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from prerank.calibration.curves import check_pits
from prerank.errors import ShapeError
from prerank.inputs import as_count

__all__ = ["BET_CELLS", "EProcess", "InterleavedEvidence", "bet_densities", "unstaked"]

BET_CELLS = 1000
"""Cells of equal width on which a bet is constant, so that its mean is 1 exactly."""

_BIASES = (0.0, 0.1, -0.1, 0.25, -0.25, 0.6, -0.6)  # in predicted standard deviations
_SPREADS = (0.6, 0.8, 0.92, 1.0, 1.08, 1.25, 1.6)  # true over predicted
_OUTLIERS = ((0.02, 5.0), (0.1, 3.0))  # share and spread
_ORDERS = range(1, 7)
_AMPLITUDES = (0.2, -0.2, 0.6, -0.6)
_MOST_CAPITAL = 1e200  # a cap against overflow; capital that is lost keeps the test valid


@lru_cache(maxsize=1)
def bet_densities() -> Tensor:
    r"""Bets, as densities on cells of [0, 1].

    .. math:: f_{\mu\sigma}(z) = \frac{\varphi((q - \mu) / \sigma)}{\sigma \varphi(q)}, \quad
              q = \Phi^{-1}(z), \qquad f_{k\theta}(z) = 1 + \theta \cos(k \pi z), \qquad
              f_{\epsilon\sigma}(z) = 1 - \epsilon + \epsilon f_{0\sigma}(z).

    The first are those of a normal forecast whose truth is shifted by :math:`\mu` and wider by the
    factor :math:`\sigma`, the second have waves of order 1 to 6 (skew, tails, modes), the third
    have a share :math:`\epsilon` of outliers. Each is averaged over `BET_CELLS` cells of equal
    width.

    Returns:
        `(BET_CELLS, K)`, in float64; the mean over the cells is 1.

    Example:
        >>> bet_densities().shape, bool((bet_densities().mean(0) - 1).abs().max() < 1e-12)
        (torch.Size([1000, 74]), True)
    """
    u = torch.linspace(0, 1, BET_CELLS + 1, dtype=torch.float64)
    q = torch.special.ndtri(u)
    cdfs = [
        torch.special.ndtr((q - bias) / spread)
        for spread in _SPREADS
        for bias in _BIASES
        if (bias, spread) != (0.0, 1.0)
    ]
    cdfs += [
        u + theta * torch.sin(math.pi * k * u) / (math.pi * k)
        for k in _ORDERS
        for theta in _AMPLITUDES
    ]
    cdfs += [(1 - share) * u + share * torch.special.ndtr(q / s) for share, s in _OUTLIERS]
    return (torch.stack(cdfs, -1).diff(dim=0) * BET_CELLS).contiguous()


def unstaked(row: int) -> float:
    r"""Share of the capital that is not staked yet after a row, counted from 0.

    .. math:: \sum_{s > t} w_s = \frac1{2 + \log(1 + t)}

    Half of the capital is staked in the first row. What is staked in row t shrinks like
    :math:`1 / (t \log^2 t)`, about as slowly as a sum that converges allows.

    Example:
        >>> unstaked(0), round(unstaked(1000), 3)
        (0.5, 0.112)
    """
    return 1 / (2 + math.log1p(row))


class EProcess:
    """The capital of bets on PITs, row by row, for each component on its own.

    Args:
        shape: of the components; leading axes may hold several streams.

    Attributes:
        rows: number of rows so far.
        capital: of each bet, all starts together, `(*shape, K)`.

    Example:
        >>> z = torch.rand(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> z[:, 1] = z[:, 1].sqrt()  # observed values higher than predicted
        >>> evidence = EProcess([2]).update(z)
        >>> bool(evidence[:, 0].max() < 20), bool(evidence[-1, 1] > 1e6)
        (True, True)
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.rows = 0
        self.capital = torch.zeros(*shape, bet_densities().shape[1], dtype=torch.float64)

    def update(self, z: object) -> Tensor:
        """Bet on the next rows.

        Args:
            z: PITs in the order of time, `(T, *shape)`.

        Returns:
            The e-value of each component after each row, `(T, *shape)`, in float64.
        """
        pits = check_pits(z)
        if pits.shape[1:] != self.capital.shape[:-1]:
            raise ShapeError(
                f"z has shape {tuple(pits.shape)}, where (T, "
                f"{', '.join(map(str, self.capital.shape[:-1]))}) is needed"
            )
        bets = bet_densities()
        cells = (pits.detach().cpu().double() * BET_CELLS).long().clamp(max=BET_CELLS - 1)
        path = torch.empty(pits.shape, dtype=torch.float64)
        for t, cell in enumerate(cells):
            left = unstaked(self.rows)
            stake = (unstaked(self.rows - 1) if self.rows else 1.0) - left
            won = self.capital.add_(stake).mul_(bets[cell])
            self.capital = won.clamp_(max=_MOST_CAPITAL)
            path[t] = self.capital.mean(-1) + left
            self.rows += 1
        return path


class InterleavedEvidence:
    r"""Evidence of forecasts of several components, whose lead may be several rows.

    The forecast of row t with lead h was issued when row t - h was known: given that, its PIT is
    uniform, but not given the rows in between. Every h-th row together make a stream with the
    property that bets need, so there are h e-processes, each a martingale in its own filtration. A
    mean of them is none: who looks at all streams may stop when one of them is about to lose. But
    Ville's inequality holds for each over all rows, at whatever row one looks, so

    .. math:: \max_i \frac{E^{(i)}_t}{h}

    ever reaches :math:`1/\alpha` with probability :math:`\alpha` at most, by the union bound.

    Within a stream, e-values are averaged over the components of a pre-rank, and then over the
    pre-ranks: PITs of one row are uniform given the same past, so this mean is a martingale again,
    whatever their dependence.

    Args:
        sizes: number of components of each pre-rank, P of them.
        lead: h, in rows.

    Example:
        >>> z = torch.rand(300, 3, generator=torch.Generator().manual_seed(0)).sqrt()
        >>> overall, parts = InterleavedEvidence([2, 1], lead=2).update(z)
        >>> overall.shape, parts.shape, bool(overall[-1] > 100)
        (torch.Size([300]), torch.Size([300, 2]), True)
    """

    def __init__(self, sizes: Sequence[int], *, lead: int = 1) -> None:
        self.sizes = [as_count(size, "sizes", minimum=1) for size in sizes]
        self.streams = [
            EProcess([sum(self.sizes)]) for _ in range(as_count(lead, "lead", minimum=1))
        ]

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return sum(stream.rows for stream in self.streams)

    @property
    def capital(self) -> Tensor:
        """Capital of all bets, `(h, J, K)`: with the number of rows, all that has to be kept."""
        return torch.stack([stream.capital for stream in self.streams])

    def restore(self, capital: Tensor, rows: int) -> None:
        """Continue where another one stopped.

        Args:
            capital: of all bets, `(h, J, K)`.
            rows: number of rows so far.
        """
        if capital.shape != self.capital.shape or not bool((capital >= 0).all()):
            raise ShapeError(
                f"capital has shape {tuple(capital.shape)}, where {tuple(self.capital.shape)} with "
                "numbers that are not negative is needed"
            )
        lead = len(self.streams)
        for i, stream in enumerate(self.streams):
            stream.capital = capital[i].double().clone()
            stream.rows = (as_count(rows, "rows", minimum=0) - i + lead - 1) // lead

    def update(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Bet on the next rows.

        Args:
            z: PITs of all pre-ranks side by side, in the order of time, `(T, J)`.

        Returns:
            The evidence after each row, `(T,)`, and that of each pre-rank, `(T, P)`.
        """
        start, lead = self.rows, len(self.streams)
        values = torch.stack([self._now(stream) for stream in self.streams])  # (h, P)
        parts = values.expand(len(z), *values.shape).clone()  # (T, h, P)
        for i, stream in enumerate(self.streams):
            first = (i - start) % lead
            if first < len(z):
                found = self._by_prerank(stream.update(z[first::lead]))
                for at, value in zip(range(first, len(z), lead), found, strict=True):
                    parts[at : at + lead, i] = value  # until the next row of this stream
        return parts.mean(-1).amax(-1) / lead, parts.amax(-2) / lead

    def _now(self, stream: EProcess) -> Tensor:
        left = unstaked(stream.rows - 1) if stream.rows else 1.0
        return self._by_prerank(stream.capital.mean(-1) + left)

    def _by_prerank(self, values: Tensor) -> Tensor:
        return torch.stack([part.mean(-1) for part in values.split(self.sizes, -1)], -1)
