"""The predictive distribution of a fitted flow."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Transform, constraints
from torch.quasirandom import SobolEngine

from prerank.distributions import affine
from prerank.distributions.joint import JointDistribution
from prerank.distributions.noise import standard_normal
from prerank.errors import InputError
from prerank.inputs import Shape, as_generator

__all__ = ["FlowDistribution", "point_quantiles"]

_LOG_2PI = 1.8378770664093453
_BLOCK_ROWS = 2**16
_POINTS = 1024


class FlowDistribution(JointDistribution):
    r"""Distribution of :math:`\mathrm{loc} + \mathrm{scale} \cdot f^{-1}(z)`, z standard normal.

    Samples and densities are computed some points at a time, for the networks of a flow take memory
    for each. Quantiles have no closed form: they are those of 1,024 scrambled Sobol points, the
    same for every row and in every call. There is no `mean`: where the scale of one target grows
    with another, it rests on draws too rare for any number of points to be trusted.

    Args:
        transform: f, of points `(..., N, D)` for N rows; one of zuko's.
        rows: N.
        loc: `(D,)`.
        scale: `(D,)`, positive.

    Example:
        >>> from torch.distributions import AffineTransform, IndependentTransform
        >>> double = IndependentTransform(AffineTransform(0.0, 2.0), 1)
        >>> dist = FlowDistribution(double, 4, torch.tensor([3.0, 0.0]), torch.ones(2))
        >>> dist.sample((5,), generator=0).shape, dist.median[0].round(decimals=2).abs()
        (torch.Size([5, 4, 2]), tensor([3., 0.]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, transform: Transform, rows: int, loc: Tensor, scale: Tensor) -> None:
        self.transform = transform
        self.rows = rows
        self.loc = loc
        self.scale = scale
        super().__init__(torch.Size((rows,)), loc.shape, validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "FlowDistribution":
        """Return the same distribution for `batch_shape (..., N)`."""
        batch = torch.Size(batch_shape)
        if batch[-1:] != (self.rows,):
            raise InputError(f"{self.rows} rows cannot be expanded to batch_shape {tuple(batch)}")
        expanded = FlowDistribution(self.transform, self.rows, self.loc, self.scale)
        expanded._batch_shape = batch
        return expanded

    @property
    def mean(self) -> Tensor:
        """There is none to be trusted (see above)."""
        raise NotImplementedError(
            "a flow has no mean that a number of points could give: use .median, or .quantiles"
        )

    @property
    def median(self) -> Tensor:
        """Median of each target, `(..., N, D)`."""
        return self.quantiles([0.5])[0]

    def quantiles(self, levels: Sequence[float]) -> Tensor:
        """Quantiles of the points, target by target, at levels in (0, 1): `(Q, ..., N, D)`."""
        values = point_quantiles(self.points(), levels)
        middle = [1] * (len(self.batch_shape) - 1)
        values = values.reshape(-1, *middle, *values.shape[1:])
        return values.expand(-1, *self.batch_shape, -1)

    def points(self) -> Tensor:
        """Points with equal shares of the probability, from the same noise in all rows."""
        return self._placed(self._even())

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, *batch_shape, D)`."""
        shape = torch.broadcast_shapes(value.shape[:-1], self.batch_shape)
        points = ((value - self.loc) / self.scale).expand(*shape, -1)
        densities = []
        for part in self._blocks(points):
            z, jacobian = self._mapped(part)
            densities.append(jacobian - 0.5 * (z.square() + _LOG_2PI).sum(-1))
        return torch.cat(densities).reshape(shape) - self.scale.log().sum()

    def rsample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw `(*sample_shape, *batch_shape, D)`."""
        source = as_generator(generator, f"sample {tuple(sample_shape)}")
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        normal = standard_normal(shape, like=self.loc, generator=source)
        return self._placed(normal).reshape(shape)

    def sample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw `(*sample_shape, *batch_shape, D)`, without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator=generator)

    def _placed(self, normal: Tensor) -> Tensor:
        """Map normals `(..., N, D)` to points `(S, N, D)`."""
        points = [self.transform.inv(part) for part in self._blocks(normal)]
        return self.loc + self.scale * torch.cat(points)

    def _mapped(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Normals and log-determinants of points."""
        together = getattr(self.transform, "call_and_ladj", None)
        if together is not None:  # zuko's way, in one pass through the network
            mapped: tuple[Tensor, Tensor] = together(points)
            return mapped
        normal = self.transform(points)
        return normal, self.transform.log_abs_det_jacobian(points, normal)

    def _blocks(self, points: Tensor) -> Sequence[Tensor]:
        flat = points.reshape(-1, self.rows, *self.event_shape)
        return flat.split(max(1, _BLOCK_ROWS // max(1, self.rows)))

    def _even(self) -> Tensor:
        """Normals that are spread evenly, the same for every row, `(S, N, D)`."""
        sobol = SobolEngine(len(self.loc), scramble=True, seed=0)
        normal = torch.special.ndtri(sobol.draw(_POINTS, dtype=torch.float64)).to(self.loc)
        return normal.unsqueeze(1).expand(-1, self.rows, -1)


def point_quantiles(points: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles of points `(S, N, D)` at levels in (0, 1): `(Q, N, D)`."""
    if not all(0 < level < 1 for level in levels):
        raise InputError(f"quantile levels must be numbers in (0, 1), got {list(levels)}")
    # Each point stands for the middle of a share of 1/S.
    array = np.quantile(points.cpu().numpy(), list(levels), axis=0, method="hazen")
    return torch.from_numpy(array).to(points)


@affine.register
def _(dist: FlowDistribution, loc: Tensor, scale: Tensor) -> FlowDistribution:
    moved = FlowDistribution(dist.transform, dist.rows, loc + scale * dist.loc, scale * dist.scale)
    return moved.expand(dist.batch_shape)
