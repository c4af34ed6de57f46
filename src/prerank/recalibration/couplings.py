r"""Ensembles with given margins, and the rank structure of other members or of past observations.

A coupling puts the S values of each target in the order that a *template* of S points has:

.. math:: x_{sd} = q_{(r_{sd})\,d}, \qquad r_{sd} = \mathrm{rank}_d(t_s),

with :math:`q_{(1)d} \le \dots \le q_{(S)d}` values of the margin d. The margins are exactly the
given ones, and the empirical copula is exactly that of the template (Schefzik et al., 2013).
"""

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Ensemble, draw
from prerank.distributions.densities import in_support
from prerank.distributions.noise import standard_uniform
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.inputs import as_generator, as_points, check_distribution, full_precision, parameter_of
from prerank.recalibration.base import refuse_discrete
from prerank.recalibration.corrections import Correction
from prerank.recalibration.marginal import MarginalRecalibrator, MarginTable

__all__ = ["Coupling", "EnsembleCopulaCoupling", "SchaakeShuffle", "couple"]

_Draws = Literal["quantiles", "random"]
_DRAWS = ("quantiles", "random")


@full_precision()
def couple(
    margins: Distribution,
    template: object,
    *,
    draws: _Draws = "quantiles",
    n_samples: int = 512,
    generator: torch.Generator | int | None = None,
) -> Ensemble:
    r"""Join the margins of a distribution by the ranks of a template.

    .. math:: x_{sd} = F_d^{-1}\big(u_{(r_{sd})\,d}\big), \qquad r_{sd} = \mathrm{rank}_d(t_s).

    `draws="quantiles"` takes the levels :math:`u_{(s)} = s / (S + 1)` (ECC-Q), `"random"` S sorted
    uniforms for each row and target (ECC-R). An `Ensemble` of S members is its own set of
    quantiles: its members are reordered and nothing else. Ties in the template are broken at
    random.

    Args:
        margins: `batch_shape (N,)`, `event_shape (D,)`; its dependence is not used.
        template: `(S, N, D)`, or `(S, D)` for the same ranks in every row.
        draws: `"quantiles"` or `"random"`.
        n_samples: draws per row for margins without a closed form. Levels beyond them are
            extrapolated, but not out of the support: there the outermost draw stands for them.
        generator: source of levels, ties and draws.

    Returns:
        S members per row.

    References:
        Schefzik, R., Thorarinsdottir, T. L., Gneiting, T. (2013). Uncertainty quantification in
        complex simulation models using ensemble copula coupling. Statistical Science 28.

    Example:
        >>> members = Ensemble([[[3.0, 1.0]], [[1.0, 2.0]], [[2.0, 3.0]]])
        >>> couple(members, [[0, 10], [5, 5], [10, 0]]).samples[:, 0]
        tensor([[1., 3.],
                [2., 2.],
                [3., 1.]], dtype=torch.float64)
    """
    refuse_discrete(check_distribution(margins))
    _checked_draws(draws)
    shape = margins.batch_shape + margins.event_shape
    points = as_points(template, "template")
    if len(shape) != 2 or points.shape[1:] not in (shape, shape[1:]):
        raise ShapeError(
            f"template has shape {tuple(points.shape)}, but margins has batch_shape "
            f"{tuple(margins.batch_shape)} and event_shape {tuple(margins.event_shape)}: they must "
            "be (S, N, D) or (S, D), (N,) and (D,)"
        )
    points = points.reshape(len(points), -1, shape[1]).expand(-1, *shape)
    source = as_generator(generator, "coupling")
    with torch.no_grad():
        if isinstance(margins, Ensemble) and draws == "quantiles" and _alike(margins, points):
            values = margins.samples
        else:
            table = MarginTable.of(margins, n_samples=n_samples, generator=source)
            places = torch.arange(1, len(points) + 1).to(table.values) / (len(points) + 1)
            levels = places.reshape(-1, 1, 1).expand(points.shape)
            if draws == "random":
                levels = standard_uniform(points.shape, like=levels, generator=source)
            values, _ = table.quantile(torch.special.ndtri(levels.clamp(1e-12, 1 - 1e-12)))
            like = parameter_of(margins)
            values = values if like is None else values.to(like.dtype)
            inside = in_support(margins, values)
            if inside is not None and not bool(inside.all()):
                # Beyond its ends the table of a drawn margin is a straight line.
                drawn = draw(margins, n_samples, generator=source).points
                kept = values.clamp(drawn.amin(0), drawn.amax(0))
                values = torch.where(inside.unsqueeze(-1), values, kept)
        return Ensemble(values.sort(0).values.gather(0, _ranks(points, source)))


def _checked_draws(draws: _Draws) -> _Draws:
    if draws not in _DRAWS:
        raise InputError(f"draws must be one of {_DRAWS}, got {draws!r}")
    return draws


def _alike(margins: Ensemble, template: Tensor) -> bool:
    return margins.weights is None and margins.samples.shape == template.shape


def _ranks(points: Tensor, source: torch.Generator | None) -> Tensor:
    """Ranks from 0 along the first axis, ties at random."""
    # A stable sort keeps the random order of equal values.
    chance = standard_uniform(points.shape, like=points.double(), generator=source).argsort(0)
    order = chance.gather(0, points.gather(0, chance).argsort(stable=True, dim=0))
    return order.argsort(0)


class Coupling(MarginalRecalibrator):
    """Margins recalibrated one by one, then joined by the ranks of a template."""

    _draws: _Draws = "quantiles"

    def __call__(self, dist: Distribution) -> Ensemble:
        """Recalibrate the margins of ensembles, and join them.

        Args:
            dist: an `Ensemble` without weights, any number of rows.
        """
        margins = super().__call__(dist)  # comes back as it is where the margins are calibrated
        raw = self._members(dist)
        source = as_generator(self.seed_, "template")
        template = self._template(raw, source)
        return couple(margins, template, draws=self._draws, generator=source)

    @abstractmethod
    def _template(self, raw: Tensor, source: torch.Generator | None) -> Tensor:
        """Points `(S, N, D)` for members `(S, N, D)`."""

    def _checked(self, dist: object) -> Distribution:
        self._members(dist)
        return super()._checked(dist)

    def _members(self, dist: object) -> Tensor:
        if isinstance(dist, Ensemble) and dist.weights is None:
            return dist.samples
        found = "one with weights" if isinstance(dist, Ensemble) else type(dist).__name__
        raise NotApplicableError(
            f"{type(self).__name__} reorders the members of an Ensemble without weights, got "
            f"{found}: draw members first, as in Ensemble(dist.sample((50,)))"
        )


class EnsembleCopulaCoupling(Coupling):
    r"""Recalibrate each target of an ensemble, and keep the rank structure of its members.

    .. math:: x_{sd} = G_d^{-1}\big(u_{(r_{sd})\,d}\big), \qquad
              r_{sd} = \mathrm{rank}_d(\text{raw member } s), \qquad G_d = R_d \circ F_d,

    with :math:`F_d` the margin of the raw ensemble and :math:`R_d` its correction by
    `MarginalRecalibrator`. With `draws="quantiles"` (ECC-Q) the levels are those of the members,
    which then are the members of `MarginalRecalibrator` with the same corrections, except that tied
    members are set apart at random. Since :math:`F_d` is the empirical one, this is also the
    transformation of the members (ECC-T). `draws="random"` (ECC-R) takes random levels. Margins
    from elsewhere, such as normal ones of a regression, are joined by
    `couple(margins, ensemble.samples)`.

    A dependence that is wrong in the raw ensemble stays wrong.

    Args:
        draws: `"quantiles"` or `"random"`.
        n_samples: not used: an ensemble has its members.
        generator: a seed, or a generator from which one is taken at `fit`.

    References:
        Schefzik, R., Thorarinsdottir, T. L., Gneiting, T. (2013). Uncertainty quantification in
        complex simulation models using ensemble copula coupling. Statistical Science 28.

    Example:
        >>> draw = torch.Generator().manual_seed(0)
        >>> y = torch.randn(1000, 2, generator=draw)
        >>> raw = Ensemble(2 * torch.randn(50, 1000, 2, generator=draw))
        >>> new = EnsembleCopulaCoupling(generator=0).fit(raw, y)(raw)
        >>> torch.equal(new.samples.argsort(0), raw.samples.argsort(0))
        True
        >>> bool(new.samples.std() < 1.2)
        True
    """

    def __init__(
        self,
        draws: _Draws = "quantiles",
        *,
        n_samples: int = 512,
        generator: torch.Generator | int | None = None,
    ) -> None:
        super().__init__(n_samples=n_samples, generator=generator)
        self._draws = _checked_draws(draws)

    def _template(self, raw: Tensor, source: torch.Generator | None) -> Tensor:
        return raw


class SchaakeShuffle(Coupling):
    r"""Recalibrate each target of an ensemble, and give it the rank structure of past observations.

    .. math:: x_{sd} = G_d^{-1}\big(u_{(r_{sd})\,d}\big), \qquad
              r_{sd} = \mathrm{rank}_d(\text{past observation } s),

    with margins :math:`G_d` as for `EnsembleCopulaCoupling`. Each row gets S of the calibration
    observations, chosen at random. Their dependence contains what the inputs explain: it is that
    of the errors only where the forecasts hardly differ between rows.

    Args:
        n_samples: not used: an ensemble has its members.
        generator: a seed, or a generator from which one is taken at `fit`.

    Attributes:
        past_: the observations, `(N, D)`.

    References:
        Clark, M., Gangopadhyay, S., Hay, L., Rajagopalan, B., Wilby, R. (2004). The Schaake
        shuffle: a method for reconstructing space-time variability in forecasted precipitation and
        temperature fields. Journal of Hydrometeorology 5.

    Example:
        >>> draw = torch.Generator().manual_seed(0)
        >>> y = torch.randn(1000, 1, generator=draw).expand(-1, 2)  # both targets are the same
        >>> raw = Ensemble(torch.randn(50, 1000, 2, generator=draw))
        >>> new = SchaakeShuffle(generator=0).fit(raw, y)(raw).samples
        >>> torch.equal(new[..., 0].argsort(0), new[..., 1].argsort(0))
        True
    """

    def _fitted(
        self, dist: Distribution, y: Tensor, source: torch.Generator | None
    ) -> list[Correction]:
        size = len(self._members(dist))
        if len(y) < size:
            raise InputError(
                f"y has {len(y)} rows and dist {size} members: the Schaake shuffle needs an "
                "observation for each member; fit it to more rows, or pass fewer members"
            )
        self.past_ = y
        return super()._fitted(dist, y, source)

    def _template(self, raw: Tensor, source: torch.Generator | None) -> Tensor:
        size, rows, _ = raw.shape
        if len(self.past_) < size:
            raise InputError(
                f"dist has {size} members, but this SchaakeShuffle has {len(self.past_)} past "
                "observations: pass fewer members, or fit it to more rows"
            )
        chance = standard_uniform((len(self.past_), rows), like=raw, generator=source)
        return self.past_[chance.argsort(0)[:size]]
