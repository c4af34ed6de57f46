"""What a diagnosis of rows in blocks keeps: of each pre-rank, and of the first rows."""

import sys
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration import member_remarks, tie_remarks
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.stand_ins import StandIns
from prerank.calibration.thinned_rows import ThinnedRows
from prerank.defaults import SEED
from prerank.distributions import Ensemble, draw
from prerank.distributions.magnitudes import resolution_remarks
from prerank.errors import InputError, ShapeError
from prerank.pits import ProjectedPIT
from prerank.preranks import PreRank

__all__ = ["AccumulatedPITs", "OpeningRows"]

_OPENING_VALUES = 2**20  # of samples in the first rows
_OPENING_DRAWS = 16
_OPENING_ROWS = 2**15  # whose PITs are looked at in their order


@dataclass
class AccumulatedPITs:
    """What is kept of one pre-rank.

    Attributes:
        prerank: the pre-rank.
        counts: of all PITs; None where all PITs are kept.
        pits: those that are kept.
        stand_ins: counts of the null; None where rows depend on each other.
        method: of the PITs; "" before the first row.
        opening: PITs of the first rows.
        first: number of the first row that comes here.
    """

    prerank: PreRank
    counts: PITCounts | None
    pits: ThinnedRows = field(default_factory=lambda: ThinnedRows(rows=sys.maxsize))
    stand_ins: StandIns | None = None
    method: str = ""
    opening: list[Tensor] = field(default_factory=list)
    first: int = 0
    _ties: Tensor | None = None
    _sizes: Tensor | None = None
    _skipped: int = 0

    @property
    def components(self) -> int:
        """J, or 0 before the first row."""
        return 0 if self._sizes is None else len(self._sizes)

    def check(self, result: ProjectedPIT) -> None:
        """Raise where PITs are of another kind than earlier ones."""
        if self.method and result.z.shape[-1] != self.components:
            raise ShapeError(
                f"this batch has PITs of {result.z.shape[-1]} components, earlier ones "
                f"{self.components}: components must not change (use pca with a fixed number of "
                "components)"
            )
        if self.method and result.method != self.method:
            raise InputError(
                f"{self.prerank.label} of this batch is by {result.method}, of earlier ones by "
                f"{self.method}: diagnose them separately"
            )

    def skip(self, rows: int) -> None:
        """Leave out the next rows, none of which has enough targets."""
        self._skipped += rows

    def add(self, result: ProjectedPIT, rows: Tensor) -> None:
        """Add the PITs of rows, by their numbers `(n,)` among all."""
        self.method = result.method
        sizes = (~result.z.isnan()).sum(-2).double()
        ties = torch.where(sizes > 0, result.ties.double() * sizes, 0)
        self._ties = ties if self._ties is None else self._ties + ties
        self._sizes = sizes if self._sizes is None else self._sizes + sizes
        self._catch_up()
        self._count(result.z, rows)
        if result.null_pits is not None and self.stand_ins is not None:
            self.stand_ins.add(torch.stack([result.z, *result.null_pits]).to(result.z))

    def merge(self, other: "AccumulatedPITs") -> None:
        """Add the PITs of rows that follow."""
        if not other.method:
            return self.skip(other._skipped)
        assert other._ties is not None
        assert other._sizes is not None
        if self.method not in ("", other.method) or self.components not in (0, other.components):
            raise InputError(
                f"{self.prerank.label} has {self.components} components by {self.method} here and "
                f"{other.components} by {other.method} there: these cannot be added up"
            )
        self.method = other.method
        self._ties = other._ties if self._ties is None else self._ties + other._ties
        self._sizes = other._sizes if self._sizes is None else self._sizes + other._sizes
        self._catch_up()
        self.pits.merge(other.pits)
        if self.counts is not None and other.counts is not None:
            self.counts.merge(other.counts)
        if self.stand_ins is not None and other.stand_ins is not None:
            self.stand_ins.merge(other.stand_ins)
        for part in other.opening:
            self._open(part)
        self._skipped = other._skipped
        return None

    def result(self) -> ProjectedPIT:
        """The PITs that are kept."""
        assert self._ties is not None
        assert self._sizes is not None
        self._catch_up()
        z = self.pits.values[0]
        return ProjectedPIT(self.prerank, z, self.method, (self._ties / self._sizes).to(z))

    def _catch_up(self) -> None:
        """Gaps in the place of the rows that were left out."""
        if self._skipped:
            gaps = torch.full((self._skipped, self.components), torch.nan)
            self._skipped = 0
            self._count(gaps, None)

    def _count(self, z: Tensor, rows: Tensor | None) -> None:
        self.pits.add(z.unsqueeze(0))
        self._open(z)
        if self.counts is not None:
            self.counts.add(z, rows)

    def _open(self, z: Tensor) -> None:
        room = _OPENING_ROWS - self.first - sum(map(len, self.opening))
        if room > 0:
            self.opening.append(z[:room].clone())


class OpeningRows:
    """The first rows, by which ties, members and the precision of numbers are remarked upon."""

    def __init__(self) -> None:
        self._values = 0
        self._points: list[Tensor] = []
        self._observed: list[Tensor] = []
        self._remarks: list[str] = []
        self._members = True

    def add(self, dist: Distribution, y: Tensor) -> None:
        """Look at the rows of a batch, if there are not enough yet."""
        if self._values >= _OPENING_VALUES:
            return
        self._remarks += resolution_remarks(dist, y)
        members = isinstance(dist, Ensemble) and dist.weights is None
        points = draw(dist, _OPENING_DRAWS, generator=SEED).points.detach()
        self._look(points, y, members)

    def merge(self, other: "OpeningRows") -> None:
        """Look at the first rows of another one, if there are not enough yet."""
        if self._values >= _OPENING_VALUES:
            return
        self._remarks += other._remarks
        for points, y in zip(other._points, other._observed, strict=True):
            self._look(points, y, other._members)

    def remarks(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Sentences on all that was seen."""
        if not self._points:
            return ()
        dist, y = Ensemble(torch.cat(self._points, 1)), torch.cat(self._observed)
        of_members = member_remarks(dist, y) if self._members else ()
        return (*tie_remarks(dist, y, targets), *of_members, *dict.fromkeys(self._remarks))

    def _look(self, points: Tensor, y: Tensor, members: bool) -> None:
        if self._values >= _OPENING_VALUES:
            return
        if self._points and points.shape[::2] != self._points[0].shape[::2]:
            return
        most = max(1, (_OPENING_VALUES - self._values) // points[:, 0].numel())
        self._members &= members
        self._points.append(points[:, :most].clone())
        self._observed.append(y[:most].clone())
        self._values += self._points[-1].numel()
