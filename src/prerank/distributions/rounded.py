"""Continuous distributions rounded to the values that targets take."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, Normal, constraints

from prerank.distributions.affine import affine, of_targets
from prerank.distributions.bounded import LinkedMargin
from prerank.distributions.cells import Cells
from prerank.distributions.draws import draw_points, forked_state
from prerank.distributions.ensemble import Ensemble
from prerank.distributions.joint import JointDistribution
from prerank.distributions.noise import Noise
from prerank.distributions.single_margins import margin
from prerank.errors import InputTypeError, NotApplicableError, ShapeError
from prerank.inputs import Shape, as_generator, as_points, check_distribution

__all__ = ["Rounded", "round_to"]


class Rounded(JointDistribution):
    r"""Distribution of :math:`(T_1(z_1), \dots, T_D(z_D))` for z from a continuous base.

    The maps (`prerank.distributions.Cells`) take each cell of a target's axis to one value, so the
    distribution has atoms; targets without cells stay continuous. Marginal probabilities, moments
    and PITs are in closed form where the base has normal or Gaussian mixture margins. The joint
    probability of a value of every target is an integral over a box, which has no closed form:
    there is no `log_prob`, and so no hdr.

    Args:
        base: `batch_shape (..., N)`, `event_shape (D,)`, with a density.
        cells: for each target its `Cells`, or None where it stays as it is.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> base = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
        >>> dist = Rounded(base, [Cells.nearest([-1.0, 0.0, 1.0]), None])
        >>> dist.probabilities(0)
        tensor([[0.3085, 0.3829, 0.3085]])
        >>> dist.sample((100,), generator=0)[..., 0].unique()
        tensor([-1.,  0.,  1.])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector
    has_rsample = False

    def __init__(self, base: Distribution, cells: Sequence[Cells | None]) -> None:
        if isinstance(base, Ensemble):
            raise InputTypeError("base is an Ensemble: use round_to or Rounding for its members")
        if len(cells) != check_distribution(base).event_shape[0]:
            raise ShapeError(
                f"cells has {len(cells)} entries, but base has {base.event_shape[0]} targets"
            )
        self.base, self.cells = base, tuple(cells)
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "Rounded":
        """Return the same distribution with batch axes broadcast to `batch_shape`."""
        return Rounded(self.base.expand(torch.Size(batch_shape)), self.cells)

    def snap(self, points: Tensor) -> Tensor:
        """T of points of the base, `(..., D)`; quantiles of each target move likewise."""
        return snap_columns(points, self.cells)

    def sample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Rounded draws of the base: `(*sample_shape, *batch_shape, D)`."""
        source = as_generator(generator, f"sample {tuple(sample_shape)}")
        with torch.no_grad(), forked_state(source):
            return self.snap(self.base.sample(torch.Size(sample_shape)))

    def limits(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """P(Y_d < y_d) and P(Y_d <= y_d) for values `(..., D)`: they differ at atoms.

        Raises:
            NotApplicableError: where the margins of the base have no closed form.
        """
        columns = []
        for d, (cells, y) in enumerate(zip(self.cells, value.unbind(-1), strict=True)):
            cdf = margin(self.base, d).cdf
            if cells is None:
                columns.append([cdf(y)] * 2)
            else:
                columns.append([cdf(edge) for edge in cells.preimage(y)])
        left, right = (torch.stack(part, -1).clamp(0, 1) for part in zip(*columns, strict=True))
        return left, right

    def probabilities(self, target: int) -> Tensor:
        """Probability of each value of a target that has cells, `(*batch_shape, K)`."""
        cells = self.cells[target]
        if cells is None:
            raise NotApplicableError(f"target {target} is continuous: its values have none")
        own = margin(self.base, target)
        shape = (-1, *[1] * len(self.batch_shape))
        edges = (cells.lower, cells.upper)
        low, high = (own.cdf(edge.to(own.mean).reshape(shape)) for edge in edges)
        return (high - low).clamp(0, 1).movedim(0, -1)

    @property
    def mean(self) -> Tensor:
        """Exact mean of each target, `(*batch_shape, D)`."""
        return torch.stack([mean for mean, _ in self._moments()], -1)

    @property
    def variance(self) -> Tensor:
        """Exact variance of each target, `(*batch_shape, D)`."""
        return torch.stack([variance for _, variance in self._moments()], -1)

    def _moments(self) -> Iterator[tuple[Tensor, Tensor]]:
        for d, cells in enumerate(self.cells):
            own = margin(self.base, d)
            yield (own.mean, own.variance) if cells is None else _moments(own, cells)

    def log_prob(self, value: Tensor) -> Tensor:
        """Raise: the probability of a box has no closed form."""
        raise NotApplicableError(
            "a Rounded distribution has no density: judge it by energy_score and by pre-ranks "
            "other than 'hdr', and fit a head to its base and to spread targets; probabilities(d) "
            "has those of single targets"
        )


def round_to(dist: Distribution, y: object) -> Distribution:
    """Round a prediction to the nearest of the values that each target takes.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: targets `(M, D)` that say which values there are, such as the training rows.

    Returns:
        A `Rounded` distribution; for an `Ensemble` the ensemble of the rounded members.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> dist = MultivariateNormal(torch.zeros(1, 1), torch.eye(1))
        >>> round_to(dist, [[0.0], [1.0], [1.0]]).mean
        tensor([[0.3085]])
    """
    known = as_points(y, "y").double()
    if known.dim() != 2 or known.shape[1] != check_distribution(dist).event_shape[0]:
        raise ShapeError(
            f"y must be (M, {dist.event_shape[0]}) for this dist, got {tuple(known.shape)}"
        )
    return rounded(dist, [Cells.nearest(column.unique()) for column in known.mT])


def rounded(dist: Distribution, cells: Sequence[Cells | None]) -> Distribution:
    """`Rounded`, or an ensemble of rounded members."""
    if not isinstance(dist, Ensemble):
        return Rounded(dist, cells)
    return Ensemble(snap_columns(dist.samples, cells), dist.weights)


def snap_columns(points: Tensor, cells: Sequence[Cells | None]) -> Tensor:
    """Points `(..., D)` rounded, target by target."""
    columns = zip(cells, points.unbind(-1), strict=True)
    return torch.stack([c.snap(column) if c else column for c, column in columns], -1)


@draw_points.register
def _(dist: Rounded, n: int, noise: Noise) -> Tensor:
    return dist.snap(draw_points(dist.base, n, noise))


@affine.register
def _(dist: Rounded, loc: Tensor, scale: Tensor) -> Rounded:
    loc, scale = (of_targets(dist, part) for part in (loc, scale))
    units = zip(loc, scale, strict=True)
    cells = [c and c.moved(*unit) for c, unit in zip(dist.cells, units, strict=True)]
    return Rounded(affine(dist.base, loc, scale), cells)


def _moments(own: Distribution, cells: Cells) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of T(z), summed over the pieces of the line on which T is linear.

    A normal :math:`\mu + \sigma t` has on a piece from a to b, where :math:`T(z) = s z + r`,

    .. math:: E(T - c) = d p + s \sigma [\varphi(a) - \varphi(b)], \qquad
              E(T - c)^2 = (d^2 + s^2 \sigma^2) p + s^2 \sigma^2 [a \varphi(a) - b \varphi(b)]
              + 2 d s \sigma [\varphi(a) - \varphi(b)],

    with a and b in units of t, :math:`d = s \mu + r - c` and :math:`p = \Phi(b) - \Phi(a)`. The
    centre c of the variance is the mean, so that no large squares are subtracted.
    """
    if isinstance(own, LinkedMargin):
        return own.moments(cells)
    if isinstance(own, MixtureSameFamily):
        normal: Any = own.component_distribution
        loc, scale, probs = normal.loc, normal.scale, own.mixture_distribution.probs
    else:
        assert isinstance(own, Normal)  # what margin gives
        loc, scale = own.loc.unsqueeze(-1), own.scale.unsqueeze(-1)
        probs = torch.ones_like(loc)
    edges, slope, rest = (
        part.to(loc).reshape(-1, *[1] * loc.dim()) for part in _linear_pieces(cells)
    )
    t = (edges - loc) / scale  # (edges, ..., components)
    density = torch.exp(-t.square() / 2) / (2 * torch.pi) ** 0.5
    mass = torch.special.ndtr(t).diff(dim=0)
    tilt = -density.diff(dim=0) * slope * scale
    bend = -torch.where(t.isinf(), 0, t * density).diff(dim=0) * (slope * scale).square()

    def total(parts: Tensor) -> Tensor:
        return (probs * parts.sum(0)).sum(-1)

    centre = cells.snap(own.mean)
    d = slope * loc + rest - centre.unsqueeze(-1)
    mean = centre + total(d * mass + tilt)
    d = slope * loc + rest - mean.unsqueeze(-1)
    square = (d.square() + (slope * scale).square()) * mass + bend + 2 * d * tilt
    return mean, total(square).clamp(min=0)


def _linear_pieces(cells: Cells) -> tuple[Tensor, Tensor, Tensor]:
    """Edges `(P + 1,)` of the pieces on which T(z) = slope * z + rest, and both, `(P,)`.

    In a cell T is its value; before the first, after the last and between those that do not touch
    it has slope 1.
    """
    ends = torch.stack([cells.lower, cells.upper], -1).flatten()
    infinity = ends.new_full((1,), torch.inf)
    edges = torch.cat([-infinity, ends, infinity])
    before, after = cells.values[:1] - cells.lower[:1], cells.values - cells.upper
    rest = torch.cat([before, torch.stack([cells.values, after], -1).flatten()])
    slope = 1 - torch.arange(len(rest), device=rest.device).remainder(2).to(rest)
    kept = edges[:-1] < edges[1:]
    return torch.cat([edges[:-1][kept], infinity]), slope[kept], rest[kept]
