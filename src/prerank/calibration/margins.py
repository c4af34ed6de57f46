r"""Which targets are wrong, and how: bias, spread, tails, skew, modes.

Normal scores :math:`x = \Phi^{-1}(Z)` of a calibrated target are standard normal. A fault is
described by the distribution (Jones and Pewsey's sinh-arcsinh, standardised)

.. math:: x = \mu + \sigma \, \frac{S - E S}{\sqrt{\operatorname{Var} S}}, \qquad
          S = \sinh\Big( \frac{\sinh^{-1} W + \epsilon}{\delta} \Big), \quad W \sim N(0, 1),

whose four parameters are a bias :math:`\mu`, a ratio of spreads :math:`\sigma`, a skewness
:math:`\epsilon` and the weight of the tails :math:`\delta`, each at given values of the others.
Those that the counts of PITs need, by the likelihood less a fixed price of each, are named.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from prerank.calibration.nulls import holm

__all__ = ["NAMED_SHARED", "NAMED_TARGETS", "deviation_kinds", "shared_p_value", "wrong_targets"]

NAMED_TARGETS = 0.015
"""Corrected p-values of single targets below it name them."""

NAMED_SHARED = 0.005
"""P-values of what targets have in common below it name it."""

_PRICE = 10.8  # of a parameter, in twice the log-likelihood: 1 per mille of a chi-square
_LIKE_OTHERS = 6.0  # how much cheaper the faults that all targets have in common are
_CELLS = 40
_BESIDE_TAILS = 0.3  # logarithm of the ratio of spreads, which wrong tails change too
_LIMITS = np.array([[-4, -1.6, -1.5, -1.2], [4, 1.6, 1.5, 1.0]])
_WORDS = (("low", "high"), ("wide", "narrow"), ("left", "right"), ("heavy", "light"))
_MODES = np.array([0.7, 0.9, 1.1, 1.3])  # where modes may be, in normal scores
_WINDOW, _CLEAR = 0.3, 4.5
_UNFIT = 1e-4

Array = npt.NDArray[np.float64]


def wrong_targets(p_values: Sequence[float]) -> list[int]:
    """Numbers of the targets that stand out on their own, by Holm's correction over them."""
    return [j for j, p in enumerate(holm(p_values)) if p < NAMED_TARGETS]


def shared_p_value(z: Array) -> float:
    r"""Do targets deviate together, each perhaps too little to stand out?

    .. math:: p = \min_{k \le 4} 4 \, p_k, \qquad p_k:\ \text{t-test of } \frac1D \sum_d P_k(Z_{id})
              \text{ over the rows } i,

    with the Legendre polynomials :math:`P_k`, which have mean 0 where targets are calibrated. The
    mean over the targets is taken within rows, so that the test holds for any dependence.

    Args:
        z: PITs `(N, D)`.

    Example:
        >>> z = np.random.default_rng(0).uniform(size=(400, 8))
        >>> shared_p_value(z) > 0.05, shared_p_value(0.5 + 0.95 * (z - 0.5)) < 0.01
        (True, True)
    """
    if len(z) < 3 or z.shape[1] == 0:
        return 1.0
    smallest = 1.0
    for degree in range(1, 5):
        mean = special.eval_legendre(degree, 2 * z - 1).mean(1)
        error = mean.std(ddof=1) / math.sqrt(len(z))
        if error > 0:
            smallest = min(smallest, 2 * float(stats.t.sf(abs(mean.mean()) / error, len(z) - 1)))
    return min(1.0, 4 * smallest)


def deviation_kinds(
    z: Array, *, resolution: float = 0.0, of: int = 1, like: Sequence[str] = ()
) -> tuple[str, ...]:
    """Name how PITs deviate from uniform, given that they do.

    Args:
        z: PITs `(N,)` of one target, or `(N, D)` of several that are taken together.
        resolution: PITs closer to 0 and 1 say no more than that: `1 / (S + 1)` for ranks.
        of: how many targets are described; each parameter costs more, the more there are.
        like: kinds that all targets have in common, which are the first to be tried.

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
    together = z.reshape(len(z), -1)
    weight = 1 / _dependence_factor(together)
    edges = _edges(len(z), resolution)
    places = np.searchsorted(edges, together.ravel())
    counts = np.float64(weight) * np.bincount(places, minlength=len(edges) + 1).astype(np.float64)
    best, chosen = _best_fit(counts, special.ndtri(edges), _PRICE + 2 * math.log(of), _free(like))
    if 3 in chosen and abs(best[1]) < _BESIDE_TAILS:
        chosen = tuple(k for k in chosen if k != 1)
    kinds = tuple(words[int(best[k] > 0)] for k, words in enumerate(_WORDS) if k in chosen)
    if _has_modes(together, weight):
        return (*(kind for kind in kinds if kind in ("low", "high")), "modes")
    if set(chosen) <= {0, 1} and _unfit(counts, best, special.ndtri(edges)):
        return (*kinds, "shape")
    return kinds


def _dependence_factor(z: Array) -> float:
    """By how much the variance of a row's mean exceeds that of independent targets."""
    if z.shape[1] == 1 or len(z) < 2:
        return 1.0
    parts = (special.eval_legendre(degree, 2 * z - 1) for degree in range(1, 5))
    ratios = [part.mean(1).var() * z.shape[1] / part.var(0).mean() for part in parts]
    return max(1.0, *ratios)


def _edges(n: int, resolution: float) -> Array:
    least = min(max(0.01 / n, resolution), 0.2)
    top = -special.ndtri(least)
    return np.asarray(special.ndtr(np.linspace(-top, top, _CELLS - 1)))


def _cell_shares(theta: Array, scores: Array) -> Array:
    mu, log_sigma, epsilon, log_delta = theta
    nodes, weights = _NODES
    values = np.sinh((np.arcsinh(nodes) + epsilon) * np.exp(-log_delta))
    mean = weights @ values
    spread = math.sqrt(weights @ np.square(values - mean))
    at = mean + spread * (scores - mu) * math.exp(-log_sigma)
    below = special.ndtr(np.sinh(np.exp(log_delta) * np.arcsinh(at) - epsilon))
    return np.maximum(np.diff(below, prepend=0, append=1), 1e-12)


def _quadrature() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    return nodes, weights / weights.sum()


_NODES = _quadrature()


def _free(kinds: Sequence[str]) -> tuple[int, ...]:
    return tuple(k for k, words in enumerate(_WORDS) if set(words) & set(kinds))


def _best_fit(
    counts: Array, scores: Array, price: float, like: tuple[int, ...]
) -> tuple[Array, tuple[int, ...]]:
    """Parameters of the best model by likelihood less price, and which of them are free."""
    fits = []
    for size in range(1, 5):
        for free in itertools.combinations(range(4), size):
            theta, likelihood = _fit(counts, scores, np.array(free))
            worth = 2 * likelihood - price * size + _LIKE_OTHERS * (free == like)
            fits.append((worth, theta, free))
    _, theta, free = max(fits, key=lambda fit: fit[0])
    return theta, free


def _fit(counts: Array, scores: Array, free: npt.NDArray[np.int_]) -> tuple[Array, float]:
    """Fisher scoring with halved steps, from the calibrated target."""
    theta, n = np.zeros(4), counts.sum()
    shares = _cell_shares(theta, scores)
    likelihood = float(counts @ np.log(shares))
    for _ in range(20):
        moves = np.eye(4)[free] * 1e-4
        slopes = (
            np.array(
                [(_cell_shares(theta + m, scores) - _cell_shares(theta - m, scores)) for m in moves]
            )
            / 2e-4
        )
        scoring = (slopes / shares) @ slopes.T * n + 1e-6 * np.eye(len(free))
        step = np.zeros(4)
        step[free] = np.linalg.solve(scoring, slopes @ (counts / shares))
        for _ in range(8):
            trial = np.clip(theta + np.clip(step, -0.7, 0.7), *_LIMITS)
            trial_shares = _cell_shares(trial, scores)
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


def _has_modes(z: Array, weight: float) -> bool:
    """Whether there are fewer normal scores in the middle than on both sides of it."""
    size = np.abs(special.ndtri(z.ravel()))
    middle = weight * np.count_nonzero(size < _WINDOW)
    sides = [weight * np.count_nonzero(np.abs(size - at) < _WINDOW) / 2 for at in _MODES]
    # Two windows on the sides are halved, so that their mean has half the variance of a count.
    return bool(max(sides) - middle > _CLEAR * math.sqrt(middle + max(sides) / 2))


def _unfit(counts: Array, theta: Array, scores: Array) -> bool:
    expected = counts.sum() * _cell_shares(theta, scores)
    groups = np.minimum((expected.cumsum() / expected.sum() * 12).astype(int), 11)
    seen = np.bincount(groups, counts, 12)
    wanted = np.bincount(groups, expected, 12)
    made = wanted > 0
    chi = float((np.square(seen - wanted)[made] / wanted[made]).sum())
    return float(stats.chi2.sf(chi, 9)) < _UNFIT
