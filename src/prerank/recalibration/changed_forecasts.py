"""Forecasts that a head accepts, and what a change makes of each kind."""

import torch
from torch.distributions import Distribution

from prerank.adapters.mixtures import as_gaussian_mixture
from prerank.distributions import Bounded, Ensemble, GaussianMixture
from prerank.errors import NotApplicableError
from prerank.inputs import check_distribution, full_precision
from prerank.recalibration.anatomy import Anatomy
from prerank.recalibration.base import refuse_discrete
from prerank.recalibration.change import Change
from prerank.recalibration.copies import Copies

__all__ = ["changed_forecast", "checked_forecast", "kind_of"]


def checked_forecast(dist: object) -> Distribution:
    """Predictions of continuous targets, Gaussian ones as mixtures."""
    checked = check_distribution(dist)
    refuse_discrete(checked)
    if isinstance(checked, Bounded):
        raise NotApplicableError(
            "a head moves and widens forecasts, which would leave their bounds: fit it to "
            "`dist.base` and `dist.points(y)`, and put the bounds around what it gives: "
            "`Bounded(head(dist.base), dist.links)`"
        )
    return as_gaussian_mixture(checked)


def kind_of(dist: Distribution) -> str:
    """Kind of a checked forecast: the same numbers mean different changes of each."""
    if isinstance(dist, GaussianMixture):
        return "mixture"
    return "ensemble" if isinstance(dist, Ensemble) else "density"


def changed_forecast(base: Distribution, change: Change, *, seed: int) -> Distribution:
    """Apply a change; the forecast comes back as it is where nothing is to be changed.

    Args:
        base: a checked forecast.
        change: its parameters have the shape of the stack, or of the rows.
        seed: of the copy that each member of an ensemble becomes.
    """
    levels = change.active
    if not levels:
        return base
    with full_precision():
        if isinstance(base, GaussianMixture):
            with torch.no_grad():
                own = Change(*(part.to(base.loc) for part in change))
                return Anatomy.of(base).changed(own, levels)
        copies = Copies(base, change)
        if not isinstance(base, Ensemble):
            return copies
        members = len(base.samples)
        chosen = copies.allocate(members, torch.Generator().manual_seed(seed))
        return Ensemble(copies.place(base.samples, chosen), base.weights)
