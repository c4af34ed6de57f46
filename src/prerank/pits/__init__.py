"""Projected PITs: exact ones to judge by, smooth ones to train with."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.dimension_matching import Names
from prerank.adapters.named_arguments import NamedCall, accepts_names
from prerank.distributions import Ensemble
from prerank.distributions.availability import SubEvents, has_gaps, separable
from prerank.inputs import as_generator, as_missing, check_distribution, check_observations
from prerank.pits.closed_forms import ProjectedCDF, StepCDF, closed_form, register_closed_form
from prerank.pits.incomplete_events import available_pits, refuse_without_rows
from prerank.pits.ranks import ProjectedPIT, project_pits, rank_pit
from prerank.pits.smooth import SmoothPIT, Widths, smooth_pit, smooth_pits, smoothing_widths
from prerank.preranks import PreRank, PreRankLike, applicable

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "ProjectedCDF",
    "ProjectedPIT",
    "SmoothPIT",
    "StepCDF",
    "Widths",
    "closed_form",
    "pit",
    "project_pits",
    "rank_pit",
    "register_closed_form",
    "smooth_pit",
    "smooth_pits",
    "smoothing_widths",
]


def _named_pits(call: NamedCall[Tensor]) -> "xr.DataArray":
    """PITs with the coordinates of the rows, and the names of the components."""
    results = _projected(**call.arguments)
    names = []
    for result in results:
        size = result.z.shape[-1]
        own = result.prerank.component_names(call.forecast.observed.targets, size)
        names += [result.prerank.label] if size == 1 else own
    z = torch.cat([result.z for result in results], -1)
    return call.forecast.over_components(z, "pit", names)


@accepts_names(_named_pits)
def pit(
    dist: Distribution,
    y: object,
    prerank: PreRankLike,
    *,
    n_samples: int = 100,
    generator: torch.Generator | int | None = None,
    closed_forms: bool = True,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
    missing: str = "raise",
) -> Tensor:
    r"""Projected PIT :math:`Z = \hat F_T(T)`, uniform where the predictor is calibrated.

    Closed form where one is registered (linear pre-ranks of Gaussian mixtures and normals),
    exchangeable ranks with randomised ties otherwise: exactly uniform under the true law for every
    number of samples.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: observations `(..., N, D)`: numpy, pandas or torch.
        prerank: text such as `"hdr"` or `"pca(0.8)"`, a pre-rank, or a function `rho(y)`. The
            components of a sum such as `"marginal+hdr"` are put side by side.
        n_samples: draws per row where there is no closed form.
        generator: a generator or seed for draws and ties.
        closed_forms: False ranks samples even where the projected law is known.
        member: the dimension of the members, where `dist` and `y` are of xarray
            (`prerank.adapters.named_forecast`).
        target: the dimensions that form one event, likewise.
        rows: the other dimensions, likewise.
        missing: `"available"` takes NaN in `y`, and in an `Ensemble` that does. The PITs are those
            of the targets that are there, and NaN where a pre-rank needs others; uniform if
            whether a value is missing does not depend on the values.

    Returns:
        `(*batch_shape, J)`; for arrays of xarray one with the coordinates of the rows.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> dist = MultivariateNormal(torch.zeros(1000, 2), torch.eye(2))
        >>> z = pit(dist, dist.sample(), "hdr", generator=0)
        >>> z.shape
        torch.Size([1000, 1])
    """
    results = _projected(
        dist,
        y,
        prerank,
        n_samples=n_samples,
        generator=generator,
        closed_forms=closed_forms,
        missing=missing,
    )
    return torch.cat([result.z for result in results], -1)


def _projected(
    dist: Distribution, y: object, prerank: PreRankLike, *, missing: str = "raise", **options: Any
) -> list[ProjectedPIT]:
    gaps = as_missing(missing)
    check_distribution(dist, gaps=gaps)
    exact = dist.at_precision_of(y) if gaps and isinstance(dist, Ensemble) else dist
    observed = check_observations(exact, y, gaps=True) if gaps else None
    if observed is None or not has_gaps(dist, observed):
        return project_pits(dist, y, applicable(prerank, dist)[0], **options)
    dist = exact
    options["generator"] = as_generator(options.get("generator"), "draw")
    sizes = {"n_samples": options.get("n_samples", 100), "generator": options["generator"]}
    dist = separable(dist, **sizes)
    terms = applicable(prerank, dist)[0]
    for term in terms:
        term.check(dist)

    def projecting(
        part: SubEvents, preranks: tuple[PreRank, ...], **own: Any
    ) -> list[ProjectedPIT]:
        return project_pits(part.dist, part.y, preranks, **options, **own)

    found = available_pits(dist, observed, terms, projecting)
    refuse_without_rows(terms, found)
    return [found[term] for term in terms]
