r"""Which targets are wrong, and how: bias, spread, tails, skew, modes.

Normal scores :math:`x = \Phi^{-1}(Z)` of a calibrated target are standard normal. A fault is
described by the distribution (Jones and Pewsey's sinh-arcsinh, standardised)

.. math:: x = \mu + \sigma \, \frac{S - E S}{\sqrt{\operatorname{Var} S}}, \qquad
          S = \sinh\Big( \frac{\sinh^{-1} W + \epsilon}{\delta} \Big), \quad W \sim N(0, 1),

whose four parameters are a bias :math:`\mu`, a ratio of spreads :math:`\sigma`, a skewness
:math:`\epsilon` and the weight of the tails :math:`\delta`, each at given values of the others.
Those that the counts of PITs need, by the likelihood less a fixed price of each, are named.

The rank of an observation among S samples of the forecast is less than k where it is below the
k-th smallest of these, whose own PIT U has the distribution :math:`\mathrm{Beta}(k, S + 1 - k)`:
with G for the distribution of exact PITs, ranks have :math:`P(\text{rank} < k) = E \, G(U)`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import special, stats

from prerank.calibration.dependent_rows import DependentRows
from prerank.calibration.nulls import holm

__all__ = ["deviation_kinds", "shared_p_value", "wrong_targets"]

_CUT = 3.0  # of normal scores, so that a t-test holds
_CUT_SQUARE = 0.9950072780344534  # mean of their squares
_PRICE = 10.8  # of a parameter, in twice the log-likelihood: 1 per mille of a chi-square
_SHARED_PRICE = 3.8  # of one that the other targets share: 5 % of a chi-square
_CELLS = 40
_FEW_CELLS = 8  # fewer tell a bias and a spread apart, and nothing more
_NODES_OF_RANKS = 121  # from -4 to 4 in normal scores
_BESIDE_TAILS = 0.3  # logarithm of the ratio of spreads, which wrong tails change too
_LIMITS = np.array([[-4, -1.6, -1.5, -1.2], [4, 1.6, 1.5, 1.0]])
_WORDS = (("low", "high"), ("wide", "narrow"), ("left", "right"), ("heavy", "light"))
_MODES = np.array([0.7, 0.9, 1.1, 1.3])  # where modes may be, in normal scores
_WINDOW, _CLEAR = 0.3, 4.5
_UNFIT = 1e-4

Array = npt.NDArray[np.float64]


def wrong_targets(p_values: Sequence[float], level: float) -> list[int]:
    """Numbers of the targets that stand out on their own, by Holm's correction over them."""
    return [j for j, p in enumerate(holm(p_values)) if p < level]


def shared_p_value(z: Array, rows: DependentRows | None = None) -> float:
    r"""Do targets deviate together, each perhaps too little to stand out?

    .. math:: p = \min_{k \le 4} 4 \, p_k, \qquad p_k:\ \text{t-test of } \frac1D \sum_d s_k(Z_{id})
              \text{ over the rows } i,

    with scores :math:`s_k` of mean 0 where targets are calibrated: the normal score and its square,
    cut at 3, which are the best for a bias and a spread, and the Legendre polynomials of degree 3
    and 4. The mean over the targets is taken within rows, so that the test holds for any
    dependence. Squares are skewed, and so is their t; Johnson's (1978) term corrects it. Of rows
    that depend on each other the variance comes from the cosine projections.

    Args:
        z: PITs `(N, D)`, NaN in gaps: the mean is that of the targets that a row has.
        rows: which of them depend on each other; none by default.

    Example:
        >>> z = np.random.default_rng(0).uniform(size=(400, 8))
        >>> shared_p_value(z) > 0.05, shared_p_value(0.5 + 0.95 * (z - 0.5)) < 0.01
        (True, True)
    """
    z, rows = _with_values(z, rows)
    if len(z) < 3 or z.shape[1] == 0:
        return 1.0
    means = np.stack([np.nanmean(score, 1) for score in _scores(z)], -1)
    t, degrees = _johnson_t(means) if rows is None else _projected_t(means, rows)
    return min(1.0, 8 * float(stats.t.sf(np.abs(t).max(), degrees)))


def _with_values(z: Array, rows: DependentRows | None) -> tuple[Array, DependentRows | None]:
    """Rows with PITs of a target at least."""
    at = np.flatnonzero(~np.isnan(z).all(1)) if z.shape[1] else np.arange(len(z))
    if len(at) == len(z) or rows is None:
        return z[at], rows
    return z[at], rows.of_rows(torch.from_numpy(at))


def _scores(z: Array) -> Iterator[Array]:
    """Four scores of PITs, of mean 0 where these are uniform."""
    x = special.ndtri(z).clip(-_CUT, _CUT)
    yield x
    yield np.square(x) - _CUT_SQUARE
    yield special.eval_legendre(3, 2 * z - 1)
    yield special.eval_legendre(4, 2 * z - 1)


def _johnson_t(values: Array) -> tuple[Array, int]:
    mean, deviation = values.mean(0), values.std(0, ddof=1)
    third = ((values - mean) ** 3).mean(0) / np.maximum(deviation, 1e-12) ** 3
    t = mean / np.maximum(deviation, 1e-12)
    n = len(values)
    return math.sqrt(n) * (t + third * (1 / (6 * n) + t**2 / 3)), n - 1


def _projected_t(values: Array, rows: DependentRows) -> tuple[Array, int]:
    first, *others = rows.projections(torch.from_numpy(values)).numpy()
    return first / np.maximum(np.sqrt(np.square(others).mean(0)), 1e-12), rows.degrees


def deviation_kinds(
    z: Array,
    *,
    resolution: float = 0.0,
    of: int = 1,
    like: Sequence[str] = (),
    rows: DependentRows | None = None,
) -> tuple[str, ...]:
    """Name how PITs deviate from uniform, given that they do.

    Args:
        z: PITs `(N,)` of one target, or `(N, D)` of several that are taken together; NaN in gaps.
        resolution: `1 / (S + 1)` for ranks among S samples, 0 for exact PITs. Up to six samples
            only tell a bias and a spread apart.
        of: from how many targets this one was chosen, since it stands out; each parameter costs
            more, the more there are.
        like: kinds that the other targets share. They cost little: what one target has beside
            or instead of them must be worth its price.
        rows: which of them depend on each other; none by default. Then they count as fewer.

    Returns:
        Some of `"high"`, `"low"` (bias), `"narrow"`, `"wide"` (spread), `"heavy"`, `"light"`
        (tails), `"right"`, `"left"` (skew), `"modes"`, and `"shape"` where none of them fits.

    Example:
        >>> x = np.random.default_rng(0).standard_t(4, 2000) / math.sqrt(2)
        >>> deviation_kinds(stats.norm.cdf(x))
        ('heavy',)
        >>> deviation_kinds(stats.norm.cdf(1.3 * np.random.default_rng(0).normal(size=500)))
        ('narrow',)
    """
    together, rows = _with_values(z.reshape(len(z), -1), rows)
    weight = 1 / _dependence_factor(together, rows)
    edges, cells = _cells(len(together), resolution)
    together = together[~np.isnan(together)]
    places = np.searchsorted(edges, together)
    counts = np.float64(weight) * np.bincount(places, minlength=len(edges) + 1).astype(np.float64)
    best, chosen = _best_fit(counts, cells, _PRICE + 2 * math.log(of), _signs(like))
    if 3 in chosen and abs(best[1]) < _BESIDE_TAILS:
        chosen = tuple(k for k in chosen if k != 1)
    kinds = tuple(words[int(best[k] > 0)] for k, words in enumerate(_WORDS) if k in chosen)
    if _has_modes(together, weight, best, resolution):
        return (*(kind for kind in kinds if kind in ("low", "high")), "modes")
    if set(chosen) <= {0, 1} and _unfit(counts, best, cells):
        return (*kinds, "shape")
    return kinds


def _dependence_factor(z: Array, rows: DependentRows | None) -> float:
    """By how much the variance of the mean exceeds that of independent targets and rows."""
    if len(z) < 2 or (z.shape[1] == 1 and rows is None):
        return 1.0
    parts = np.stack([special.eval_legendre(degree, 2 * z - 1) for degree in range(1, 5)], -1)
    of_rows = np.nanmean(parts, 1)
    if rows is None:
        variance = of_rows.var(0)
    else:
        projected = rows.projections(torch.from_numpy(of_rows - of_rows.mean(0))).numpy()
        variance = len(z) * np.square(projected[1:]).mean(0)
    targets = (~np.isnan(z)).sum(1).mean()
    return max(1.0, *(variance * targets / np.nanmean(np.nanvar(parts, 0), 0)))


class _Cells(NamedTuple):
    """Cells of PITs.

    Attributes:
        scores: normal scores of exact PITs, `(L,)`: the edges, or nodes that edges are means of.
        means: weights of the nodes in each edge, `(L, E)`, for ranks; None for exact PITs.
    """

    scores: Array
    means: Array | None

    @property
    def number(self) -> int:
        """How many cells there are."""
        return 1 + (len(self.scores) if self.means is None else self.means.shape[1])


def _cells(n: int, resolution: float) -> tuple[Array, _Cells]:
    """Edges of cells of about equal width in normal scores, those of ranks between ranks."""
    top = -special.ndtri(max(0.01 / n, resolution))
    edges = np.asarray(special.ndtr(np.linspace(-top, top, _CELLS - 1)))
    if not resolution:
        return edges, _Cells(special.ndtri(edges), None)
    size = round(1 / resolution)
    ranks = np.unique(np.rint(edges * size)).clip(1, size - 1)
    scores = np.linspace(-4, 4, _NODES_OF_RANKS)
    between = special.ndtr((scores[1:] + scores[:-1]) / 2)[:, None]
    below = np.concatenate([0 * ranks[None], special.betainc(ranks, size - ranks, between)])
    return ranks / size, _Cells(scores, np.diff(below, axis=0, append=1.0))


def _cell_shares(theta: Array, cells: _Cells) -> Array:
    """Shares of the cells at parameters `(..., 4)`, as `(..., cells)`."""
    scores = cells.scores
    mu, log_sigma, epsilon, log_delta = (theta[..., k, None] for k in range(4))
    nodes, weights = _NODES
    values = np.sinh((np.arcsinh(nodes) + epsilon) * np.exp(-log_delta))
    mean = (values @ weights)[..., None]
    spread = np.sqrt(np.square(values - mean) @ weights)[..., None]
    at = mean + spread * (scores - mu) * np.exp(-log_sigma)
    below = special.ndtr(np.sinh(np.exp(log_delta) * np.arcsinh(at) - epsilon))
    if cells.means is not None:
        below = below @ cells.means
    shares = np.empty((*theta.shape[:-1], cells.number))
    shares[..., 0], shares[..., -1] = below[..., 0], 1 - below[..., -1]
    np.subtract(below[..., 1:], below[..., :-1], out=shares[..., 1:-1])
    return np.maximum(shares, 1e-12)


def _quadrature() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    return nodes, weights / weights.sum()


_NODES = _quadrature()


def _signs(kinds: Sequence[str]) -> set[tuple[int, bool]]:
    """The parameter of each kind, and whether it is positive."""
    return {(k, bool(i)) for k, words in enumerate(_WORDS) for i in (0, 1) if words[i] in kinds}


def _best_fit(
    counts: Array, cells: _Cells, price: float, like: set[tuple[int, bool]]
) -> tuple[Array, tuple[int, ...]]:
    """Parameters of the best model by likelihood less price, and which of them are free."""
    fits = []
    most = 2 if cells.number < _FEW_CELLS else 4
    for size in range(1, most + 1):
        for free in itertools.combinations(range(most), size):
            theta, likelihood = _fit(counts, cells, np.array(free))
            named = {(k, bool(theta[k] > 0)) for k in free}
            paid = price * len(named - like) + _SHARED_PRICE * len(named & like)
            worth = 2 * likelihood - paid
            fits.append((worth, theta, free))
    _, theta, free = max(fits, key=lambda fit: fit[0])
    return theta, free


def _fit(counts: Array, cells: _Cells, free: npt.NDArray[np.int_]) -> tuple[Array, float]:
    """Fisher scoring with halved steps, from the calibrated target."""
    theta, n = np.zeros(4), counts.sum()
    shares = _cell_shares(theta, cells)
    likelihood = float(counts @ np.log(shares))
    for _ in range(20):
        moves = np.eye(4)[free] * 1e-4
        above, below = _cell_shares(theta + np.stack([moves, -moves]), cells)
        slopes = (above - below) / 2e-4
        scoring = (slopes / shares) @ slopes.T * n + 1e-6 * np.eye(len(free))
        step = np.zeros(4)
        step[free] = np.linalg.solve(scoring, slopes @ (counts / shares))
        for _ in range(8):
            trial = np.clip(theta + np.clip(step, -0.7, 0.7), *_LIMITS)
            trial_shares = _cell_shares(trial, cells)
            trial_likelihood = float(counts @ np.log(trial_shares))
            if trial_likelihood >= likelihood:
                break
            step = step / 2
        else:
            break
        gain = trial_likelihood - likelihood
        theta, shares, likelihood = trial, trial_shares, trial_likelihood
        if gain < 1e-3:
            break
    return theta, likelihood


def _has_modes(z: Array, weight: float, theta: Array, resolution: float) -> bool:
    """Whether there are fewer normal scores in the middle than on both sides of it.

    The middle is that of the fit, and sides are looked at as far as ranks can tell.
    """
    mu, sigma = theta[0], math.exp(theta[1])
    size = np.abs(special.ndtri(z.ravel()) - mu) / sigma
    seen = (-special.ndtri(resolution) - abs(mu)) / sigma
    middle = weight * np.count_nonzero(size < _WINDOW)
    places = _MODES[seen > _MODES + _WINDOW]
    if not len(places):
        return False
    sides = [weight * np.count_nonzero(np.abs(size - at) < _WINDOW) / 2 for at in places]
    # Two windows on the sides are halved, so that their mean has half the variance of a count.
    return bool(max(sides) - middle > _CLEAR * math.sqrt(middle + max(sides) / 2))


def _unfit(counts: Array, theta: Array, cells: _Cells) -> bool:
    expected = counts.sum() * _cell_shares(theta, cells)
    groups = np.minimum((expected.cumsum() / expected.sum() * 12).astype(int), 11)
    seen = np.bincount(groups, counts, 12)
    wanted = np.bincount(groups, expected, 12)
    made = wanted > 0
    chi = float((np.square(seen - wanted)[made] / wanted[made]).sum())
    return float(stats.chi2.sf(chi, 9)) < _UNFIT
