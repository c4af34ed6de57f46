"""Pre-ranks of one's own that see the inputs, or other things known before the observation."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import ShapeError
from prerank.inputs import as_points
from prerank.preranks.base import Custom

__all__ = ["Conditional"]


class Conditional(Custom):
    r"""Any function of a point and of the inputs of its row, :math:`T = \rho(y, x)`.

    All members of a pool get the x of their row, so the S + 1 values are as exchangeable as the
    points are, and PITs are uniform for a forecast that is calibrated given x. x is whatever was
    known before the observation: inputs, coordinates, a lead time, a threshold of the place, a
    statement of another forecast. It must not depend on the observations.

    Args:
        function: maps `(..., N, D)` and `(..., N, p)`, of the same leading axes, to `(..., N)` or
            `(..., N, J)`; it must treat rows independently.
        inputs: x, `(N, p)` or `(*batch_shape, p)`, an array, tensor or DataFrame, in the order of
            the rows: it serves these rows and no others.
        title: how it is called in tables; the function's own name by default.

    Example:
        >>> import torch
        >>> from prerank import Ensemble, diagnose
        >>> draw = torch.Generator().manual_seed(0)
        >>> x = torch.randn(1000, 2, generator=draw)
        >>> y = x + torch.randn(1000, 2, generator=draw)
        >>> climatology = Ensemble(2**0.5 * torch.randn(50, 1000, 2, generator=draw))
        >>> def along(y, x):
        ...     return (y * x).sum(-1)
        >>> found = diagnose(climatology, y, preranks=["location", Conditional(along, x)])
        >>> found.by_prerank["location"].p_holm > 0.05, found.by_prerank["along"].p_holm < 0.001
        (True, True)
    """

    inputs: Tensor
    name: ClassVar[str] = "conditional"

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        inputs: object,
        *,
        title: str | None = None,
    ) -> None:
        super().__init__(function, title)
        object.__setattr__(self, "inputs", as_points(inputs, "inputs"))

    def check(self, dist: Distribution) -> None:
        """Raise where there are other rows."""
        shape = self.inputs.shape
        if shape[:-1] not in (dist.batch_shape, dist.batch_shape[-1:]):
            raise ShapeError(
                f"pre-rank {self.label!r} has inputs of shape {tuple(shape)}, but dist has "
                f"batch_shape {tuple(dist.batch_shape)}: inputs must be (N, p) or (*batch_shape, "
                "p), for the rows of dist in their order"
            )

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Apply the function to every member of the pool and the inputs of its row."""
        inputs = self.inputs.to(pool).expand(*pool.shape[:-1], -1)
        return self._components(self.function(pool, inputs), pool)

    @property
    def of_rows(self) -> bool:
        """True: inputs belong to rows."""
        return True

    def for_rows(self, rows: Tensor) -> "Conditional":
        """The same function of the inputs of some rows."""
        return Conditional(
            self.function, self.inputs[rows.to(self.inputs.device)], title=self.title
        )

    def __eq__(self, other: object) -> bool:
        """Compare by identity of the inputs."""
        return (
            isinstance(other, Conditional)
            and other.inputs is self.inputs
            and (other.function, other.title) == (self.function, self.title)
        )

    def __hash__(self) -> int:
        """Hash by identity of the inputs."""
        return hash((self.function, self.title, id(self.inputs)))
