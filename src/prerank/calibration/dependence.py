r"""Is the dependence between targets wrong, given their margins?

Whatever the margins are, as long as they are wrong in the same way in all rows, ranks over the rows
remove it: PITs are replaced by uniform ones in the same order, and the normal score of
:math:`Z_{id}` is :math:`\Phi^{-1}` of the share of rows with a smaller one of target d. Products
of two targets' scores then depend on the dependence alone. In the null a random member of each
row's pool takes the observation's place, and *its* margins are refitted to ranks too, so that the
replicates are exchangeable with what was observed where the dependence is as predicted.

Where rows depend on each other, these replicates give the means and units of the statistics only.
A statistic T of weighted rows, whose margins are refitted with the weights, has the derivatives

.. math:: \Lambda_b = \frac{T(1 + h c_b) - T(1 - h c_b)}{2 h}, \qquad
          c_{bi} = \sqrt 2 \cos\Big(\pi b \frac{u_i - 1/2}{U}\Big),

which are the cosine projections of its influence function. They are rotated with its deviation from
the mean, as in `prerank.calibration.rotations`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.nulls import key_counts, stand_in_keys
from prerank.calibration.rotations import rotations
from prerank.calibration.uniformity import smallest_rank, tail_cells, tail_levels

__all__ = ["Dependence", "dependence_given_margins"]

_CLEAR = 2.6  # standard deviations of a mean correlation: 1 % on both sides
_CLEAR_PAIR = 4.0  # of one of many pairs
_NAMED_PAIRS = 3
_VALUES = 2**22
_STEP = 0.5  # h above: weights stay positive
_MOST_COSINES = 64  # of clusters
_REFERENCE, _REFERENCE_WAVES = 16, 4  # replicates and cosines for the units of projections
_ROTATIONS = 1999


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
    independent: bool = True,
    n_null: int = 499,
    generator: int = 0,
    rows: DependentRows | None = None,
) -> Dependence:
    """Test the dependence between targets, whatever their margins are.

    Observations are ranked over the rows. Statistics: the mean product of two targets' scores
    (their correlation), its largest and its mean squared deviation over the pairs, the mean product
    of squared scores less what the correlations explain (extremes in the same rows), that of a
    square and a score (asymmetry), and the slope of the products on what each row predicts. Their
    smallest rank among the replicates is ranked in turn.

    Args:
        z: marginal PITs of the observations, `(N, D)`, D at least 2, or any increasing function of
            each target's.
        null_pits: those of the other members of each pool, `(R, N, D)`.
        resolution: `1 / (S + 1)` for ranks among S samples. Their order within a rank is random,
            and more observations than replicates share a rank where margins are wrong: then both
            are read in groups of the observed sizes.
        independent: False if the members of a pool depend on each other, as `sample_places` do:
            then nothing is said about the slope.
        n_null: number of replicates.
        generator: seed of the choices.
        rows: which of them depend on each other; none by default.

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
    ranks, n_ranks = None, 1
    own = tail_cells(z if resolution > 0 else _uniform(z, generator)).cpu()
    if resolution > 0:
        n_ranks = round(1 / resolution)
        edges = torch.linspace(0, 1, n_ranks + 1, dtype=torch.float64)[1:-1]
        ranks = torch.bucketize(z.double().cpu().contiguous(), edges) + torch.arange(d) * n_ranks
    elif any(len(target.unique()) < n for target in z.T):  # PITs of 0 or 1, far outside
        ranks, n_ranks = own + torch.arange(d) * n_cells, n_cells
    raw, total, cells = _cell_scores(n), None, tail_cells(null_pits).cpu()
    if independent:
        cells = torch.cat([own.unsqueeze(0), cells])
        total = _pair_means(raw[cells]).sum(0)
    statistics = _Statistics(n_cells, raw, total, ranks, n_ranks)
    first = own.unsqueeze(0) + torch.arange(d) * n_cells
    drawn = stand_in_keys(cells, n_cells=n_cells, n_null=n_null, generator=generator)
    blocks, reference = [statistics(first)], first[:0]
    for keys in drawn:
        blocks += [statistics(block) for block in keys.split(max(1, _VALUES // (n * d)))]
        if rows is not None and len(reference) < _REFERENCE:
            reference = torch.cat([reference, keys])[:_REFERENCE]
    values, pairs = torch.cat(blocks), d * (d - 1) // 2
    if rows is None:
        values = _standardised(values)
        clear = values[0]
        # A heavier dependence makes the mean correlation vary more than in the null.
        spread, usual = float(blocks[0][0, -1]), float(torch.cat(blocks[1:])[:, -1].mean())
        ratio = max(1.0, spread / usual) if usual > 0 else 1.0
    else:
        values = _projected(statistics, first, reference, values, rows)
        clear = _normal_equivalent(values)
        values, ratio = rotations(len(values) - 1, _ROTATIONS, generator) @ values, 1.0
    products, (mean, fourth, third, slope, _) = values[:, :pairs], values[:, pairs:].unbind(-1)
    sizes = [mean.abs(), fourth.abs(), third.abs()]
    sizes += [slope.abs()] if independent else []
    sizes += [products.abs().amax(-1), products.square().sum(-1)]
    p = smallest_rank(-torch.stack(sizes))
    upper = torch.triu_indices(d, d, 1)
    return _described(p, clear[pairs], ratio, clear[pairs + 1], clear[:pairs], upper)


@dataclass(frozen=True)
class _Statistics:
    """Statistics of the dependence of rows, with the margins refitted to ranks.

    Attributes:
        n_cells: number of cells between levels.
        raw: score of each cell where PITs are uniform.
        total: what the members of each pool predict together, `(N,)`; None for no slope.
        ranks: keys of the ranks of the observations, `(N, D)`, where these are few.
        n_ranks: their number, S + 1.
    """

    n_cells: int
    raw: Tensor
    total: Tensor | None
    ranks: Tensor | None
    n_ranks: int

    def __call__(self, keys: Tensor, weights: Tensor | None = None) -> Tensor:
        """Correlations of all pairs, then mean, fourth, third, slope and spread: `(b, P + 5)`.

        Args:
            keys: of the cells, `(b, N, D)`.
            weights: of the rows, `(N,)`, of mean 1.
        """
        n, d = keys.shape[1:]
        scores = self._scores(keys, weights)
        squares = scores.square() - 1
        weighted, weighted_squares = scores, squares
        if weights is not None:
            weighted, weighted_squares = (x * weights.unsqueeze(-1) for x in (scores, squares))
        upper = torch.triu_indices(d, d, 1)
        products = (weighted.mT @ scores / n)[:, upper[0], upper[1]]
        # A normal dependence of correlation r has E[(s^2 - 1)(t^2 - 1)] = 2 r^2.
        fourth = (weighted_squares.mT @ squares / n)[:, upper[0], upper[1]]
        fourth = (fourth - 2 * products.square()).mean(-1)
        third = weighted.mT @ squares / n
        third = (third.sum((1, 2)) - third.diagonal(dim1=1, dim2=2).sum(-1)) / (d * (d - 1))
        pairs = _pair_means(scores)
        slope = torch.zeros_like(third)
        if self.total is not None:
            # What the others of the pool predict: a row must not be compared with itself.
            predicted = self.total - _pair_means(self.raw[(keys % self.n_cells).long()])
            predicted = predicted - _mean(predicted, weights)
            slope = _mean(pairs * predicted, weights).squeeze(-1)
            slope = slope / predicted.std(-1).clamp_min(1e-12)
        spread = _mean((pairs - _mean(pairs, weights)).square(), weights).squeeze(-1).sqrt()
        summary = torch.stack([products.mean(-1), fourth, third, slope, spread], -1)
        return torch.cat([products, summary], -1)

    def _scores(self, keys: Tensor, weights: Tensor | None) -> Tensor:
        """Normal scores `(b, N, D)` of the ranks over the rows, from keys `(b, N, D)`.

        Among few samples scores are those of the middles of groups of the observed sizes.
        """
        b, n, d = keys.shape
        counts = _counts(keys, self.n_cells, weights)
        middle = (counts.cumsum(-1) - counts / 2) / n
        if self.ranks is not None:
            groups = _counts(self.ranks.unsqueeze(0), self.n_ranks, weights)[0].cumsum(-1) / n
            edges = torch.nn.functional.pad(groups[:, :-1], (1, 0))
            edges = torch.nn.functional.pad(edges, (0, 1), value=1.0)
            middle = middle.transpose(0, 1).reshape(d, -1).contiguous()
            at = torch.searchsorted(groups[:, :-1].contiguous(), middle)
            middle = ((edges[:, :-1] + edges[:, 1:]) / 2).gather(1, at)
            middle = middle.reshape(d, b, self.n_cells).transpose(0, 1)
        table = torch.special.ndtri(middle.clamp(0.25 / n, 1 - 0.25 / n)).float().reshape(b, -1)
        scores = table.gather(1, keys.reshape(b, -1).long()).reshape(b, n, d)
        power = _mean(scores.square().mT, weights).mT
        return scores / power.sqrt().clamp_min(1e-6)


def _counts(keys: Tensor, n_cells: int, weights: Tensor | None) -> Tensor:
    """Number or weight of the rows in each cell, `(b, D, L)`, in float64."""
    if weights is None:
        return key_counts(keys, n_cells).double()
    b, n, d = keys.shape
    each = weights.double().unsqueeze(-1).expand(b, n, d).reshape(b, -1)
    counts = each.new_zeros(b, d * n_cells)
    counts.scatter_add_(1, keys.reshape(b, -1).long(), each)
    return counts.reshape(b, d, n_cells)


def _mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Mean over the last axis, that of the rows, which is kept."""
    return (values if weights is None else values * weights.to(values)).mean(-1, keepdim=True)


def _projected(
    statistics: _Statistics, own: Tensor, drawn: Tensor, values: Tensor, rows: DependentRows
) -> Tensor:
    """Deviation of the statistics from their means, and its projections: `(B + 1, K)`.

    The deviation is divided by its standard deviation in the replicates, whose rows are
    independent, and the projections by what theirs have there.
    """
    waves = rows.row_cosines()[1 : _MOST_COSINES + 1].float()
    waves = waves - waves.mean(-1, keepdim=True)  # of clusters that are not equally large

    def slopes(keys: Tensor, wave: Tensor) -> Tensor:
        above, below = (statistics(keys, 1 + sign * _STEP * wave) for sign in (1, -1))
        return (above - below) / (2 * _STEP)

    unit = torch.cat([slopes(drawn, wave) for wave in waves[:_REFERENCE_WAVES]])
    unit = unit.square().mean(0).sqrt().clamp_min(1e-12)
    projected = torch.cat([slopes(own, wave) for wave in waves]) / unit
    deviation = (values[:1] - values[1:].mean(0)) / values[1:].std(0).clamp_min(1e-12)
    return torch.cat([deviation, projected]).double()


def _normal_equivalent(projected: Tensor) -> Tensor:
    """The t of each statistic as the normal score with the same p-value."""
    from scipy import special

    degrees = len(projected) - 1
    t = projected[0] / projected[1:].square().mean(0).sqrt().clamp_min(1e-12)
    return torch.from_numpy(special.ndtri(special.stdtr(degrees, t.numpy().clip(-50, 50))))


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


def _uniform(values: Tensor, seed: int) -> Tensor:
    """Sorted random uniforms `(N, D)` in the order of the values of each target; ties share one.

    Ranks themselves would be more evenly spread over the cells than those of replicates.
    """
    source = torch.Generator().manual_seed(seed)
    drawn = torch.rand(values.shape, generator=source, dtype=torch.float64).sort(0).values
    sums = torch.nn.functional.pad(drawn.cumsum(0), (0, 0, 1, 0))
    columns = []
    for target, of in zip(values.cpu().T, sums.T, strict=True):
        _, at, counts = target.unique(return_inverse=True, return_counts=True)
        ends = counts.cumsum(0)
        columns.append(((of[ends] - of[ends - counts]) / counts)[at])
    return torch.stack(columns, -1).clamp(0, 1)  # sums are rounded


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
