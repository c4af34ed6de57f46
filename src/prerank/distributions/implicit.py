r"""Implicit reparameterisation of Gaussian mixtures with full covariances.

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

import torch
from torch import Tensor
from torch.nn.functional import pad

from prerank.distributions.gaussians import whitened_columns

__all__ = ["attach_implicit_gradient"]

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
        eye = torch.eye(loc.shape[-1], dtype=loc.dtype, device=loc.device)
        inverse = torch.linalg.solve_triangular(scale_tril, eye, upper=False)  # A_k
        steps = z.unsqueeze(-1) * inverse  # z_kj A_kje, (S, *batch, K, D, D)
        earlier = pad(steps.cumsum(-2)[..., :-1, :], (0, 0, 1, 0))
        density = (-0.5 * (z.square() + _LOG_2PI)).exp()
        jacobian = (
            posterior.unsqueeze(-1)
            * (
                density.unsqueeze(-1) * inverse
                - (cdf - uniform.unsqueeze(-2)).unsqueeze(-1) * earlier
            )
        ).sum(-3)
        # A density that underflows would divide by zero; such a draw gets a bounded gradient.
        floor = torch.finfo(loc.dtype).tiny ** 0.5
        diagonal = jacobian.diagonal(dim1=-2, dim2=-1)
        jacobian = jacobian + torch.diag_embed(diagonal.clamp_min(floor) - diagonal)

    moved = (uniform - uniform.detach()).unsqueeze(-1)
    shift = torch.linalg.solve_triangular(jacobian, moved, upper=False).squeeze(-1)
    return (columns - shift).reshape(shape)
