"""Units in which squares of a forecast are numbers, and forecasts finer than their precision."""

import math
from collections.abc import Callable
from functools import cache, singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import (
    Cauchy,
    Distribution,
    Gumbel,
    Independent,
    Laplace,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    StudentT,
)

from prerank.distributions.affine import affine
from prerank.distributions.ensemble import Ensemble
from prerank.distributions.mixture import GaussianMixture
from prerank.errors import InputError
from prerank.inputs import check_finite, may_not_wait

__all__ = [
    "RowFactors",
    "check_ratio",
    "check_resolution",
    "resolution_remarks",
    "row_factors",
    "safe_factors",
    "sample_spans",
    "spans",
    "times",
    "within_bounds",
]

_DIGITS = 4.0  # roundings of the location that a standard deviation must have
_STANDARD_DEVIATIONS = 4.0  # in the range of some samples
_PLACED = (Normal, Laplace, StudentT, Cauchy, Gumbel)  # families with a location and a scale
_FEW = 4  # samples, whose range is a lower bound of that of all
_HIDDEN = 0.01  # share of the rows from which on it is said that rounding hides a forecast


class Spans(NamedTuple):
    """Where the forecasts of a target lie, and how wide they are.

    Attributes:
        sizes: bounds of the sizes of the centres, of any shape.
        least: lower bounds of the widths, of any shape.
        centres: computes those of K components, `(*batch_shape, K, D)`.
        widths: computes the largest entries of the factors, `(*batch_shape, K, D)`: standard
            deviations are at most sqrt(D) times as large, and may have squares without a number.
    """

    sizes: Tensor
    least: Tensor
    centres: Callable[[], Tensor]
    widths: Callable[[], Tensor]


class RowFactors(NamedTuple):
    """Powers of two that bring forecasts and observations within bounds.

    Attributes:
        rows: one for all targets of a row, `(..., N, 1)`; None where no row needs one.
        targets: one for each target of a row, `(..., N, D)`; None where no target needs one.
    """

    rows: Tensor | None
    targets: Tensor | None


@singledispatch
def spans(dist: Distribution) -> Spans | None:
    """Spans of a distribution `(..., N)` over `(D,)` whose parameters tell them, else None.

    Example:
        >>> dist = MultivariateNormal(torch.zeros(1, 2), torch.tensor([[4.0, 0.0], [0.0, 9.0]]))
        >>> spans(dist).widths()
        tensor([[[2., 3.]]])
    """
    return None


@spans.register
def _(dist: GaussianMixture) -> Spans:
    factor = dist.scale_tril
    least = factor.diagonal(dim1=-2, dim2=-1)
    return Spans(dist.loc, least, lambda: dist.loc, lambda: factor.abs().amax(-1))


@spans.register
def _(dist: MultivariateNormal) -> Spans:
    factor = dist.scale_tril.unsqueeze(-3)
    least = factor.diagonal(dim1=-2, dim2=-1)
    centre = dist.loc.unsqueeze(-2)
    return Spans(centre, least, lambda: centre, lambda: factor.abs().amax(-1))


@spans.register
def _(dist: LowRankMultivariateNormal) -> Spans:
    least = dist.cov_diag.sqrt().unsqueeze(-2)

    def widths() -> Tensor:
        return torch.maximum(dist.cov_factor.abs().amax(-1).unsqueeze(-2), least)

    centre = dist.loc.unsqueeze(-2)
    return Spans(centre, least, lambda: centre, widths)


@spans.register(Independent)
def _(dist: Independent[Any]) -> Spans | None:
    base = dist.base_dist
    if not isinstance(base, _PLACED):
        return None
    centre, width = base.loc.unsqueeze(-2), base.scale.unsqueeze(-2)
    return Spans(centre, width, lambda: centre, lambda: width)


@spans.register
def _(dist: Ensemble) -> Spans:
    return sample_spans(dist.samples, dist.extremes)


def sample_spans(points: Tensor, extremes: Tensor | None = None) -> Spans:
    """Spans of samples `(S, *batch_shape, D)`, of which the least and the largest may be known."""
    points = points.detach()
    if extremes is None:
        extremes = torch.stack(points.aminmax())
    few = points[:_FEW]

    @cache
    def range_of_rows() -> tuple[Tensor, Tensor]:
        return points.amin(0).unsqueeze(-2), points.amax(0).unsqueeze(-2)

    def farthest() -> Tensor:
        low, high = range_of_rows()
        return torch.where(low.abs() > high.abs(), low, high)

    def widths() -> Tensor:
        low, high = range_of_rows()
        return (high - low) / _STANDARD_DEVIATIONS

    least = (few.amax(0) - few.amin(0)) / _STANDARD_DEVIATIONS
    return Spans(extremes, least, farthest, widths)


@torch.no_grad()
def check_resolution(found: Spans, y: Tensor, *, bounded: bool = False) -> None:
    """Raise where most rows have forecasts that are finer than the precision of their numbers.

    Args:
        found: spans of the forecasts.
        y: observations `(..., N, D)`.
        bounded: raise for infinite locations and spreads too; NaN is for others to find.

    Example:
        >>> dist = MultivariateNormal(torch.full((2, 1), 1e9), torch.eye(1))
        >>> check_resolution(spans(dist), torch.full((2, 1), 1e9))
        Traceback (most recent call last):
        prerank.errors.InputError: dist and y are finer than the precision of float32 for target ...
    """
    if not _may_look(found.least) or _ordinary(found, y):
        return
    if bounded:
        for part in (found.centres(), _breadth(found)):
            known = part.where(~part.isnan(), 0)
            check_finite(known, "the spread of dist", f"its numbers are too large for {y.dtype}")
    if float((hidden := _hidden(found, y)).max()) > 0.5:
        raise InputError(_words(hidden, y))


@torch.no_grad()
def row_factors(found: Spans, y: Tensor) -> RowFactors:
    """Powers of two that bring rows of very large or very small numbers within bounds.

    Within them squares, and the inverses of these, are numbers: from :math:`2^{-32}` to
    :math:`2^{56}` in float32. Powers of two change no digit, and rows within have a factor of 1.
    One factor for a row keeps its targets comparable, and may make a small one beside a large one
    vanish; what looks at the targets in units of their own takes a factor for each.

    Args:
        found: spans of the forecasts.
        y: observations `(..., N, D)`.

    Returns:
        Factors, None where values cannot be looked at.

    Example:
        >>> dist = MultivariateNormal(torch.zeros(2, 1), torch.tensor([[[1.0]], [[1e-24]]]))
        >>> row_factors(spans(dist), torch.tensor([[1.0], [0.0]])).rows.log2()
        tensor([[ 0.],
                [39.]])
    """
    if not _may_look(found.least) or _ordinary(found, y):
        return RowFactors(None, None)
    sizes = _sizes(found, y)
    return RowFactors(safe_factors(sizes.amax(-1, keepdim=True)), safe_factors(sizes))


@torch.no_grad()
def check_ratio(found: Spans, y: Tensor, *, gradient: bool = False) -> None:
    r"""Raise where a target is too small beside the others of its row for numbers that see both.

    The largest number of a row may be wider than the narrowest forecast by a factor of
    :math:`2^{176} \approx 10^{53}` in float32 (beyond, the factor of the row leaves no digits), and
    of :math:`2^{1464}` in float64.

    Args:
        found: spans of the forecasts.
        y: observations `(..., N, D)`.
        gradient: for slopes of wide targets along narrow ones, which are as large as the ratio of
            their widths: :math:`2^{124} \approx 10^{37}` in float32, and :math:`2^{1020}` in
            float64.

    Example:
        >>> factor = torch.diag(torch.tensor([1e-30, 1e30]))
        >>> dist = MultivariateNormal(torch.zeros(1, 2), scale_tril=factor)
        >>> check_ratio(spans(dist), torch.zeros(1, 2))
        Traceback (most recent call last):
        prerank.errors.InputError: dist and y have targets whose sizes differ by more than 1e+53 ...
    """
    widths = found.widths()
    sizes = widths.amax(-2) if gradient else _sizes(found, y)
    largest = sizes.amax(-1, keepdim=True).frexp().exponent
    # A width of 0 is one of a forecast without spread.
    narrowest = torch.where(widths > 0, widths, torch.inf).amin(-2)
    apart = largest - torch.where(narrowest.isinf(), largest, narrowest.frexp().exponent)
    # Room for the slopes of a CDF up to 40 standard deviations away, and for those of draws.
    most = _exponent(y.dtype) + (-4 if gradient else _bounds(y.dtype)[1] - 8)
    if int(apart.max()) > most:
        remedy = "" if y.dtype == torch.float64 else " or use float64"
        raise InputError(
            f"dist and y have targets whose sizes differ by more than 1e+{most * math.log10(2):.0f}"
            f" in one row, which {y.dtype} cannot hold together: rescale the targets{remedy}"
        )


def times(dist: Distribution, factor: Tensor) -> Distribution:
    """The distribution of a multiple of each row, with factors `(..., N, 1)` or `(..., N, D)`."""
    scale = factor.expand(dist.batch_shape + dist.event_shape)
    return affine(dist, scale.new_zeros(scale.shape[-1]), scale)


def within_bounds(
    dist: Distribution, y: Tensor | None = None
) -> tuple[Distribution, Tensor | None]:
    """Forecasts in units of their targets, and the factors, for families that tell their size.

    The factors are those of `row_factors` for each target, `(..., N, D)`. With observations,
    `check_resolution` looks at both.

    Example:
        >>> dist = Ensemble(torch.tensor([[[1e-30]], [[3e-30]]]))
        >>> moved, factor = within_bounds(dist)
        >>> (moved.samples / factor).flatten()
        tensor([1.0000e-30, 3.0000e-30])
    """
    found = spans(dist)
    if found is None:
        return dist, None
    if y is not None:
        check_resolution(found, y)
    factor = row_factors(found, found.centres()[..., 0, :] if y is None else y).targets
    return (dist, None) if factor is None else (times(dist, factor), factor)


def safe_factors(sizes: Tensor) -> Tensor | None:
    """Powers of two that bring sizes of any shape within the bounds, or None for no need.

    Small ones come to 1, and large ones to the upper bound, lest small numbers beside them vanish.
    """
    if not _may_look(sizes):
        return None
    low, high = _bounds(sizes.dtype)
    most = _exponent(sizes.dtype) - 2  # beyond, a factor would be infinite
    exponent = sizes.frexp().exponent.clamp(-most, most)
    shift = torch.where(exponent > high, high - exponent, torch.where(exponent < low, -exponent, 0))
    if not bool(shift.any()):
        return None
    return torch.ldexp(torch.ones_like(sizes), shift)


@torch.no_grad()
def resolution_remarks(dist: Distribution, y: Tensor) -> tuple[str, ...]:
    """What to say of forecasts in some rows that are finer than the precision of the numbers.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: observations `(..., N, D)`.

    Example:
        >>> loc = torch.tensor([[0.0], [0.0], [1e9]])
        >>> dist = MultivariateNormal(loc, torch.eye(1))
        >>> [remark] = resolution_remarks(dist, loc + 1)
        >>> remark.partition(":")[0]
        'dist and y are finer than the precision of float32 for target 0 in 33.3% of the rows'
    """
    found = spans(dist)
    if found is None or _ordinary(found, y):
        return ()
    hidden = _hidden(found, y)
    return (_words(hidden, y),) if float(hidden.max()) >= _HIDDEN else ()


def _ordinary(found: Spans, y: Tensor) -> bool:
    """Whether bounds alone show that all rows are of a usual size, and have digits enough."""
    low, high = _bounds(y.dtype)
    extremes = [found.sizes.abs().max(), y.abs().max(), found.least.max(), found.least.min()]
    centre, observed, widest, narrowest = torch.stack(extremes).tolist()
    enough = max(2.0**low, _DIGITS * torch.finfo(y.dtype).eps * centre)
    return bool(max(centre, observed, widest) < 2.0 ** (high - 1) and narrowest > enough)


def _sizes(found: Spans, y: Tensor) -> Tensor:
    """The largest number of each target, `(..., N, D)`."""
    parts = [found.centres().abs().amax(-2), found.widths().amax(-2), y.abs()]
    return torch.stack(torch.broadcast_tensors(*parts)).amax(0)


def _breadth(found: Spans) -> Tensor:
    """Width of the forecasts with all their components, `(*batch_shape, D)`."""
    centres = found.centres()
    return found.widths().amax(-2) + (centres.amax(-2) - centres.amin(-2))


def _hidden(found: Spans, y: Tensor) -> Tensor:
    """Share of the rows in which rounding hides the forecast of each target, `(D,)`.

    Samples that are all equal may be a forecast without spread, such as one of no rain: they are
    left out, but where numbers are so large that neighbours are 1 apart or more (2^23 in float32).
    Rows whose observation is far from all samples are not hidden.
    """
    centres, breadth = found.centres(), _breadth(found)
    neighbour = torch.finfo(y.dtype).eps * centres.abs().amax(-2)
    near = (y.unsqueeze(-2) - centres).abs().amin(-2) <= _STANDARD_DEVIATIONS * _DIGITS * neighbour
    spread = (breadth > 0) | (near & (neighbour >= 1))
    hidden = spread & (breadth < _DIGITS * neighbour) & near
    counted = spread.flatten(end_dim=-2).sum(0).clamp_min(1)
    return hidden.flatten(end_dim=-2).sum(0) / counted


def _words(hidden: Tensor, y: Tensor) -> str:
    """What to do about it."""
    target, share = int(hidden.argmax()), float(hidden.max())
    name = str(y.dtype).removeprefix("torch.")
    remedy = "" if y.dtype == torch.float64 else " in float64, or pass both in float64"
    return (
        f"dist and y are finer than the precision of {name} for target {target} in {share:.1%} of "
        "the rows: neighbouring numbers are as far apart there as the forecast is wide, and PITs "
        f"say nothing. Subtract the same location from both{remedy}"
    )


def _exponent(dtype: torch.dtype) -> int:
    """Of the largest number: 128 in float32."""
    return math.frexp(torch.finfo(dtype).max)[1]


def _bounds(dtype: torch.dtype) -> tuple[int, int]:
    """Exponents of numbers with which squares and their inverses can be computed."""
    return -(_exponent(dtype) // 4), 7 * _exponent(dtype) // 16


def _may_look(tensor: Tensor) -> bool:
    """Whether a decision may depend on values: vmap has none, and a CUDA graph cannot wait."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.is_meta:
        return False
    return not (tensor.is_cuda and may_not_wait())
