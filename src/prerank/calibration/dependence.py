r"""Is the dependence between targets wrong, given their margins?

Whatever the margins are, as long as they are wrong in the same way in all rows, ranks over the rows
remove it: the normal score of :math:`Z_{id}` is :math:`\Phi^{-1}` of the share of rows with a
smaller PIT of target d. Products of two targets' scores then tell of the dependence alone. In the
null a random member of each row's pool takes the observation's place, and *its* margins are
refitted to ranks too, so that the replicates are exchangeable with what was observed where the
dependence is as predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.calibration.nulls import key_counts, stand_in_keys
from prerank.calibration.uniformity import smallest_rank, tail_cells, tail_levels

__all__ = ["NAMED_DEPENDENCE", "Dependence", "dependence_given_margins"]

NAMED_DEPENDENCE = 0.02
"""P-values of the dependence below it name it."""

_CLEAR = 2.6  # standard deviations of a mean correlation: 1 % on both sides
_CLEAR_PAIR = 4.0  # of one of many pairs
_NAMED_PAIRS = 3
_VALUES = 2**22


@dataclass(frozen=True)
class Dependence:
    """The test of the dependence, and what it finds.

    Attributes:
        p_value: of the dependence given the margins.
        together: 1 where targets move together more than predicted, -1 less, 0 where the mean of
            their correlations does not tell, or other differences are larger.
        extremes: 1 where targets are far out in the same rows more often than predicted, -1 less
            often, 0 where that is not the main difference.
        pairs: the pairs that stand out and the sign of the difference, where they are few.
    """

    p_value: float
    together: int
    extremes: int
    pairs: tuple[tuple[int, int, int], ...]


def dependence_given_margins(
    z: Tensor,
    null_pits: Tensor,
    *,
    resolution: float = 0.0,
    n_null: int = 499,
    generator: int = 0,
) -> Dependence:
    """Test the dependence between targets, whatever their margins are.

    Statistics: the mean product of two targets' scores (their correlation), its largest and its
    mean squared deviation over the pairs, the mean product of squared scores less what the
    correlations explain (extremes in the same rows), that of a square and a score (asymmetry), and
    the slope of the products on what each row predicts. Their smallest rank among the replicates
    is ranked in turn.

    Args:
        z: marginal PITs of the observations, `(N, D)`, D at least 2.
        null_pits: those of the other members of each pool, `(R, N, D)`.
        resolution: `1 / (S + 1)` for ranks among S samples. Their order within a rank is random,
            and more observations than replicates share a rank where margins are wrong: then both
            are read in groups of the observed sizes.
        n_null: number of replicates.
        generator: seed of the choices.

    Example:
        >>> source = torch.Generator().manual_seed(0)
        >>> pool = torch.rand(30, 300, 2, generator=source)
        >>> z = torch.rand(300, 1, generator=source) ** 2  # wrong margins
        >>> same = dependence_given_margins(z.expand(300, 2), pool)
        >>> same.p_value < 0.01, same.together
        (True, 1)
    """
    n, d = z.shape
    n_cells = len(tail_levels(n)) + 1
    cells = torch.cat([tail_cells(z).unsqueeze(0), tail_cells(null_pits)]).cpu()
    own = cells[:1] + torch.arange(d) * n_cells
    drawn = stand_in_keys(cells, n_cells=n_cells, n_null=n_null, generator=generator)
    raw = _cell_scores(n)
    total = _pair_means(raw[cells]).sum(0)
    groups = None
    if resolution > 0:
        ranks = torch.linspace(0, 1, round(1 / resolution) + 1, dtype=torch.float64)[1:-1]
        groups = (z.double().cpu().unsqueeze(0) <= ranks.reshape(-1, 1, 1)).double().mean(1).mT
    upper = torch.triu_indices(d, d, 1)
    parts = []
    for keys in (own, *drawn):
        for block in keys.split(max(1, _VALUES // (n * d))):
            scores = _scores(block, n_cells, groups)
            squares = scores.square() - 1
            products = (scores.mT @ scores / n)[:, upper[0], upper[1]]
            # A normal dependence of correlation r has E[(s^2 - 1)(t^2 - 1)] = 2 r^2.
            fourth = (squares.mT @ squares / n)[:, upper[0], upper[1]] - 2 * products.square()
            fourth = fourth.mean(-1)
            third = scores.mT @ squares / n
            third = (third.sum((1, 2)) - third.diagonal(dim1=1, dim2=2).sum(-1)) / (d * (d - 1))
            pairs = _pair_means(scores)
            # What the others of the pool predict: a row must not be compared with itself.
            predicted = total - _pair_means(raw[(block % n_cells).long()])
            predicted = predicted - predicted.mean(-1, keepdim=True)
            slope = (pairs * predicted).mean(-1) / predicted.std(-1).clamp_min(1e-12)
            spread = (pairs - pairs.mean(-1, keepdim=True)).square().mean(-1).sqrt()
            summary = torch.stack([products.mean(-1), fourth, third, slope, spread], -1)
            parts.append((products, summary))
    products = _standardised(torch.cat([one for one, _ in parts]))
    columns = torch.cat([one for _, one in parts])
    mean, fourth, third, slope, _ = _standardised(columns).unbind(-1)
    sizes = [mean.abs(), fourth.abs(), third.abs(), slope.abs()]
    sizes += [products.abs().amax(-1), products.square().sum(-1)]
    p = smallest_rank(-torch.stack(sizes))
    # A heavier dependence makes the mean correlation vary more than in the null.
    ratio = float(columns[0, -1] / columns[1:, -1].mean())
    return _described(p, mean[0], max(1.0, ratio), fourth[0], products[0], upper)


def _described(
    p: float, mean: Tensor, ratio: float, fourth: Tensor, products: Tensor, upper: Tensor
) -> Dependence:
    clear = products.abs() > _CLEAR_PAIR
    opposite = bool((clear & (products.sign() != mean.sign())).any())
    main = bool(mean.abs() >= fourth.abs())
    together = int(mean.sign()) if main and mean.abs() > _CLEAR * ratio and not opposite else 0
    extremes = int(fourth.sign()) if not main and fourth.abs() > _CLEAR else 0
    pairs: Sequence[tuple[int, int, int]] = ()
    if 0 < int(clear.sum()) <= _NAMED_PAIRS < len(products):
        pairs = [
            (int(upper[0, k]), int(upper[1, k]), int(products[k].sign()))
            for k in clear.nonzero().flatten()
        ]
    return Dependence(p, together, extremes, tuple(pairs))


def _scores(keys: Tensor, n_cells: int, groups: Tensor | None) -> Tensor:
    """Normal scores `(b, N, D)` of the ranks over the rows, from keys `(b, N, D)`.

    Groups `(D, S)` are shares of rows up to each rank: scores are those of their middles.
    """
    b, n, d = keys.shape
    counts = key_counts(keys, n_cells).double()
    middle = (counts.cumsum(-1) - counts / 2) / n
    if groups is not None:
        groups = groups.contiguous()
        edges = torch.nn.functional.pad(groups, (1, 0))
        edges = torch.nn.functional.pad(edges, (0, 1), value=1.0)
        at = torch.searchsorted(groups, middle.transpose(0, 1).reshape(d, -1))
        middle = ((edges[:, :-1] + edges[:, 1:]) / 2).gather(1, at)
        middle = middle.reshape(d, b, n_cells).transpose(0, 1)
    table = torch.special.ndtri(middle.clamp(0.25 / n, 1 - 0.25 / n)).float().reshape(b, -1)
    scores = table.gather(1, keys.reshape(b, -1).long()).reshape(b, n, d)
    return scores / scores.square().mean(1, keepdim=True).sqrt().clamp_min(1e-6)


def _pair_means(scores: Tensor) -> Tensor:
    """Mean product of two targets' scores, `(..., N)` from `(..., N, D)`."""
    d = scores.shape[-1]
    return (scores.sum(-1).square() - scores.square().sum(-1)) / (d * (d - 1))


def _cell_scores(n: int) -> Tensor:
    """Normal score of each cell where PITs are uniform, cut at 3."""
    edges = torch.nn.functional.pad(tail_levels(n), (1, 0))
    edges = torch.nn.functional.pad(edges, (0, 1), value=1.0)
    return torch.special.ndtri((edges[1:] + edges[:-1]) / 2).float().clamp(-3, 3)


def _standardised(values: Tensor) -> Tensor:
    deviation: Tensor = values - values.mean(0)
    return deviation / values.std(0).clamp_min(1e-12)
