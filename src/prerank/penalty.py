"""A differentiable calibration error, to be added to any training loss."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from prerank.calibration.curves import level_counts
from prerank.distributions.noise import Noise, as_noise
from prerank.errors import ShapeError
from prerank.inputs import as_count, as_positive, check_distribution, refuse_collections
from prerank.moved import forward
from prerank.pits.published import published_pit
from prerank.pits.smooth import SmoothPIT, smooth_pits
from prerank.preranks import PreRank, PreRankLike, applicable, is_all, parse

__all__ = ["CalibrationPenalty", "LevelCounts"]

__getattr__ = forward(__name__, __name__, Tally="LevelCounts")

_CRAMER_VON_MISES = 0.4614  # 95 % quantile of its limiting law (Anderson and Darling, 1952)


class LevelCounts(NamedTuple):
    """Smooth counts of PITs below each level.

    Attributes:
        counts: of each term, `(..., J, levels)`.
        weights: of the components of each term, times the number of rows, `(..., J)`; None where
            they are equal.
        rows: how many were counted.
    """

    counts: list[Tensor]
    weights: list[Tensor | None]
    rows: int

    @property
    def frequencies(self) -> Tensor:
        """Shares of the rows, with the components of all terms side by side, `(..., J, levels)`."""
        return torch.cat(self.counts, -2) / self.rows

    def plus(self, other: "LevelCounts") -> "LevelCounts":
        """Counts of the rows of both."""
        return LevelCounts(
            [a + b for a, b in zip(self.counts, other.counts, strict=True)],
            [
                None if a is None or b is None else a + b
                for a, b in zip(self.weights, other.weights, strict=True)
            ],
            self.rows + other.rows,
        )


class CalibrationPenalty(nn.Module):
    r"""Smooth projected calibration error (PCE-KDE), summed over pre-ranks.

    .. math:: R = \sum_\rho \frac{1}{J_\rho} \sum_{j=1}^{J_\rho} \frac1M \sum_{m=1}^M
              \Big| \alpha_m - \frac1N \sum_{i=1}^N \sigma\big(\tau_\alpha (\alpha_m - Z_{ij})\big)
              \Big|^p

    with the smooth PITs Z of `prerank.smooth_pit`: closed forms where they exist, otherwise exact
    reparameterised draws, one set for all pre-ranks. Add it, times a strength, to any loss::

        loss = -dist.log_prob(y).mean() + strength * penalty(dist, y)

    On rows that the loss has been fitted to, a flexible predictor looks better calibrated than it
    is. `shift` measures by how much, on rows that it has not been fitted to; given to the next
    steps, the penalty aims at calibration there. `prerank.training` and the estimators do so, and
    begin with the penalty where the loss alone has stopped: `docs/results/penalty.md` has what
    that buys. It is also what `hdr` needs: from independent targets its gradient can point away
    from a positive correlation. Start from a trained predictor, or add `location` or `scale`.

    Args:
        preranks: such as `"marginal+hdr"` (mean over the margins plus the HDR term),
            `"pca(0.8)+copula"`, a function, or a list; `"all"` for every pre-rank of the paper
            that applies.
        n_samples: draws per row in total, for terms without a closed form.
        p: exponent.
        levels: M.
        tau: sharpness of the comparison of T with its samples, relative to their spread.
        level_tau: sharpness of the comparison of PITs with levels.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> loc = torch.zeros(64, 3, requires_grad=True)
        >>> dist = MultivariateNormal(loc, torch.eye(3))
        >>> penalty = CalibrationPenalty("marginal+hdr")
        >>> value = penalty(dist, torch.ones(64, 3), generator=0)
        >>> value.backward()
        >>> value.shape, bool(loc.grad.abs().sum() > 0)
        (torch.Size([]), True)
    """

    shifts = True
    """Whether `shift` can be measured."""

    def __init__(
        self,
        preranks: PreRankLike = "marginal",
        *,
        n_samples: int = 100,
        p: float = 1.0,
        levels: int = 100,
        tau: float = 100.0,
        level_tau: float = 100.0,
    ) -> None:
        super().__init__()
        self.preranks = parse(preranks)
        self._all = is_all(preranks)
        self.n_samples = as_count(n_samples, "n_samples", minimum=2)
        self.levels = as_count(levels, "levels", minimum=2)
        self.p = as_positive(p, "p", minimum=1)
        self.tau = as_positive(tau, "tau")
        self.level_tau = as_positive(level_tau, "level_tau")

    @classmethod
    def published(
        cls, preranks: PreRankLike = "marginal", *, n_samples: int = 100, tau: float = 100.0
    ) -> "CalibrationPenalty":
        """The form of the published runs; see `prerank.pits.published` for how it differs."""
        return _PublishedPenalty(preranks, n_samples=n_samples, tau=tau)

    def forward(
        self,
        dist: Distribution,
        y: object,
        *,
        shift: Tensor | None = None,
        generator: Noise | int = None,
    ) -> Tensor:
        """Penalty of a batch.

        Args:
            dist: `batch_shape (..., N)`, `event_shape (D,)`, with `rsample` where a term needs it.
            y: `(..., N, D)`.
            shift: what `shift` found, or None.
            generator: source of the draws; torch's global state by default.

        Returns:
            A scalar, or one value for each member of a stack: the shape of `batch_shape[:-1]`.
        """
        return self.error(self.tally(dist, y, generator=generator), shift)

    def terms(self, dist: Distribution) -> tuple[PreRank, ...]:
        """The pre-ranks that are used for a distribution: of `"all"` those that apply."""
        return applicable("all" if self._all else self.preranks, dist)[0]

    def tally(self, dist: Distribution, y: object, *, generator: Noise | int = None) -> LevelCounts:
        """Count the PITs of a batch; the tallies of several batches can be added up."""
        terms = self.terms(check_distribution(dist))
        pits = smooth_pits(
            dist, y, terms, n_samples=self.n_samples, tau=self.tau, generator=generator
        )
        return self._count(pits)

    def error(self, tally: LevelCounts, shift: Tensor | None = None) -> Tensor:
        """Penalty of the rows that were counted, moved by a shift `(..., J, levels)`."""
        frequencies = tally.frequencies
        if shift is not None:
            refuse_collections(shift, "shift")
            if shift.shape[-2:] != frequencies.shape[-2:]:
                raise ShapeError(
                    f"shift has shape {tuple(shift.shape)}, but the penalty counts "
                    f"{tuple(frequencies.shape)}"
                )
            frequencies = frequencies + shift
        gaps = (self._grid(frequencies) - frequencies).abs()
        sizes = [counts.shape[-2] for counts in tally.counts]
        terms = []
        for gap, weights in zip(gaps.split(sizes, -2), tally.weights, strict=True):
            deviation = gap if self.p == 1 else gap**self.p
            if weights is None:
                terms.append(deviation.mean((-2, -1)))
            else:
                terms.append((weights / tally.rows * deviation.mean(-1)).sum(-1))
        return sum(terms[1:], terms[0])

    @torch.no_grad()
    def shift(self, training: LevelCounts, validation: LevelCounts) -> Tensor:
        r"""By how much rows that the loss has not seen differ from those it was fitted to.

        .. math:: s\, b(\alpha), \qquad b = \hat F_{validation} - \hat F_{training}, \qquad
                  s = \Big(1 - \frac{q}{\int b^2 \, d\alpha}
                  \Big(\frac1{N_{training}} + \frac1{N_{validation}}\Big)\Big)_+

        for each component, with q the 95 % quantile of the Cramér-von Mises statistic: a difference
        that two samples of one nearly uniform law may well show does not count, and a larger one is
        shrunk by as much. The training rows, of which there are many, then give the gradient, and
        the others the aim.

        Args:
            training: counts of rows that the loss is fitted to.
            validation: counts of others, with the present parameters.

        Returns:
            `(..., J, levels)`, for the components of all terms.

        Example:
            >>> from torch.distributions import MultivariateNormal
            >>> penalty = CalibrationPenalty("location")
            >>> def tally(scale, n=4000):
            ...     y = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
            ...     return penalty.tally(
            ...         MultivariateNormal(torch.zeros(n, 2), torch.eye(2)), scale * y
            ...     )
            >>> fitted, others = tally(1.0), tally(1.5)
            >>> overconfident = penalty.error(fitted, penalty.shift(fitted, others))
            >>> bool(penalty.error(fitted) < 0.01 < 0.05 < overconfident)
            True
        """
        gap = validation.frequencies - training.frequencies
        size = gap.square().sum(-1, keepdim=True) / (self.levels - 1)
        noise = _CRAMER_VON_MISES * (1 / training.rows + 1 / validation.rows)
        return (1 - noise / size).clamp_min(0) * gap

    def extra_repr(self) -> str:
        """The settings, for printing."""
        terms = "+".join(term.label for term in self.preranks)
        return (
            f"{terms!r}, n_samples={self.n_samples}, p={self.p:g}, levels={self.levels}, "
            f"tau={self.tau:g}, level_tau={self.level_tau:g}"
        )

    def _grid(self, like: Tensor) -> Tensor:
        return torch.linspace(0, 1, self.levels, dtype=like.dtype, device=like.device)

    def _count(self, pits: list[SmoothPIT]) -> LevelCounts:
        rows = pits[0].z.shape[-2]
        counts = [level_counts(pit.z, self.levels, self.level_tau) for pit in pits]
        weights = [None if pit.weights is None else rows * pit.weights for pit in pits]
        return LevelCounts(counts, weights, rows)


class _PublishedPenalty(CalibrationPenalty):
    """Relaxed samples, indicators in units of T, fresh draws and weighted components."""

    shifts = False  # principal components are those of a batch: counts of several do not add up

    def tally(self, dist: Distribution, y: object, *, generator: Noise | int = None) -> LevelCounts:
        noise = as_noise(generator)
        pits = [
            published_pit(dist, y, term, n_samples=self.n_samples, tau=self.tau, generator=noise)
            for term in self.preranks
        ]
        return self._count(pits)
