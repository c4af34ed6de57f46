"""Tilted forecasts: draws reweighted by the PITs of all pre-ranks at once."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank import GaussianMixture
from prerank.distributions import draw
from prerank.preranks import Copula, PreRank, applicable

__all__ = ["Ranks", "Tilted", "fit_tilting", "rows_of"]

DRAWS = 100
DEGREES = 4
RIDGES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
_ROUNDS = 60
_RAREST = math.log(8)  # log-ratio at which draws are cut off


def rows_of(dist: GaussianMixture, rows: Tensor) -> GaussianMixture:
    """The predictions of some rows."""
    parts = (part[rows] for part in (dist.logits, dist.loc, dist.scale_tril))
    return GaussianMixture(*parts, validate_args=False)


@dataclass(frozen=True)
class Ranks:
    """PITs of all pre-ranks among fixed draws of a mixture.

    Args:
        base: `batch_shape (N,)`.
        preranks: J components in all.
        pool: P draws `(P, N, D)`.
        ordered: their values of the pre-ranks, ascending, `(N, J, P)`.
    """

    base: GaussianMixture
    preranks: tuple[PreRank, ...]
    pool: Tensor
    ordered: Tensor

    @classmethod
    def of(cls, base: GaussianMixture, seed: int) -> "Ranks":
        """Draw the pool."""
        preranks, _ = applicable("all", base)
        pool = draw(base, DRAWS, generator=seed).points
        empty = cls(base, preranks, pool, pool[:0])
        return cls(base, preranks, pool, empty._values(pool, own=True).sort(-1).values)

    def at(self, rows: Tensor) -> "Ranks":
        """The same for some rows."""
        some = rows_of(self.base, rows)
        return Ranks(some, self.preranks, self.pool[:, rows], self.ordered[rows])

    def basis(self, points: Tensor, *, own: bool = False) -> Tensor:
        r"""Orthonormal Legendre polynomials of the PITs, `(S, N, J * DEGREES)`.

        Args:
            points: `(S, N, D)`.
            own: whether they are the pool itself, whose members are not ranked among themselves.
        """
        values = self._values(points, own=own)
        first = torch.searchsorted(self.ordered, values)
        last = torch.searchsorted(self.ordered, values, right=True) - int(own)
        places = DRAWS + 1 - int(own)
        u = ((first + last + 1) / places - 1).to(points.dtype).movedim(-1, 0)  # (S, N, J)
        powers = [torch.ones_like(u), u]
        for m in range(1, DEGREES):
            powers.append(((2 * m + 1) * u * powers[m] - m * powers[m - 1]) / (m + 1))
        return torch.cat([(2 * m + 1) ** 0.5 * powers[m] for m in range(1, DEGREES + 1)], -1)

    def _values(self, points: Tensor, *, own: bool) -> Tensor:
        """Pre-ranks `(N, J, S)`; the copula counts the pool below each point."""
        values = []
        for prerank in self.preranks:
            if isinstance(prerank, Copula):
                count = torch.zeros_like(points[..., 0])
                for member in self.pool:
                    count += (points >= member).all(-1)
                values.append((count - int(own)).unsqueeze(-1))
            else:
                values.append(prerank.project(points, self.base))
        return torch.cat(values, -1).movedim(0, -1).contiguous()


class Tilted(Distribution):
    r"""A forecast times the exponential of polynomials of its PITs.

    .. math:: f_{new}(y) = \frac{f(y) \exp(\theta \cdot B(y))}{E_f \exp(\theta \cdot B(Y))}.

    B and the expectation rest on `DRAWS` draws for each row. Draws of the new distribution are made
    by rejection: density ratios above 8 are cut to 8 in draws, and not in `log_prob`.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector

    def __init__(self, ranks: Ranks, theta: Tensor) -> None:
        base = ranks.base
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)
        self.ranks, self.theta = ranks, theta
        tilt = ranks.basis(ranks.pool, own=True) @ theta
        self.log_total = tilt.logsumexp(0) - math.log(DRAWS)
        self.bound = (tilt.amax(0) - self.log_total).clamp_max(_RAREST)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(..., N, D)`."""
        points = value.reshape(-1, *self.batch_shape, *self.event_shape)
        tilt = self.ranks.basis(points) @ self.theta - self.log_total
        return self.ranks.base.log_prob(value) + tilt.reshape(value.shape[:-1])

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws `(*sample_shape, N, D)`; rows that reject every draw keep one of the forecast."""
        n = torch.Size(sample_shape).numel()
        points = self.ranks.base.sample((n,))
        filled = torch.zeros(self.batch_shape, dtype=torch.int64, device=points.device)
        for _ in range(_ROUNDS):
            rows = (filled < n).nonzero().squeeze(-1)
            if not len(rows):
                break
            some = self.ranks.at(rows)
            new = some.base.sample((n,))
            chance = some.basis(new) @ self.theta - (self.log_total + self.bound)[rows]
            accepted = torch.rand_like(chance).log() < chance
            place = filled[rows] + accepted.cumsum(0) - 1
            taken, row = (accepted & (place < n)).nonzero(as_tuple=True)
            points[place[taken, row], rows[row]] = new[taken, row]
            filled[rows] += accepted.sum(0)
        return points.reshape(*sample_shape, *self.batch_shape, *self.event_shape)


def fit_tilting(
    dist: GaussianMixture, y: Tensor, seed: int
) -> Callable[[GaussianMixture], Distribution]:
    r"""Maximise the concave likelihood of theta; one half of the rows chooses its ridge.

    .. math:: \frac1N \sum_i \theta \cdot B(y_i) - \log E_f e^{\theta \cdot B(Y_i)}
              - \frac{\rho}{2} |\theta|^2.
    """
    ranks = Ranks.of(dist, seed)
    observed = ranks.basis(y.unsqueeze(0))[0]
    drawn = ranks.basis(ranks.pool, own=True).movedim(0, 1)  # (n, P, features)

    def gain(theta: Tensor, at: Tensor, among: Tensor) -> Tensor:
        return (at @ theta - (among @ theta).logsumexp(-1)).mean() + math.log(DRAWS)

    def fitted(rows: Tensor, ridge: float, start: Tensor) -> Tensor:
        at, among = observed[rows], drawn[rows]
        theta = start.clone().requires_grad_()
        optimiser = torch.optim.LBFGS([theta], max_iter=40, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            value = 0.5 * ridge * theta.square().sum() - gain(theta, at, among)
            value.backward()
            return value

        optimiser.step(loss)
        return theta.detach()

    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)).to(y.device)
    first, second = order.chunk(2)
    theta, best, chosen = torch.zeros_like(observed[0]), 0.0, None
    for ridge in RIDGES:
        theta = fitted(first, ridge, theta)
        held_out = float(gain(theta, observed[second], drawn[second]))
        if held_out > best:
            best, chosen = held_out, ridge
    theta = torch.zeros_like(theta) if chosen is None else fitted(order, chosen, theta)
    return lambda new: Tilted(Ranks.of(new, seed + 1), theta)
