"""Predictions of Bayesian models that ArviZ holds."""

from typing import TYPE_CHECKING, Any

from prerank.coordinates import quoted
from prerank.errors import InputError
from prerank.extras import library
from prerank.inputs import wrong_type

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["from_arviz"]


def from_arviz(
    tree: Any, *, group: str = "posterior_predictive", observed: str = "observed_data"
) -> "tuple[xr.Dataset, xr.Dataset]":
    """Samples and observations of a `DataTree`, or of an `InferenceData` of earlier versions.

    All chains become one dimension `sample`. Variables that only one of the two groups has are left
    out. `prerank.diagnose` and `prerank.calibrate` take both as they are, with the dimensions of an
    event in `target=`.

    Draws of a Markov chain depend on each other: thin the chains first, or take every k-th
    sample, as in `samples.isel(sample=slice(None, None, k))`. A model predicts the rows that it
    was fitted to better than others, so judge it by rows that were held out.

    Args:
        tree: what ArviZ, PyMC or `arviz.from_numpyro` returns.
        group: name of the group with the predictions.
        observed: name of the group with the observations, whose variables have the same names.

    Example:
        >>> import numpy as np, prerank, xarray as xr
        >>> rng = np.random.default_rng(0)
        >>> drawn = xr.DataArray(rng.normal(size=(4, 25, 300)), dims=["chain", "draw", "row"])
        >>> seen = xr.DataArray(rng.normal(size=300), dims=["row"])
        >>> groups = {"posterior_predictive": {"y": drawn}, "observed_data": {"y": seen}}
        >>> tree = xr.DataTree.from_dict({name: xr.Dataset(v) for name, v in groups.items()})
        >>> samples, y = from_arviz(tree)
        >>> dict(samples["y"].sizes)
        {'sample': 100, 'row': 300}
        >>> prerank.diagnose(samples, y).verdict().headline
        'No evidence of miscalibration on 300 rows.'
    """
    xarray = library("xarray", "from_arviz")
    if isinstance(tree, xarray.DataTree):
        groups = {str(name): node.to_dataset() for name, node in tree.children.items()}
    elif callable(getattr(tree, "groups", None)) and hasattr(tree, "add_groups"):
        groups = {name: tree[name] for name in tree.groups()}
    else:
        raise wrong_type("tree", tree, "an xarray.DataTree or arviz.InferenceData")
    for name, what in ((group, "group"), (observed, "observed")):
        if name not in groups:
            raise InputError(f"tree has no group {name!r} ({what}=); there are {quoted(groups)}")
    drawn, seen = groups[group], groups[observed]
    both = [name for name in seen.data_vars if name in drawn.data_vars]
    if not both:
        raise InputError(
            f"{group!r} has the variables {quoted(drawn.data_vars)}, and {observed!r} "
            f"{quoted(seen.data_vars)}: give predictions and observations the same names"
        )
    samples = drawn[both]
    dims = [dim for dim in ("chain", "draw") if dim in samples.dims]
    if dims and "sample" in samples.dims:
        raise InputError(
            f"{group!r} has a dimension 'sample' beside {quoted(dims)}: rename it in both groups, "
            "since the draws of all chains get that name"
        )
    if dims:
        samples = samples.stack(sample=dims, create_index=False).drop_vars(dims, errors="ignore")
    return samples.transpose("sample", ..., missing_dims="ignore"), seen[both]
