"""Checks of the parameters of a mixture, and of what its methods are given."""

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import InputError, ShapeError
from prerank.inputs import as_tensor, check_finite, check_same_device, parameter_of

__all__ = ["check_allocation", "check_mixture", "check_value"]


def check_mixture(logits: Tensor, loc: Tensor, scale_tril: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Convert the parameters of a Gaussian mixture to one dtype, or say what is wrong with them.

    Args:
        logits: `(..., K)`.
        loc: `(..., K, D)`.
        scale_tril: `(..., K, D, D)`, lower triangular with a positive diagonal.
    """
    logits, loc = as_tensor(logits, "logits"), as_tensor(loc, "loc")
    scale_tril = as_tensor(scale_tril, "scale_tril")
    shapes = (
        f"logits {tuple(logits.shape)}, loc {tuple(loc.shape)}, "
        f"scale_tril {tuple(scale_tril.shape)}"
    )
    fits = (
        logits.dim() >= 1
        and loc.dim() >= 2
        and scale_tril.dim() >= 3
        and logits.shape[-1] == loc.shape[-2] == scale_tril.shape[-3]
        and loc.shape[-1] == scale_tril.shape[-2] == scale_tril.shape[-1]
        and loc.shape[-1] >= 1
        and logits.shape[-1] >= 1
    )
    if not fits:
        raise ShapeError(f"expected (..., K), (..., K, D), (..., K, D, D), got {shapes}")
    try:
        torch.broadcast_shapes(logits.shape[:-1], loc.shape[:-2], scale_tril.shape[:-3])
    except RuntimeError as error:
        raise ShapeError(f"batch shapes do not broadcast: {shapes}") from error
    check_same_device(loc, logits, ("loc", "logits"))
    check_same_device(loc, scale_tril, ("loc", "scale_tril"))
    for name, value in (("logits", logits), ("loc", loc), ("scale_tril", scale_tril)):
        check_finite(value, name, "the network that made it may have diverged")
    if not bool((scale_tril.diagonal(dim1=-2, dim2=-1) > 0).all()):
        raise InputError(
            "scale_tril must have a positive diagonal: it is the Cholesky factor of each "
            "component's covariance (torch.linalg.cholesky gives it)"
        )
    if bool(scale_tril.triu(1).any()):
        raise InputError(
            "scale_tril must be lower triangular: pass the factor of "
            "torch.linalg.cholesky, not the covariance"
        )
    dtype = torch.promote_types(torch.promote_types(logits.dtype, loc.dtype), scale_tril.dtype)
    return logits.to(dtype), loc.to(dtype), scale_tril.to(dtype)


def check_allocation(allocation: Tensor, probs: Tensor) -> Tensor:
    """Check shares of draws `(..., K)` for components with weights `probs`."""
    share = as_tensor(allocation, "allocation")
    if share.dim() == 0 or share.shape[-1] != probs.shape[-1]:
        raise ShapeError(
            f"allocation has shape {tuple(share.shape)}, but there are {probs.shape[-1]} components"
        )
    missed = (share <= 0) & (probs > 0)
    if bool((share < 0).any() | missed.any() | ((share.sum(-1) - 1).abs() > 1e-3).any()):
        raise InputError(
            "allocation must sum to one over the components and be positive wherever the mixture "
            "has weight"
        )
    return share


def check_value(value: Tensor, dist: Distribution) -> Tensor:
    """Check points `(*sample_shape, *batch_shape, D)` at which a density is wanted."""
    value = as_tensor(value, "value")
    mismatch = ShapeError(
        f"value has shape {tuple(value.shape)}, but event_shape is {tuple(dist.event_shape)} and "
        f"batch_shape {tuple(dist.batch_shape)}"
    )
    if value.dim() == 0 or value.shape[-1] != dist.event_shape[0]:
        raise mismatch
    try:
        torch.broadcast_shapes(value.shape[:-1], dist.batch_shape)
    except RuntimeError as error:
        raise mismatch from error
    parameter = parameter_of(dist)
    if parameter is not None:
        check_same_device(parameter, value, ("the distribution", "value"))
    check_finite(value, "value")
    return value
