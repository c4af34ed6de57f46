"""Rivals of the calibration head, with the interface of `METHODS` in `head.py`.

A rival is fitted to the same rows as the head, `fit(dist, y, seed)`, and its own settings are
chosen on held-out parts of them. It gives a callable that turns test forecasts into distributions
or, where it works on members, into ensembles. Those called `samples` see 50 draws of each forecast
and not the forecast itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import special
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank import CalibrationHead, Ensemble, GaussianMixture, crps
from prerank.distributions import draw
from prerank.distributions.densities import whitened_columns
from prerank.recalibration import (
    HDRRecalibrator,
    MarginalRecalibrated,
    MarginalRecalibrator,
    SchaakeShuffle,
)
from prerank.recalibration.corrections import Correction, extend, fit_correction
from prerank.recalibration.marginal import MarginMap, MarginTable
from tilting import fit_tilting, rows_of

Change = Callable[[GaussianMixture], Distribution]
Fit = Callable[[GaussianMixture, Tensor, int], Change]

MEMBERS = 50
NEIGHBOURS, KNOTS = (50, 100, 200, 400, 800, 1600), (2, 3, 5, 9)
_FARTHEST = 30.0  # normal score
_BLOCK_VALUES = 2**23


def rivals(x: Tensor, x_new: Tensor) -> dict[str, Fit]:
    """All of them, for forecasts at inputs x `(N, p)` and test forecasts at `x_new`."""
    return {
        "width": fit_width,
        "margins": lambda dist, y, seed: MarginalRecalibrator(generator=seed).fit(dist, y),
        "regions": lambda dist, y, seed: HDRRecalibrator(generator=seed).fit(dist, y),
        "margins, regions": fit_margins_and_regions,
        "latent": fit_latent,
        "local margins": partial(fit_local, x=x, x_new=x_new),
        "tilting": fit_tilting,
        "samples": on_members(lambda dist, y, seed: lambda new: new),
        "samples, margins": on_members(
            lambda dist, y, seed: MarginalRecalibrator(generator=seed).fit(dist, y)
        ),
        "samples, affine": on_members(fit_affine),
        "samples, schaake": on_members(
            lambda dist, y, seed: SchaakeShuffle(generator=seed).fit(dist, y)
        ),
        "samples, head": on_members(lambda dist, y, seed: CalibrationHead(seed=seed).fit(dist, y)),
    }


def on_members(fit: Callable[[Ensemble, Tensor, int], Callable[[Ensemble], Any]]) -> Fit:
    """A rival that sees nothing but draws."""

    def members(dist: Distribution, seed: int) -> Ensemble:
        return Ensemble(draw(dist, MEMBERS, generator=seed).points)

    def fitted(dist: GaussianMixture, y: Tensor, seed: int) -> Change:
        change = fit(members(dist, 2 * seed), y, seed)
        return lambda new: change(members(new, 2 * seed + 1))

    return fitted


def fit_width(dist: GaussianMixture, y: Tensor, seed: int) -> Change:
    r"""One factor s of all standard deviations, :math:`Y_{new} = m + s (Y - m)`, by likelihood."""

    def stretched(base: GaussianMixture, factor: float) -> GaussianMixture:
        mean = base.mean.unsqueeze(-2)
        loc = mean + factor * (base.loc - mean)
        return GaussianMixture(base.logits, loc, factor * base.scale_tril, validate_args=False)

    def loss(log_factor: float) -> float:
        return -float(stretched(dist, 2.0**log_factor).log_prob(y).double().mean())

    factor = 2.0 ** minimize_scalar(loss, bounds=(-3, 3), method="bounded").x
    return lambda new: stretched(new, factor)


def fit_margins_and_regions(dist: GaussianMixture, y: Tensor, seed: int) -> Change:
    """Recalibrated margins first, then the regions of the result."""
    margins = MarginalRecalibrator(generator=seed).fit(dist, y)
    regions = HDRRecalibrator(generator=seed).fit(margins(dist), y)
    return lambda new: regions(margins(new))


# Latent recalibration (Dheur and Ben Taieb, 2025: Multivariate latent recalibration for conditional
# normalizing flows) changes the radius in the latent space of a flow. The flow of a mixture is its
# Rosenblatt transformation: exact, and triangular like an autoregressive flow, so that the order of
# the targets matters.


def latent(dist: GaussianMixture, points: Tensor) -> Tensor:
    r"""Rosenblatt transformation to independent standard normals, `(S, N, D)`, in float64.

    .. math:: z_d = \Phi^{-1}\Big(\sum_k w_{kd} \Phi(\varepsilon_{kd})\Big), \quad
              \varepsilon_k = L_k^{-1} (y - \mu_k), \quad
              w_{kd} \propto \pi_k \prod_{j < d} \varphi(\varepsilon_{kj}) / L_{kjj}.
    """
    step = max(1, _BLOCK_VALUES // (len(points) * dist.loc[0].numel()))
    blocks = []
    for rows in torch.arange(points.shape[1], device=points.device).split(step):
        base = rows_of(dist, rows)
        noise = whitened_columns(base.loc, base.scale_tril, points[:, rows].movedim(0, -1)).double()
        sizes = base.scale_tril.diagonal(dim1=-2, dim2=-1).double().log().unsqueeze(-1)
        before = (-0.5 * noise.square() - sizes).cumsum(-2).roll(1, -2)  # (N, K, D, S)
        before[..., 0, :] = 0
        weights = (before + base.logits[..., None, None]).log_softmax(1)
        low = (weights + torch.special.log_ndtr(noise)).logsumexp(1).cpu().numpy()
        high = (weights + torch.special.log_ndtr(-noise)).logsumexp(1).cpu().numpy()
        below = special.ndtri_exp(low.clip(max=-1e-300))
        above = special.ndtri_exp(high.clip(max=-1e-300))
        z = torch.from_numpy(np.where(low < high, below, -above))
        blocks.append(z.clamp(-_FARTHEST, _FARTHEST).movedim(-1, 0).to(points.device))
    return torch.cat(blocks, 1)


def from_latent(dist: GaussianMixture, z: Tensor) -> Tensor:
    """The inverse, by bisection target by target."""
    loc, tril = dist.loc.double(), dist.scale_tril.double()
    log_weights = dist.logits.double().expand(len(z), -1, -1)  # (S, N, K)
    noise, points = torch.zeros(*log_weights.shape, 0, dtype=z.dtype, device=z.device), []
    for d in range(z.shape[-1]):
        mean = loc[..., d] + (tril[:, :, d, :d] * noise).sum(-1)
        width, score = tril[:, :, d, d], z[..., d : d + 1]
        tail, side = torch.special.ndtr(-score.abs()), -score.sign()  # of the smaller tail
        weights = log_weights.softmax(-1)
        ends = mean + width * score
        low, high = ends.amin(-1, keepdim=True), ends.amax(-1, keepdim=True)
        for _ in range(32):
            middle = 0.5 * (low + high)
            beyond = weights * torch.special.ndtr(side * (middle - mean) / width)
            below = (side * (beyond.sum(-1, keepdim=True) - tail)) < 0
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        points.append(0.5 * (low + high))
        new = (points[-1] - mean) / width
        noise = torch.cat([noise, new.unsqueeze(-1)], -1)
        log_weights = (log_weights - 0.5 * new.square() - width.log()).log_softmax(-1)
    return torch.cat(points, -1).to(dist.loc)


def radius_score(z: Tensor) -> Tensor:
    """Normal score of the radius of z among those of standard normals, `(...)`."""
    half, square = z.shape[-1] / 2, 0.5 * z.square().sum(-1).cpu().numpy()
    low, high = special.gammainc(half, square), special.gammaincc(half, square)
    score = np.where(low < high, special.ndtri(low), -special.ndtri(high))
    return torch.from_numpy(score).clamp(-_FARTHEST, _FARTHEST).to(z.device)


class LatentRecalibrated(Distribution):
    r"""The forecast with another distribution of the latent radius.

    .. math:: f_{new}(y) = f(y) \, g\big(F_{\chi_D}(|z(y)|)\big),

    g the density of the radius' PIT on calibration rows: the change of variables of the published
    map :math:`z \mapsto r(|z|) z / |z|`.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector

    def __init__(self, base: GaussianMixture, correction: Correction) -> None:
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)
        self.base, self.correction = base, correction

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(..., N, D)`."""
        points = value.reshape(-1, *self.batch_shape, *self.event_shape)
        ratio = self.correction.log_ratio(radius_score(latent(self.base, points)))
        return self.base.log_prob(value) + ratio.reshape(value.shape[:-1]).to(value.dtype)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws `(*sample_shape, N, D)`."""
        shape = (torch.Size(sample_shape).numel(), *self.batch_shape, *self.event_shape)
        z = torch.randn(shape, dtype=torch.float64, device=self.base.loc.device)
        score, half = self.correction.inverse(radius_score(z)).cpu().numpy(), shape[-1] / 2
        low = special.gammaincinv(half, special.ndtr(score))
        high = special.gammainccinv(half, special.ndtr(-score))
        radius = torch.from_numpy(np.sqrt(2 * np.where(score > 0, high, low)))
        z = z * (radius.to(z.device) / z.norm(dim=-1)).unsqueeze(-1)
        return from_latent(self.base, z).reshape(*sample_shape, *shape[1:])


def fit_latent(dist: GaussianMixture, y: Tensor, seed: int) -> Change:
    """Radial latent recalibration; held-out likelihood smooths the distribution of the radius."""
    correction = fit_correction(radius_score(latent(dist, y[None])[0]), generator=seed)
    return lambda new: LatentRecalibrated(new, correction)


def fit_local(dist: GaussianMixture, y: Tensor, seed: int, *, x: Tensor, x_new: Tensor) -> Change:
    """Margins recalibrated for each row by the PITs of the k calibration rows with nearest inputs.

    The likelihood of each row under the map of the others chooses k and the number of knots. The
    copula of the forecast is kept. (After Torres et al., 2024: Model-free local recalibration of
    neural networks, for one target.)
    """
    table = _table(dist, seed)
    scores = table.score(y)[0].clamp(-_FARTHEST, _FARTHEST)  # (n, D)
    order = torch.cdist(x, x).fill_diagonal_(torch.inf).argsort(-1)
    gains: dict[tuple[int, int], float] = {}
    for k in (k for k in NEIGHBOURS if k < len(y)):
        maps = [_local_maps(w, order[:, :k], KNOTS) for w in scores.unbind(-1)]
        for knots in KNOTS:
            local = _moved(dist, table, [one[knots] for one in maps])
            gains[k, knots] = float(local.log_prob(y).mean())
    k, knots = max(gains, key=gains.__getitem__)
    near = torch.cdist(x_new, x).argsort(-1)[:, :k]
    maps = [_local_maps(w, near, (knots,)) for w in scores.unbind(-1)]
    return lambda new: _moved(new, _table(new, seed), [one[knots] for one in maps])


def _moved(dist: GaussianMixture, table: MarginTable, maps: list[Correction]) -> Distribution:
    return MarginalRecalibrated(dist, [MarginMap(table, maps)], validate_args=False)


def _table(dist: GaussianMixture, seed: int) -> MarginTable:
    source = torch.Generator().manual_seed(seed)
    return MarginTable.of(dist, n_samples=64, generator=source)


def _local_maps(w: Tensor, near: Tensor, counts: tuple[int, ...]) -> dict[int, Correction]:
    """Maps with nodes of their own for each row, through m quantiles of the scores of `near`."""
    ends = [torch.special.ndtri(w.new_tensor(1 - 1 / (4 * m))) for m in counts]
    targets = [torch.linspace(-1, 1, m).to(w) * end for m, end in zip(counts, ends, strict=True)]
    quantiles = torch.quantile(w[near], torch.special.ndtr(torch.cat(targets)), dim=-1).mT
    maps = {}
    for target, at in zip(targets, quantiles.split(counts, -1), strict=True):
        nodes = [at[:, :1]]
        for gap, node in zip(target.diff() / 20, at[:, 1:].split(1, -1), strict=True):
            nodes.append(torch.maximum(node, nodes[-1] + gap))  # also where scores are tied
        apart = torch.cat(nodes, -1)
        slopes = (target.diff() / apart.diff(dim=-1)).clamp_max(1)  # no tail gets lighter
        line = extend(apart, target.expand_as(at), slopes[:, :1], slopes[:, -1:])
        maps[len(target)] = Correction(*line)
    return maps


def fit_affine(dist: Ensemble, y: Tensor, seed: int) -> Callable[[Ensemble], Ensemble]:
    r"""Members :math:`a_d + b_d \bar x_d + c_d (x_{sd} - \bar x_d)` of the least mean CRPS.

    Their ranks are those of the raw members, so this is ensemble copula coupling, too. (Van
    Schaeybroeck and Vannitsem, 2015: Ensemble post-processing using member-by-member approaches.)
    """
    parts = torch.zeros(3, y.shape[-1], dtype=y.dtype, device=y.device, requires_grad=True)

    def changed(base: Ensemble, parts: Tensor) -> Ensemble:
        shift, slope, width = parts
        return Ensemble(shift + slope.exp() * base.mean + width.exp() * (base.samples - base.mean))

    optimiser = torch.optim.LBFGS([parts], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = crps(changed(dist, parts), y).mean()
        value.backward()
        return value

    optimiser.step(loss)
    return partial(changed, parts=parts.detach())
