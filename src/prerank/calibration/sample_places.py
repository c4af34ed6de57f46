"""Where an observation and samples lie among other samples, whatever its margins are."""

import math

import torch
from torch import Tensor

__all__ = ["places_hold", "sample_places"]

_MOST = 20  # samples are enough to choose replicates from
_NOISE = 0.5  # of s beside a bias, in standard errors of a correlation
_SKEWED, _CHANGED = 0.05, 0.3  # distance from Student's distribution; logarithm of a spread
_SHIFT = 0.7  # standard errors, which turn a level of .005 into .0175


def sample_places(observed: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    r"""Places of an observation and of its samples among S - 1 samples.

    .. math:: p = \frac{x - m}{s},

    with the mean and the standard deviation of the other samples, and for the observation of all
    but the first. Ranks among few samples would not do for a test of the dependence: where margins
    are wrong, their noise hides more of it, or less. The noise of m has the dependence of the
    samples, and so hides none of it.

    Args:
        observed: `(N, D)`.
        samples: `(S, N, D)`, S at least 4, with few ties.

    Returns:
        Places `(N, D)` of the observations; and those of the first samples, `(R, N, D)` with R at
        most 20, by Student's CDF, which makes them uniform where the samples are normal.

    Example:
        >>> samples = torch.tensor([-3.0, -1.0, 0.0, 1.0]).reshape(4, 1, 1)
        >>> sample_places(torch.tensor([[2.0]]), samples)[0]  # among -1, 0 and 1
        tensor([[2.]], dtype=torch.float64)
    """
    from scipy import special

    origin = samples.double().mean(0)
    x, y = samples.double() - origin, observed.double() - origin
    others = len(x) - 1
    total, squares = x.sum(0), x.square().sum(0)

    def among_others(values: Tensor, left_out: Tensor) -> Tensor:
        mean = (total - left_out) / others
        power = (squares - left_out.square()) / others
        variance = (power - mean.square()) * others / (others - 1)
        return (values - mean) / variance.clamp_min(1e-300).sqrt()

    scaled = among_others(x[:_MOST], x[:_MOST]) * math.sqrt(others / (others + 1))
    uniform = torch.from_numpy(special.stdtr(others - 1, scaled.cpu().numpy()))
    return among_others(y, x[0]), uniform


def places_hold(observed: Tensor, samples: Tensor, size: int) -> bool:
    r"""Whether margins are right enough for places to show the dependence.

    Let R be the correlations of the samples, and let an observation have the bias :math:`b_j` and
    the spread :math:`k_j` in standard deviations of the samples. Places then have the covariances

    .. math:: k_j k_l R_{jl} + \frac{R_{jl}}{S - 1} + \frac{b_j b_l R_{jl}^2}{2 (S - 2)},

    of the observation, of the noise of m, and of that of s. Their correlations differ from R, by
    :math:`\Delta`, where spreads are unequal or biases large, and a test of n normal rows sees at
    most :math:`(n \, \mathrm{tr}(R^{-1} \Delta R^{-1} \Delta) / 2)^{1/2}` standard errors of it,
    whatever it combines of the pairs. This must be small. Without normality the noise of s may
    depend on other targets in another way, and that of m and s on the samples themselves: its
    variance must be small too, and the spread about right.

    Args:
        observed: places of the observations, `(N, D)`.
        samples: those of the samples, by Student's CDF, `(R, N, D)`.
        size: S.

    Example:
        >>> source = torch.Generator().manual_seed(0)
        >>> samples, y = (torch.randn(k, 500, 2, generator=source) for k in (20, 1))
        >>> [places_hold(*sample_places(y[0] + bias, samples), 20) for bias in (0, 2)]
        [True, False]
    """
    from scipy import special

    levels = torch.tensor([0.16, 0.5, 0.84], dtype=observed.dtype)
    ordered = samples.flatten(end_dim=1).cpu().sort(0).values
    usual = special.stdtrit(size - 2, ordered.quantile(levels, dim=0).numpy())
    usual = torch.from_numpy(usual) * math.sqrt(size / (size - 1))
    found = observed.cpu().quantile(levels, dim=0)
    spread = ((found[2] - found[0]) / (usual[2] - usual[0])).clamp_min(1e-300)
    noise = ((found[1] - usual[1]) / spread).square() / (2 * (size - 2))
    if float(noise.max()) > _NOISE / math.sqrt(len(observed)):
        return False
    scores = torch.special.ndtri(samples.flatten(end_dim=1).cpu().clamp(1e-9, 1 - 1e-9))
    if _shift(scores.T.corrcoef(), spread, found[1] - usual[1], size) > _SHIFT / math.sqrt(
        len(observed)
    ):
        return False
    uniform = torch.linspace(0, 1, len(ordered), dtype=ordered.dtype).unsqueeze(-1)
    skewed = (ordered - uniform).abs().amax(0) > _SKEWED
    return not bool((skewed & (spread.log().abs() > _CHANGED)).any())


def _shift(correlations: Tensor, spread: Tensor, bias: Tensor, size: int) -> float:
    """How far noise moves correlations `(D, D)`, in standard errors of a single row."""
    of_mean = correlations / (size - 1)
    of_deviation = torch.outer(bias, bias) * correlations.square() / (2 * (size - 2))
    moved = torch.outer(spread, spread) * correlations + of_mean + of_deviation
    scale = moved.diagonal().sqrt()
    # Targets that are copies of each other have no inverse.
    ridge = 1e-6 * torch.eye(len(scale), dtype=scale.dtype)
    change = torch.linalg.solve(
        correlations + ridge, moved / torch.outer(scale, scale) - correlations
    )
    return math.sqrt(max(0.0, float((change @ change).trace()) / 2))
