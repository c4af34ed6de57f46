"""Gaussian mixtures with full covariances, exact samples and exact gradients."""

import functools
import itertools
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal, constraints

from prerank.distributions.densities import mixture_log_density
from prerank.distributions.joint import JointDistribution
from prerank.distributions.noise import standard_normal, standard_uniform
from prerank.distributions.parameters import check_allocation, check_mixture, check_value
from prerank.distributions.reparameterisation import attach_implicit_gradient, place_columns
from prerank.inputs import Shape, as_count, as_generator
from prerank.numerics.matrices import row_norms

__all__ = ["GaussianMixture"]


class GaussianMixture(JointDistribution):
    r"""Mixture of K Gaussians on R^D with lower-triangular factors.

    .. math:: f(y) = \sum_{k=1}^K \pi_k \, N(y;\, \mu_k,\, L_k L_k^\top), \qquad
              \pi = \mathrm{softmax}(\mathrm{logits}).

    Three samplers, each with the exact law:

    - `sample`: no gradient.
    - `rsample`: gradients to logits, locations and factors by implicit reparameterisation
      (`prerank.distributions.reparameterisation` has the derivation).
    - `stratified_rsample`: draws spread evenly over the components, with weights that carry
      the gradient of the logits. Less noise than `rsample` for averages over many draws.

    Args:
        logits: `(..., K)`, unnormalised log-weights.
        loc: `(..., K, D)`.
        scale_tril: `(..., K, D, D)`, lower triangular with a positive diagonal.
        validate_args: False skips all checks, as in torch (needed under `torch.func.vmap`).

    Example:
        >>> logits, loc = torch.zeros(5, 2), torch.zeros(5, 2, 3)
        >>> scale_tril = torch.eye(3).expand(5, 2, 3, 3)
        >>> dist = GaussianMixture(logits, loc, scale_tril)
        >>> dist.batch_shape, dist.event_shape
        (torch.Size([5]), torch.Size([3]))
        >>> dist.sample((100,), generator=0).shape
        torch.Size([100, 5, 3])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "logits": constraints.real_vector,
        "loc": constraints.independent(constraints.real, 2),
        "scale_tril": constraints.independent(constraints.lower_cholesky, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, logits: Tensor, loc: Tensor, scale_tril: Tensor, *, validate_args: bool | None = None
    ) -> None:
        checked = validate_args is not False
        if checked:
            logits, loc, scale_tril = check_mixture(logits, loc, scale_tril)
        batch = _broadcast(logits.shape[:-1], loc.shape[:-2], scale_tril.shape[:-3])
        components, dim = loc.shape[-2:]
        self.logits = torch.log_softmax(logits, -1).expand(*batch, components)
        self.loc = loc.expand(*batch, components, dim)
        self.scale_tril = scale_tril.expand(*batch, components, dim, dim)
        # torch's own validation raises other errors than ours and follows a global switch.
        super().__init__(batch, loc.shape[-1:], validate_args=False)
        self._validate_args = checked

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "GaussianMixture":
        """Return the same mixture with batch axes broadcast to `batch_shape`."""
        logits = self.logits.expand(*batch_shape, self.logits.shape[-1])  # the others follow
        expanded = GaussianMixture(logits, self.loc, self.scale_tril, validate_args=False)
        expanded._validate_args = self._validate_args
        return expanded

    @property
    def probs(self) -> Tensor:
        """Component weights `(..., K)`."""
        return self.logits.exp()

    @property
    def mean(self) -> Tensor:
        """Exact mean `sum_k pi_k mu_k`, shape `(..., D)`."""
        return (self.probs.unsqueeze(-1) * self.loc).sum(-2)

    @property
    def covariance_matrix(self) -> Tensor:
        """Exact covariance `sum_k pi_k (L_k L_k' + d_k d_k')`, d_k = mu_k - mean: `(..., D, D)`."""
        centred = self.loc - self.mean.unsqueeze(-2)
        # One product of (D, K (D + 1)) matrices.
        maps = torch.cat([self.scale_tril, centred.unsqueeze(-1)], -1)
        weighted = self.probs[..., None, None] * maps
        return weighted.transpose(-3, -2).flatten(-2) @ maps.transpose(-3, -2).flatten(-2).mT

    @property
    def variance(self) -> Tensor:
        """Exact variance of each target, `(..., D)`."""
        centred = self.loc - self.mean.unsqueeze(-2)
        spread = self.scale_tril.square().sum(-1) + centred.square()
        return (self.probs.unsqueeze(-1) * spread).sum(-2)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, *batch_shape, D)`."""
        if self._validate_args:
            value = check_value(value, self)
        columns, sample_shape = self._columns(value)
        density = mixture_log_density(self.logits, self.loc, self.scale_tril, columns)
        return density.movedim(-1, 0).reshape(sample_shape + density.shape[:-1])

    def _columns(self, value: Tensor) -> tuple[Tensor, torch.Size]:
        """Points of each row side by side, `(*batch_shape, D, S)`, and their sample shape."""
        shape = _broadcast(value.shape[:-1], self.batch_shape)
        sample_shape = shape[: len(shape) - len(self.batch_shape)]
        points = value.expand(*shape, -1).reshape(-1, *shape[len(sample_shape) :], value.shape[-1])
        return points.movedim(0, -1), sample_shape

    def sample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw from the mixture, without gradients: `(*sample_shape, *batch_shape, D)`."""
        source = as_generator(generator, f"sample {tuple(sample_shape)}")
        shape = tuple(sample_shape) + tuple(self.batch_shape)
        with torch.no_grad():
            uniform = standard_uniform(shape, like=self.loc, generator=source)
            normal = standard_normal((*shape, *self.event_shape), like=self.loc, generator=source)
            return self.place(self.locate(uniform), normal)

    def rsample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw from the mixture with first-order gradients to all parameters.

        The values are those of `sample` with the same generator.
        """
        return self.with_gradient(self.sample(sample_shape, generator=generator))

    def with_gradient(self, points: Tensor) -> Tensor:
        """Give draws of this mixture the implicit reparameterisation gradient."""
        parameters = (self.logits, self.loc, self.scale_tril)
        if torch.is_grad_enabled() and any(p.requires_grad for p in parameters):
            return attach_implicit_gradient(self.logits, self.loc, self.scale_tril, points)
        return points

    def stratified_rsample(
        self,
        n: int,
        *,
        generator: torch.Generator | int | None = None,
        allocation: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        r"""Draw n weighted points, components as strata.

        .. math:: E\Big[\sum_s w_s g(y_s)\Big] = \sum_k \pi_k E_k[g(y)], \qquad
                  w_s = \frac{\pi_{k_s}}{n \, q_{k_s}}.

        The components are allocated by one systematic sweep per row, from a random start b on:
        point s belongs to the component that contains `((s + b) mod n + U) / n` in the cumulated
        allocation q. Component k gets `n q_k` points in expectation and never misses that by one,
        and every m-th point is a systematic sample too. With q = pi, held
        constant, all weights equal 1/n and still carry the derivative of pi: the estimator is
        unbiased in value and, for every parameter, in gradient. Inside a component the draw
        is `mu_k + L_k eps`.

        Args:
            n: number of points in total.
            generator: source of the noise, independent for each row.
            allocation: q, shape `(..., K)`, positive; the detached weights by default.

        Returns:
            Points `(n, *batch_shape, D)` and weights `(n, *batch_shape)`.
        """
        source = as_generator(generator, f"stratified {n}")
        as_count(n, "n", minimum=1)
        shape = tuple(self.batch_shape)
        offset, start = standard_uniform((2, *shape), like=self.loc, generator=source)
        normal = standard_normal((n, *shape, *self.event_shape), like=self.loc, generator=source)
        return self.stratify(offset, start, normal, allocation=allocation)

    def stratify(
        self, offset: Tensor, start: Tensor, normal: Tensor, *, allocation: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`stratified_rsample` from given noise.

        Args:
            offset: U, uniforms `(...)`.
            start: b / n before rounding down, uniforms `(...)`.
            normal: `(n, ..., D)`.
            allocation: see `stratified_rsample`.
        """
        share = self.probs.detach() if allocation is None else allocation
        if allocation is not None and self._validate_args:
            share = check_allocation(share, self.probs)
        n = normal.shape[0]
        steps = torch.arange(n, dtype=self.loc.dtype, device=self.loc.device)
        turned = (steps + (n * start.unsqueeze(-1)).floor()).remainder(n)
        position = (turned + offset.unsqueeze(-1)) / n  # (*batch, n)
        component = self.locate(position.movedim(-1, 0), share)
        ratio = self.probs / (n * share.clamp_min(torch.finfo(share.dtype).tiny))
        points, weights = place_columns(
            self.loc,
            self.scale_tril,
            ratio,
            component.movedim(0, -1),
            normal.expand(*component.shape, -1).movedim(0, -1),
        )
        return points.movedim(-1, 0), weights.movedim(-1, 0)

    def locate(self, uniform: Tensor, probs: Tensor | None = None) -> Tensor:
        """Find the component that holds each uniform in the cumulated weights."""
        share = self.probs.detach() if probs is None else probs
        # Edge by edge: torch's cumulative sum is slow for few components.
        edges = itertools.accumulate(share.unbind(-1)[:-1])
        passed = [(uniform >= edge).to(torch.int16) for edge in edges]
        if passed:
            return functools.reduce(torch.add, passed).to(torch.int64)
        shape = torch.broadcast_shapes(uniform.shape, share.shape[:-1])
        return torch.zeros(shape, dtype=torch.int64, device=uniform.device)

    def place(self, component: Tensor, normal: Tensor) -> Tensor:
        """Map components `(S..., *batch)` and normals `(S..., *batch, D)` to points."""
        *batch, _, dim = self.loc.shape
        sample_shape = component.shape[: component.dim() - len(batch)]
        points, _ = place_columns(
            self.loc,
            self.scale_tril,
            self.probs.detach(),
            component.reshape(-1, *batch).movedim(0, -1),
            normal.expand(*component.shape, dim).reshape(-1, *batch, dim).movedim(0, -1),
        )
        return points.movedim(-1, 0).reshape(*sample_shape, *batch, dim)

    def project(self, directions: Tensor) -> MixtureSameFamily:
        r"""Law of `v . y` for each direction: a univariate Gaussian mixture.

        .. math:: v^\top y \sim \sum_k \pi_k \, N(v^\top \mu_k,\ \|L_k^\top v\|^2).

        Args:
            directions: `(J, D)`, or `(..., J, D)` where they differ between rows.

        Returns:
            A univariate mixture with `batch_shape (..., J)` and a `cdf`.

        Example:
            >>> dist = GaussianMixture(
            ...     torch.zeros(1, 1), torch.zeros(1, 1, 2), torch.eye(2)[None, None]
            ... )
            >>> dist.project(torch.tensor([[1.0, 1.0]])).variance
            tensor([[2.0000]])
        """
        loc = torch.einsum("...jd,...kd->...jk", directions, self.loc)
        scale = torch.einsum("...jd,...kde->...jke", directions, self.scale_tril)
        logits = self.logits.unsqueeze(-2).expand(*loc.shape[:-1], -1)
        return MixtureSameFamily(
            Categorical(logits=logits, validate_args=False),
            Normal(loc, row_norms(scale), validate_args=False),
            validate_args=False,
        )


def _broadcast(*shapes: torch.Size) -> torch.Size:
    """Common shape; torch's function, written in Python, takes longer than a small density."""
    return shapes[0] if len(set(shapes)) == 1 else torch.broadcast_shapes(*shapes)
