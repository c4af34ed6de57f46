r"""Ensembles with given margins, and the rank structure of other members or of past observations.

A coupling puts the S values of each target in the order that a *template* of S points has:

.. math:: x_{sd} = q_{(r_{sd})\,d}, \qquad r_{sd} = \mathrm{rank}_d(t_s),

with :math:`q_{(1)d} \le \dots \le q_{(S)d}` values of the margin d. The margins are exactly the
given ones, and the empirical copula is exactly that of the template (Schefzik et al., 2013).
"""

from abc import abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.dimension_matching import Names, named_forecast, named_samples
from prerank.adapters.fields import Field
from prerank.adapters.named_arguments import refuse_names
from prerank.coordinates import quoted
from prerank.distributions import Ensemble, draw
from prerank.distributions.densities import in_support
from prerank.distributions.noise import standard_uniform
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.inputs import (
    as_generator,
    as_points,
    check_distribution,
    full_precision,
    is_named,
    parameter_of,
    wrong_type,
)
from prerank.recalibration.base import refuse_discrete
from prerank.recalibration.corrections import Correction
from prerank.recalibration.marginal import MarginalRecalibrator, MarginTable

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Coupling", "EnsembleCopulaCoupling", "SchaakeShuffle", "couple"]

_Draws = Literal["quantiles", "random"]
_DRAWS = ("quantiles", "random")


@overload
def couple(
    margins: Distribution,
    template: object,
    *,
    draws: _Draws = ...,
    n_samples: int = ...,
    generator: torch.Generator | int | None = ...,
) -> Ensemble: ...


@overload
def couple(
    margins: "xr.DataArray | xr.Dataset",
    template: object,
    *,
    draws: _Draws = ...,
    n_samples: int = ...,
    generator: torch.Generator | int | None = ...,
    member: Hashable | None = ...,
    target: Names | None = ...,
) -> Any: ...


@full_precision()
def couple(
    margins: Any,
    template: object,
    *,
    draws: _Draws = "quantiles",
    n_samples: int = 512,
    generator: torch.Generator | int | None = None,
    member: Hashable | None = None,
    target: Names | None = None,
) -> Any:
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
        member: the dimension of the members, where `margins` are samples of xarray. `template` is
            then of xarray too, with as many points: members of the same rows and events, matched by
            their labels, or events along one other dimension, such as dates of the past.
        target: the dimensions that form one event, likewise.

    Returns:
        S members per row; samples of xarray with the coordinates and attributes of `margins`.

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
    if is_named(margins):
        samples = named_samples(margins, member=member, target=target, name="margins")
        options: dict[str, Any] = {"draws": draws, "n_samples": n_samples, "generator": generator}
        members, past = Ensemble(samples.values()), _named_template(samples, template)
        joined = couple(members, past, **options)
        return samples.like(joined.samples.cpu().numpy())
    refuse_names(member=member, target=target)
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


def _named_template(samples: Field, template: Any) -> npt.NDArray[Any]:
    """Points of a template `(S, N, D)` or `(S, D)`, in the order of the samples to be joined."""
    if not is_named(template):
        raise wrong_type("template", template, "an xarray.DataArray or xarray.Dataset, as margins")
    member, count = samples.member, samples.given.sizes[samples.member]
    if member in template.dims:
        one = samples.given.isel({member: 0}, drop=True)
        names: dict[str, Any] = {"member": member, "target": samples.target, "rows": samples.rows}
        points = named_forecast(template, one, name="template", **names).samples.values()
    else:
        past = [dim for dim in template.dims if dim not in samples.target]
        if len(past) != 1:
            raise ShapeError(
                f"template has the dimensions {quoted(template.dims)}: it needs {member!r}, or one "
                f"dimension beside {quoted(samples.target)} along which events are"
            )
        field = Field("template", template, samples.variables, past[0], (), samples.target)
        places = field.component_places(samples.targets, "margins")
        points = field.values()[:, 0, places]
    if len(points) != count:
        raise ShapeError(
            f"template has {len(points)} points and margins {count} members: give as many, such as "
            f"a part of the past with template.isel(...)"
        )
    return points


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

    @overload
    def __call__(self, dist: Distribution) -> Ensemble: ...

    @overload
    def __call__(self, dist: "xr.DataArray | xr.Dataset") -> Any: ...

    def __call__(self, dist: Any) -> Any:
        """Recalibrate the margins of ensembles, and join them.

        Args:
            dist: an `Ensemble` without weights, any number of rows; or samples of xarray, which
                come back with their dimensions, coordinates and attributes.
        """
        return super().__call__(dist)

    def _applied(self, dist: Distribution) -> Ensemble:
        margins = super()._applied(dist)  # comes back as it is where the margins are calibrated
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
        margins: False leaves the values of each target as they are, and only reorders them: for
            ensembles whose dependence alone is wrong. The margins are recalibrated as those of
            independent rows; few rows that follow each other in time show them wrong by chance.
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

    def __init__(
        self,
        *,
        margins: bool = True,
        n_samples: int = 512,
        generator: torch.Generator | int | None = None,
    ) -> None:
        super().__init__(n_samples=n_samples, generator=generator)
        self._margins = margins

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
        if not self._margins:
            return [Correction() for _ in range(y.shape[-1])]
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
