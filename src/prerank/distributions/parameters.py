"""Valid parameters of a mixture."""

import torch
from torch import Tensor

from prerank.errors import InputError, ShapeError
from prerank.inputs import as_tensor, check_finite, check_same_device

__all__ = ["check_mixture"]


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
