"""Normalising flows and mixtures of zuko."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily

from prerank.adapters.mixtures import as_gaussian_mixture
from prerank.adapters.networks import as_input
from prerank.distributions.draws import forked_state
from prerank.errors import InputError, ShapeError
from prerank.extras import library
from prerank.inputs import as_count, as_generator, wrong_type

__all__ = ["from_zuko"]


def from_zuko(flow: object, x: object = None, *, rows: int | None = None) -> Distribution:
    r"""The law :math:`F(\cdot \mid x)` that a flow predicts, exact in density and draws.

    What a flow returns is a distribution already. This copies it in evaluation mode, takes arrays
    and tables, repeats the law of an unconditional flow for every row, and turns zuko's Gaussian
    mixtures into `prerank.GaussianMixture`, for which closed forms are known. For training, call
    the flow itself: `CalibrationPenalty` takes `flow(x)`.

    Args:
        flow: a lazy distribution, as in `zuko.flows` and `zuko.mixtures`.
        x: contexts `(N, C)`; None for a flow without context.
        rows: N, for a flow without context.

    Returns:
        A distribution with `batch_shape (N,)` and `event_shape (D,)`.

    Example:
        >>> import torch, zuko
        >>> flow = zuko.flows.NSF(features=2, context=3, hidden_features=(8,))
        >>> dist = from_zuko(flow, torch.randn(10, 3))
        >>> dist.batch_shape, dist.event_shape
        (torch.Size([10]), torch.Size([2]))
    """
    zuko = library("zuko", "from_zuko")
    if not isinstance(flow, zuko.lazy.LazyDistribution):
        raise wrong_type("flow", flow, "a flow or mixture of zuko (a LazyDistribution)")
    if x is None and rows is None:
        raise InputError("x is missing: give contexts (N, C), or rows for a flow without them")
    if x is not None and rows is not None:
        raise InputError("rows is for a flow without contexts, and x has its own: leave one out")
    # A copy: the law runs the networks when it is asked, whatever mode the flow is in by then.
    fixed: Any = copy.deepcopy(flow).eval()
    context = None if x is None else as_input(x, fixed)
    _check_context(fixed, context)
    dist = fixed(context)
    if rows is not None:
        dist = dist.expand((as_count(rows, "rows", minimum=1),))
    if isinstance(dist, zuko.distributions.Mixture):
        family = MixtureSameFamily(
            Categorical(logits=dist.logits, validate_args=False), dist.base, validate_args=False
        )
        return as_gaussian_mixture(family)
    return dist


def _check_context(flow: Any, context: Tensor | None) -> None:
    """Raise where a flow does not take such contexts: most say so only when they are drawn from."""
    if context is not None and context.dim() < 2:
        raise ShapeError(
            f"x must have shape (N, C), got {tuple(context.shape)}: use x[:, None] for contexts of "
            "one number each, x[None] for a single one"
        )
    one = None if context is None else context[..., :1, :]
    try:
        with torch.no_grad(), forked_state(as_generator(0, "zuko")):
            flow(one).sample()
    except (AttributeError, RuntimeError) as error:  # zuko has no error of its own for it
        if context is None:
            raise InputError(f"flow needs contexts: give x (N, C), not rows ({error})") from error
        raise InputError(
            f"flow takes no contexts x of shape {tuple(context.shape)} and {context.dtype}: give "
            "those it was made for, or only rows where it was made without contexts "
            f"({error})"
        ) from error
