"""Members of arrays of xarray, changed by something that takes an ensemble."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from torch.distributions import Distribution

from prerank.adapters.dimension_matching import named_samples
from prerank.distributions import Ensemble
from prerank.errors import InputError

__all__ = ["changed_members"]


def changed_members(
    dist: Any,
    change: Callable[[Ensemble], Distribution],
    *,
    of: str,
    dimensions: tuple[Hashable | None, tuple[Hashable, ...]] | None,
    targets: Sequence[str],
) -> Any:
    """Change the members of arrays whose events may have their places in another order.

    Args:
        dist: DataArray, or Dataset, of samples.
        change: from an ensemble with the targets in the order of the fit to one of as many members.
        of: what changes them, for messages.
        dimensions: that of the members and those of an event, as they were at the fit; None where
            it was not fitted to arrays of xarray.
        targets: names of the components at the fit.

    Returns:
        Samples with the dimensions, coordinates and attributes of `dist`.
    """
    if dimensions is None:
        raise InputError(
            f"dist is of xarray, but {of} was not fitted to arrays of xarray: fit it to "
            "some, with member= and target="
        )
    member, target = dimensions
    samples = named_samples(dist, member=member, target=target)
    places = samples.component_places(targets, of)
    new = change(Ensemble(samples.values()[..., places]))
    assert isinstance(new, Ensemble)
    return samples.like(new.samples[..., np.argsort(places)].cpu().numpy())
