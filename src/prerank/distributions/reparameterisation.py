r"""Draws of Gaussian mixtures with full covariances, as functions of their parameters.

Inside a given component a draw is an affine map of normals (`place_columns`). Across components the
gradient is implicit (`attach_implicit_gradient`):

Let `u = C(y; theta)` be the conditional-CDF (Rosenblatt) transform of the mixture,

.. math:: u_d = F_d(y_d \mid y_{<d}) = \sum_k r_{kd} \, \Phi(z_{kd}), \qquad
          z_k = L_k^{-1}(y - \mu_k).

Given `y_{<d}`, component k predicts `y_d` with mean
:math:`\mu_{kd} + \sum_{j<d} L_{kdj} z_{kj}` and standard deviation `L_kdd`, because L_k is lower
triangular; so the standardised residual is just `z_kd`. The weights are the posterior of the
component after the first d - 1 coordinates,

.. math:: r_{kd} \propto \pi_k \prod_{j<d} \varphi(z_{kj}) / L_{kjj}.

If y follows the mixture then u is uniform on the cube whatever theta is. Holding u fixed while
theta moves therefore defines a reparameterised draw, and differentiating `C(y(theta); theta) = u`
gives (Figurnov, Mohamed and Mnih, 2018, "Implicit reparameterization gradients")

.. math:: \frac{dy}{d\theta} = -J^{-1} \frac{\partial C}{\partial \theta}, \qquad
          J = \frac{\partial C}{\partial y}.

J is lower triangular, with the conditional densities on its diagonal. With
:math:`A_k = L_k^{-1}` and :math:`\partial z_k / \partial y = A_k`,

.. math:: J_{de} = \sum_k r_{kd} \Big[ \varphi(z_{kd}) A_{kde}
          - (\Phi(z_{kd}) - u_d) \sum_{j<d} z_{kj} A_{kje} \Big].

The logits enter through `r_kd` like any other parameter, so their gradient is exact too: points
flow from one component to another through the regions where both have mass. Where components lie
far apart that flow is rare and violent: the gradient stays exact in expectation, but its variance
grows, and `GaussianMixture.stratified_rsample` is the better estimator.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from prerank.distributions.densities import whitened_columns
from prerank.numerics import QuickFunction, join, row_blocks
from prerank.numerics.kernels import available
from prerank.numerics.matrices import powers_of_two, triangular_inverse

__all__ = ["attach_implicit_gradient", "place_columns"]


def place_columns(
    loc: Tensor, scale_tril: Tensor, ratio: Tensor, component: Tensor, normal: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Points :math:`y_s = \mu_{k_s} + L_{k_s} \epsilon_s`, side by side, and weights.

    All draws of a row are mapped by all components at once, :math:`[L_k\, \mu_k]\, E` where column
    s of E is :math:`(\epsilon_s, 1)`, and the component of each is picked; the gradient is
    :math:`G_k E^\top`, where :math:`G_k` has the columns of component k alone. One product per row
    costs less than finding a matrix for each draw.

    Args:
        loc: `(*batch, K, D)`.
        scale_tril: `(*batch, K, D, D)`.
        ratio: a number for each component, `(*batch, K)`; the weight of a draw is that of its
            component.
        component: whole numbers `(*batch, S)`.
        normal: `(*batch, D, S)`.

    Returns:
        Points `(*batch, D, S)` and weights `(*batch, S)`, with gradients to the first three.
    """
    *batch, components, dim = loc.shape
    maps = torch.cat([scale_tril, loc.unsqueeze(-1)], -1)
    maps = maps.reshape(-1, components, dim, dim + 1)
    points, weights = _Placement.apply(
        maps,
        ratio.reshape(-1, components),
        component.reshape(len(maps), -1).contiguous(),
        normal.reshape(len(maps), dim, -1).contiguous(),
    )
    return points.reshape(*batch, dim, -1), weights.reshape(*batch, -1)


class _Placement(QuickFunction):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        maps: Tensor, ratio: Tensor, component: Tensor, normal: Tensor
    ) -> tuple[Tensor, Tensor]:
        if available(normal):
            from prerank.numerics.kernels.mixture_kernels import placed

            return placed(maps, ratio, component, normal)
        points, weights = [], []
        for b in _blocks(ratio, normal):
            everywhere = (maps[b].flatten(1, 2) @ _columns(normal[b])).unflatten(1, maps.shape[1:3])
            place = component[b][:, None, None].expand(-1, 1, maps.shape[2], -1)
            points.append(everywhere.gather(1, place).squeeze(1))
            weights.append(ratio[b].gather(1, component[b]))
        return join(points), join(weights)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        _, ratio, component, normal = inputs
        ctx.save_for_backward(ratio, component, normal)

    @staticmethod
    def backward(
        ctx: Any, to_points: Tensor, to_weights: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        ratio, component, normal = ctx.saved_tensors
        if available(normal):
            from prerank.numerics.kernels.mixture_kernels import placement_gradient

            gradients = placement_gradient(component, normal, ratio.shape[1], to_points, to_weights)
            return *gradients, None, None
        to_maps, to_ratio = [], []
        for b in _blocks(ratio, normal):
            chosen = _chosen(component[b], ratio.shape[1], normal)
            alone = (chosen.unsqueeze(2) * to_points[b].unsqueeze(1)).flatten(1, 2)
            product = alone @ _columns(normal[b]).mT
            to_maps.append(product.unflatten(1, (ratio.shape[1], -1)))
            to_ratio.append((chosen * to_weights[b].unsqueeze(1)).sum(-1))
        return join(to_maps), join(to_ratio), None, None


def _blocks(ratio: Tensor, normal: Tensor) -> list[slice]:
    return row_blocks(len(normal), ratio.shape[-1] * normal[0].numel(), normal)


def _columns(normal: Tensor) -> Tensor:
    """`(rows, D + 1, S)`."""
    return torch.cat([normal, torch.ones_like(normal[:, :1])], 1)


def _chosen(component: Tensor, components: int, like: Tensor) -> Tensor:
    """1 where a draw has a component, else 0: `(rows, K, S)`."""
    # Arithmetic is faster than a comparison, whose booleans have to be converted. (one_hot does not
    # work under vmap.)
    order = torch.arange(components, dtype=like.dtype, device=like.device).unsqueeze(-1)
    return (component.to(like.dtype).unsqueeze(1) - order).abs_().neg_().add_(1).clamp_min_(0)


_LOG_2PI = 1.8378770664093453


def attach_implicit_gradient(
    logits: Tensor, loc: Tensor, scale_tril: Tensor, points: Tensor
) -> Tensor:
    """Return `points` unchanged in value, with d(points)/d(parameters) attached.

    Args:
        logits: normalised log-weights `(*batch, K)`.
        loc: `(*batch, K, D)`.
        scale_tril: `(*batch, K, D, D)`.
        points: draws of the mixture, `(*sample, *batch, D)`; treated as constants.

    Returns:
        A tensor of the shape of `points`. First-order gradients only.
    """
    points = points.detach()
    shape = points.shape
    batch_dims = logits.dim() - 1
    columns = points.reshape(-1, *shape[len(shape) - 1 - batch_dims :])  # (S, *batch, D)
    z = whitened_columns(loc, scale_tril, columns.movedim(0, -1)).movedim(-1, 0)  # (S, ..., K, D)

    diagonal = scale_tril.diagonal(dim1=-2, dim2=-1)
    log_density = -0.5 * (z.square() + _LOG_2PI) - diagonal.log()  # of each coordinate
    # Sums over j < d. (Subtracting the last term from a full sum would cancel digits.)
    prefix = pad(log_density.cumsum(-1)[..., :-1], (1, 0))
    posterior = torch.softmax(logits.unsqueeze(-1) + prefix, dim=-2)  # r_kd
    cdf = torch.special.ndtr(z)
    uniform = (posterior * cdf).sum(-2)  # (S, *batch, D)

    with torch.no_grad():
        # In a unit for each target, (*batch, D): those of very small and very large ones may differ
        # by more than a number holds, and the floor below is for densities near 1.
        unit = powers_of_two(diagonal.amax(-2))
        inverse = triangular_inverse(scale_tril / unit[..., None, :, None])  # A_k
        steps = z.unsqueeze(-1) * inverse  # z_kj A_kje, (S, *batch, K, D, D)
        earlier = pad(steps.cumsum(-2)[..., :-1, :], (0, 0, 1, 0))
        density = (-0.5 * (z.square() + _LOG_2PI)).exp()
        slopes = density.unsqueeze(-1) * inverse
        slopes = slopes - (cdf - uniform.unsqueeze(-2)).unsqueeze(-1) * earlier
        # Of a narrow component far away they may be infinite, but its share is 0.
        share = posterior.unsqueeze(-1)
        jacobian = torch.where(share > 0, share * slopes, 0).sum(-3)
        # A density that underflows would divide by zero; such a draw gets a bounded gradient.
        floor = torch.finfo(loc.dtype).tiny ** 0.5
        diagonal = jacobian.diagonal(dim1=-2, dim2=-1)
        jacobian = jacobian + torch.diag_embed(diagonal.clamp_min(floor) - diagonal)
        # Columns near 1: a gradient is multiplied by the width of its component, not first by that
        # of the widest one, whose product may be infinite.
        column = powers_of_two(diagonal.clamp_min(floor))
        jacobian = jacobian / column.unsqueeze(-2)
        unit = (unit / column).clamp_max(torch.finfo(loc.dtype).max)

    moved = (uniform - uniform.detach()).unsqueeze(-1)
    shift = torch.linalg.solve_triangular(jacobian, moved, upper=False).squeeze(-1)
    return (columns - unit * shift).reshape(shape)
