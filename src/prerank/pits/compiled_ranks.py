"""Smooth ranks of pre-ranks of Gaussian mixtures by the kernel for CPUs, where it applies."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from prerank.distributions import Draws, GaussianMixture
from prerank.distributions.draws import Sweep
from prerank.distributions.noise import Noise, row_uniform
from prerank.numerics.kernels import numba_kernels
from prerank.pits.row_units import Frame
from prerank.preranks import HDR, Copula, Dependency, MultivariateRank, PreRank, Scale

__all__ = ["compiled_rank", "kernel_applies"]

_KINDS: dict[type[PreRank], str] = {
    Scale: "SCALE",
    Dependency: "DEPENDENCY",
    HDR: "HDR",
    Copula: "COPULA",
    MultivariateRank: "COPULA",
}
_TARGETS = 32  # beyond, the products of matrices that torch has are faster
_DRAWS = 1024  # that stay in the cache of a processor


def kernel_applies(at: Frame, prerank: PreRank, n_samples: int) -> bool:
    """Whether there is a kernel for a pre-rank of n draws.

    It takes mixtures and the known pre-ranks themselves, not what is derived from them, in float32
    and memory of a CPU.
    """
    dist = at.dist
    return (
        type(prerank) in _KINDS
        and type(dist) is GaussianMixture
        and n_samples <= _DRAWS
        and dist.loc.shape[-1] <= _TARGETS
        and not at.observed.requires_grad
        and numba_kernels(at.observed, dist.logits, dist.loc, dist.scale_tril) is not None
    )


def compiled_rank(
    at: Frame, prerank: PreRank, sweep: Sweep, noise: Noise, tau: float, plain: Any
) -> Tensor:
    """Smooth ranks `(*batch_shape, 1)` among stratified draws.

    Args:
        at: what the pre-rank looks at.
        prerank: one for which `kernel_applies`.
        sweep: noise of the draws.
        noise: source of what breaks ties.
        tau: see `prerank.smooth_pit`.
        plain: computes the same from a frame and ties, where a graph of the gradient is wanted.
    """
    dist, size, ties = at.dist, len(sweep.normal), None
    assert isinstance(dist, GaussianMixture)
    if prerank.pooled:
        ranked = size - (size + 3) // 4
        ties = row_uniform(ranked + 1, dist.batch_shape, like=dist.loc, noise=noise)

    def again(*parameters: Tensor) -> Tensor:
        mixture = GaussianMixture(*parameters, validate_args=False)
        frame = Frame(mixture, at.observed, lambda: Draws(*mixture.stratify(*sweep)))
        return plain(frame, ties=ties)

    compute = partial(_call, prerank, at.observed, sweep, ties, tau)
    parameters = dist.logits, dist.loc, dist.scale_tril
    if torch.is_grad_enabled() and any(p.requires_grad for p in parameters):
        ranks: Tensor = _CompiledRank.apply(*parameters, compute, again)  # type: ignore[no-untyped-call]
        return ranks
    return compute(*parameters, slopes=False)[0]


def _call(
    prerank: PreRank,
    observed: Tensor,
    sweep: Sweep,
    ties: Tensor | None,
    tau: float,
    *parameters: Tensor,
    slopes: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Ranks `(*batch, 1)`, and their gradients `(*batch, K, D + 1)` and `(*batch, K, D, D)`."""
    kernels = numba_kernels()
    assert kernels is not None
    *batch, components, dim = parameters[1].shape
    offset, start, normal = sweep
    breaking = normal.new_empty(1, 1) if ties is None else ties.movedim(0, -1)
    inputs = [
        parameters[0].reshape(-1, components),
        parameters[1].reshape(-1, components, dim),
        parameters[2].reshape(-1, components, dim, dim),
        observed.reshape(-1, dim),
        torch.stack([offset.flatten(), start.flatten()]),
        normal.movedim(0, -1).reshape(-1, dim, len(normal)),
        breaking.reshape(-1, breaking.shape[-1]),
    ]
    rows = len(inputs[0]) if slopes else 0
    ranks = normal.new_empty(*batch, 1)
    first = normal.new_empty(rows, components, dim + 1)
    second = normal.new_empty(rows, components, dim, dim)
    kernels.mixture_ranks(
        getattr(kernels, _KINDS[type(prerank)]),
        getattr(prerank, "lag", 1),
        kernels.np.float32(tau),
        *(tensor.detach().contiguous().numpy() for tensor in inputs),
        *(tensor.numpy() for tensor in (ranks.view(-1), first, second)),
    )
    return ranks, first, second


class _CompiledRank(torch.autograd.Function):
    """The gradients are computed together with the ranks."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, loc: Tensor, tril: Tensor, compute: Any, again: Any
    ) -> Tensor:
        ranks, first, second = compute(logits, loc, tril, slopes=True)
        ctx.save_for_backward(logits, loc, tril, first, second)
        ctx.again = again
        return ranks

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *parameters, first, second = ctx.saved_tensors
        if torch.is_grad_enabled():  # a graph has to lead to the parameters
            wanted = [
                p for p, needed in zip(parameters, ctx.needs_input_grad, strict=False) if needed
            ]
            ranks = ctx.again(*parameters)
            found = iter(torch.autograd.grad(ranks, wanted, gradient, create_graph=True))
            return (*(next(found) if needed else None for needed in ctx.needs_input_grad),)
        upstream = gradient.reshape(-1, 1, 1)
        to_lines, to_tril = upstream * first, upstream.unsqueeze(-1) * second
        gradients = to_lines[..., 0], to_lines[..., 1:], to_tril
        return *(g.reshape(p.shape) for g, p in zip(gradients, parameters, strict=True)), None, None
