r"""One test of the whole joint distribution, for faults that no named pre-rank sees.

Each row has a pool: the observation and R draws of its forecast, as vectors x of normal scores of
their marginal PITs. If the forecast is calibrated, the observation is exchangeable with the other
members of its pool. Bounded scores :math:`c_f(x)` that sum to 0 over each pool are added up over
rows, with one member taken from each pool,

.. math:: S_f = \sum_i c_f(x_i) \Big/ \Big(\sum_i \mathrm{var}_i \, c_f\Big)^{1/2},

once for the observations and B times for members at random. The scores are of two kinds:

- for K directions a, Legendre polynomials of degree 1 to 4 of the rank of :math:`a^\top x` in its
  pool; half of the directions look at all targets, half at pairs of them;
- waves :math:`\cos(w^\top x + b)` of random frequencies, whose squared sums estimate a distance of
  characteristic functions, as the energy distance is.

Three statistics come from them: the mean over directions of :math:`\sum S^2` (sliced), their
maximum (max-sliced) and the mean over waves (energy). The smallest of their three p-values is
compared with that of the B replicates, so the test is valid for every number of rows and draws.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.errors import ShapeError
from prerank.inputs import as_count, as_generator
from prerank.numerics.polynomials import legendre

__all__ = ["OmnibusTest", "omnibus_test"]

_DEGREE = 4
_BLOCK_VALUES = 2**24  # of scores at a time
_FREQUENCIES = (0.4, 2.5)  # least and largest length of w: a normal score has a spread of 1


@dataclass(frozen=True)
class OmnibusTest:
    """Evidence against the joint distribution as a whole.

    Attributes:
        p_value: of the three parts together.
        parts: p-value of each part: `"sliced"`, `"max-sliced"`, `"energy"`.
        n: number of rows.
    """

    p_value: float
    parts: dict[str, float]
    n: int

    def __str__(self) -> str:
        """The p-values in one line."""
        parts = ", ".join(f"{name} {p:.2g}" for name, p in self.parts.items())
        return f"Omnibus test on {self.n:,} rows: p = {self.p_value:.2g} ({parts})"


def omnibus_test(
    z: Tensor,
    null_pits: Tensor,
    *,
    directions: int = 40,
    waves: int = 80,
    n_null: int = 999,
    generator: torch.Generator | int | None = None,
) -> OmnibusTest:
    """Test vectors of marginal PITs against those of other members of their pools.

    Args:
        z: marginal PITs of the observations, `(N, D)`, with two targets at least.
        null_pits: those of the other members of each pool, `(R, N, D)`.
        directions: K.
        waves: number of random frequencies.
        n_null: B.
        generator: source of directions, frequencies and replicates.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> pool = torch.rand(50, 400, 2, generator=g)
        >>> x = 2 * torch.rand(400, generator=g) - 1
        >>> bent = torch.stack([(x + 1) / 2, x.abs()], 1)  # uncorrelated, but not independent
        >>> omnibus_test(bent, pool, generator=0).p_value < 0.01
        True
        >>> omnibus_test(pool[0], pool[1:], generator=0).p_value > 0.01
        True
    """
    if z.dim() != 2 or z.shape[-1] < 2 or null_pits.shape[1:] != z.shape:
        raise ShapeError(
            f"z must be (N, D) with D of 2 or more, and null_pits (R, N, D): got {tuple(z.shape)} "
            f"and {tuple(null_pits.shape)}"
        )
    replicates = as_count(n_null, "n_null", minimum=19)
    source = as_generator(generator, "null") or torch.Generator().manual_seed(torch.seed())
    n, dim = z.shape
    axes = _directions(as_count(directions, "directions", minimum=2), dim, source).to(z)
    lengths = torch.empty(as_count(waves, "waves", minimum=1)).uniform_(0, 1, generator=source)
    low, high = _FREQUENCIES
    lengths = low * (high / low) ** lengths.to(z)
    frequencies = lengths.unsqueeze(-1) * _directions(waves, dim, source).to(z)
    phases = 2 * torch.pi * torch.rand(waves, generator=source).to(z)
    sums = variances = torch.zeros((), dtype=torch.float64, device=z.device)
    for pools in _pools(z, null_pits, len(axes) * _DEGREE + waves):
        scores = _scores(pools, axes, frequencies, phases)  # (P, n, F)
        choice = torch.randint(
            len(pools), (replicates, pools.shape[1]), generator=source, device=source.device
        ).to(z.device)
        choice = torch.cat([torch.zeros_like(choice[:1]), choice])  # the observation comes first
        sums = sums + _chosen_sums(scores, choice)
        variances = variances + scores.double().square().mean(0).sum(0)
    squares = sums.square() / variances.clamp_min(1e-12)  # (B + 1, F)
    along = squares[:, : len(axes) * _DEGREE].unflatten(-1, (len(axes), _DEGREE)).sum(-1)
    statistics = {
        "sliced": along.mean(-1),
        "max-sliced": along.amax(-1),
        "energy": squares[:, len(axes) * _DEGREE :].mean(-1),
    }
    p_values = torch.stack([_upper_ranks(values) for values in statistics.values()])
    least = _upper_ranks(-p_values.amin(0))
    parts = dict(zip(statistics, p_values[:, 0].tolist(), strict=True))
    return OmnibusTest(float(least[0]), parts, n)


def _directions(count: int, dim: int, source: torch.Generator) -> Tensor:
    """Unit vectors `(count, D)`: the first half in all targets, the others in pairs of them."""
    normal = torch.randn(count, dim, generator=source, device=source.device)
    keys = torch.rand(count, dim, generator=source, device=source.device)
    pair = keys >= keys.topk(2).values[:, -1:]
    pair[: (count + 1) // 2] = True
    return torch.nn.functional.normalize(normal * pair, dim=-1)


def _pools(z: Tensor, null_pits: Tensor, scores: int) -> Iterator[Tensor]:
    """Normal scores of the members, the observation first, some rows at a time: `(P, n, D)`."""
    members = len(null_pits) + 1
    step = max(1, _BLOCK_VALUES // (members * scores))
    tiny = torch.finfo(z.dtype).eps
    for start in range(0, len(z), step):
        rows = slice(start, start + step)
        pits = torch.cat([z[rows].unsqueeze(0), null_pits[:, rows].to(z)])
        yield torch.special.ndtri(pits.clamp(tiny, 1 - tiny))


def _scores(pools: Tensor, axes: Tensor, frequencies: Tensor, phases: Tensor) -> Tensor:
    """Scores of every member of the pools, which sum to 0 over each pool: `(P, n, F)`."""
    order = (pools @ axes.mT).argsort(0).argsort(0)
    place = (order.to(pools) + 0.5) / len(pools)
    along = legendre(2 * place - 1, _DEGREE).flatten(-2)
    scores = torch.cat([along, torch.cos(pools @ frequencies.mT + phases)], -1)
    return scores - scores.mean(0)


def _chosen_sums(scores: Tensor, choice: Tensor) -> Tensor:
    """Sums over rows of the scores of chosen members, `(B + 1, F)`."""
    members, n, count = scores.shape
    flat = scores.reshape(members * n, count)
    index = choice * n + torch.arange(n, device=choice.device)
    step = max(1, _BLOCK_VALUES // (n * count))
    parts = [flat[some].sum(1, dtype=torch.float64) for some in index.split(step)]
    return torch.cat(parts)


def _upper_ranks(values: Tensor) -> Tensor:
    """For each value, the share of values that are at least as large."""
    ordered = values.sort().values
    return (len(values) - torch.searchsorted(ordered, values)).double() / len(values)
