"""A change that one half of the rows proposes, and the other half judges."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration import pce
from prerank.calibration.dependent_rows import FEWEST_UNITS, row_units
from prerank.defaults import CALIBRATION_ROWS
from prerank.errors import InputError
from prerank.inputs import as_labels
from prerank.pits import project_pits
from prerank.preranks import applicable
from prerank.recalibration.change import Change
from prerank.recalibration.changed_forecasts import changed_forecast
from prerank.recalibration.halves import Halves
from prerank.recalibration.head_fitting import fit_change
from prerank.recalibration.subjects import Subject, subject_of

__all__ = ["HeldOutTrial", "change_of_rows"]


class HeldOutTrial:
    """Two halves of the rows: one finds and fits, the other judges.

    Args:
        base: a checked forecast, `batch_shape (N,)`.
        y: observations `(N, D)`.
        copies: as for `CalibrationHead`.
        seed: of halves, batches and draws.
        time: of each row; the first half is `seen`, the second `fresh`.
        cluster: of each row; halves consist of whole clusters.

    Attributes:
        seen: numbers of the rows that find and fit.
        units: which of these depend on each other.
        fresh: numbers of those that judge.
    """

    def __init__(
        self,
        base: Distribution,
        y: Tensor,
        *,
        copies: int,
        seed: int,
        time: object,
        cluster: object,
    ) -> None:
        self.base, self.y, self.copies, self.seed = base, y, copies, seed
        self.subject: Subject = subject_of(base, y)
        n = len(y)
        self.time = None if time is None else as_labels(time, "time", n)
        self.cluster = None if cluster is None else as_labels(cluster, "cluster", n)
        units = row_units(time, cluster, n)  # says what is wrong with both
        if units is not None and units.count < 2 * FEWEST_UNITS:
            raise InputError(
                f"{units.kind} has {units.count} different values, and at least {2 * FEWEST_UNITS} "
                "are needed: half of them find regions, and half judge changes"
            )
        halves = Halves.draw(n, seed=seed, groups=self.cluster, time=self.time)
        self.seen, self.fresh = (half.sort().values for half in halves.rows)
        place = " in the half of the rows that finds regions"
        self.units = row_units(*self.labels(self.seen), len(self.seen), place)

    def labels(self, rows: Tensor) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
        """Times and clusters of some rows."""
        at = rows.numpy()
        return (
            None if self.time is None else self.time[at],
            None if self.cluster is None else self.cluster[at],
        )

    def pits(self, dist: Distribution) -> dict[str, Tensor]:
        """PITs of all rows by the label of the pre-rank, with the same draws in every call."""
        terms = applicable("all", dist)[0]
        return {
            one.prerank.label: one.z
            for one in project_pits(dist, self.y, terms, generator=self.seed)
        }

    def change(self, inside: Tensor, levels: Sequence[str]) -> tuple[Change, float] | None:
        """A change of the rows inside and its gain, if the half that judges supports it.

        Args:
            inside: whether each row is, `(N,)`.
            levels: of the change to try, in order.
        """
        seen, fresh = (half[inside[half]] for half in (self.seen, self.fresh))
        if min(len(seen), len(fresh)) < CALIBRATION_ROWS:
            return None
        clusters = self.labels(fresh)[1]
        if clusters is not None and len(np.unique(clusters)) < FEWEST_UNITS:
            return None  # too few to say how much gains vary between them
        change = self._fitted(seen, levels)
        if not change.active:
            return None
        nothing = Change.identity(self.y.shape[-1], self.copies, stack=(), like=self.y)
        with torch.no_grad():
            gains = self.subject.loss(nothing, frozenset(), fresh)
            gains = gains - self.subject.loss(change, change.active, fresh)
            halves = self._halves(fresh)
            paid = halves.convincing(gains[halves.rows.flip(0)])
            after = changed_forecast(
                self.base, change_of_rows([change], inside.long()), seed=self.seed
            )
            errors = [
                sum(float(pce(z[fresh]).mean()) for z in self.pits(dist).values())
                for dist in (self.base, after)
            ]
        if not bool(paid) or errors[1] > errors[0]:
            return None
        return self._fitted(torch.cat([seen, fresh]), levels), float(gains.mean())

    def _halves(self, rows: Tensor) -> Halves:
        """Halves of some rows, by their places among these."""
        time, cluster = self.labels(rows)
        return Halves.draw(len(rows), seed=self.seed, groups=cluster, time=time)

    def _fitted(self, rows: Tensor, levels: Sequence[str]) -> Change:
        halves = self._halves(rows)
        fitted = fit_change(
            self.subject,
            None,
            halves._replace(rows=rows[halves.rows]).to(self.y.device),
            strength=0.0,
            copies=self.copies,
            steps=1,
            rows=len(rows),
            seed=self.seed,
            among=rows,
            levels=levels,
        )
        return fitted.change


def change_of_rows(changes: Sequence[Change], place: Tensor) -> Change:
    """A change of each row: none at place 0, the first at 1, and so on.

    Args:
        changes: without a stack.
        place: `(N,)`.
    """
    parts = zip(*changes, strict=True)
    nothing = [torch.zeros_like(part) for part in changes[0]]
    return Change(
        *(torch.stack([zero, *part])[place] for zero, part in zip(nothing, parts, strict=True))
    )
