"""A diagnosis of rows that come batch by batch, or block by block of too many to hold at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration import member_remarks, tie_remarks
from prerank.calibration.causes import FEWEST_COMPLETE, MARGINAL
from prerank.calibration.error import CollectedPITs
from prerank.calibration.gaps import available_rows
from prerank.calibration.stand_ins import STAND_INS, StandIns, ThinnedRows
from prerank.defaults import LEVELS, N_NULL, N_SAMPLES, SCALE, SEED
from prerank.diagnosis.diagnoses import Diagnosis
from prerank.diagnosis.judgement import (
    Measurement,
    asked_of_batches,
    gapped_pits,
    scaled_pits,
    without_rows,
)
from prerank.distributions import Ensemble, draw, rows_of
from prerank.distributions.affine import divisors_of
from prerank.distributions.availability import SubEvents, has_gaps, separable, sub_events
from prerank.distributions.magnitudes import resolution_remarks
from prerank.errors import InputError, ShapeError
from prerank.inputs import (
    as_count,
    as_generator,
    as_missing,
    check_distribution,
    check_observations,
    column_names,
)
from prerank.pits import ProjectedPIT, project_pits
from prerank.preranks import PreRank, PreRankLike

__all__ = ["Diagnoser"]

_BLOCK_VALUES = 2**21  # draws times targets of the rows that are looked at together
_OPENING_VALUES = 2**20  # of samples in the first rows
_OPENING_DRAWS = 16


class Diagnoser:
    """`diagnose` of rows that come in batches, in memory that hardly grows with their number.

    Kept are the PITs of the observations, 4 bytes for each row and component in float32, and counts
    of those of their stand-ins (`prerank.calibration.stand_ins`). The result does not depend on how
    rows are divided into batches, but for random draws, ties and stand-ins, which follow the
    generator from batch to batch. Remarks on ties and on members look at the first rows, about a
    million values of samples. `diagnose` itself goes this way above 65,536 rows.

    Batches must be of one predictor, `batch_shape (N,)`, and their rows independent of each other.

    Args:
        preranks: as for `diagnose`; those that apply to the first batch.
        n_samples: as for `diagnose`.
        scale: divisors of the targets, `(D,)`, or `"none"`.
        levels: as for `diagnose`.
        n_null: as for `diagnose`.
        generator: a generator or seed; its stream runs on from batch to batch.
        units: as for `diagnose`.
        names: as for `diagnose`, of all batches.
        missing: as for `diagnose`. Remarks then look at rows with all targets.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> diagnoser = Diagnoser(preranks="marginal+scale")
        >>> noise = torch.randn(4, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> for y in 1.3 * noise:
        ...     diagnoser.update(MultivariateNormal(torch.zeros(500, 2), torch.eye(2)), y)
        >>> diagnoser.rows, diagnoser.result().verdict().headline
        (2000, 'Strongly miscalibrated: predictions too narrow in every target.')
    """

    def __init__(
        self,
        *,
        preranks: PreRankLike | None = None,
        n_samples: int = N_SAMPLES,
        scale: object = SCALE,
        levels: int = LEVELS,
        n_null: int = N_NULL,
        generator: torch.Generator | int | None = SEED,
        units: str | None = None,
        names: Sequence[str] | None = None,
        missing: str = "raise",
    ) -> None:
        self._gaps = as_missing(missing)
        if isinstance(scale, str) and scale == "samples":
            raise InputError(
                "scale='samples' needs the samples of all rows at once: pass divisors, such as "
                "the standard deviations of the training targets"
            )
        self.preranks, self.scale, self.units, self.names = preranks, scale, units, names
        self.n_samples = as_count(n_samples, "n_samples", minimum=2)
        self.levels = as_count(levels, "levels", minimum=2)
        self.n_null = as_count(n_null, "n_null", minimum=1)
        self.rows = 0
        self._generator = as_generator(generator, "draw")
        self._parts: list[_Part] = []
        self._targets: tuple[str, ...] = ()
        self._skipped: dict[str, str] = {}
        self._words, self._members = "", 0
        self._thinned = ThinnedRows()
        self._opening = _OpeningRows()

    def update(self, dist: Distribution, y: object) -> None:
        """Add the rows of a batch.

        Args:
            dist: `batch_shape (N,)`, `event_shape (D,)`.
            y: observations `(N, D)`; a DataFrame's columns name the targets.
        """
        check_distribution(dist, gaps=self._gaps)
        if len(dist.batch_shape) != 1:
            raise ShapeError(
                f"dist must have batch_shape (N,), got {tuple(dist.batch_shape)}: diagnose the "
                "members of a stack one by one"
            )
        targets = tuple(column_names(y, dist.event_shape[0], self.names))
        if self.rows and targets != self._targets:
            raise InputError(f"the targets are {targets}, those of earlier rows {self._targets}")
        if isinstance(dist, Ensemble):
            dist = dist.at_precision_of(y)
        observed = check_observations(dist, y, gaps=self._gaps)
        if self._gaps:  # in all batches alike
            dist = separable(dist, n_samples=self.n_samples, generator=self._generator)
        divisors, words = divisors_of(self.scale, dist, observed, self.units)
        if not self.rows:
            terms, self._skipped = asked_of_batches(dist, self.preranks)
            self._targets, self._words = targets, words
            self._parts = [_Part(term) for term in terms]
        size = len(dist.samples) if isinstance(dist, Ensemble) else self.n_samples
        if isinstance(dist, Ensemble):
            if self._members not in (0, size):
                raise InputError(
                    f"dist has {size} samples, and earlier rows {self._members}: ranks among "
                    "different numbers cannot be counted together, diagnose these rows apart"
                )
            self._members = size
        block = max(1, _BLOCK_VALUES // (size * len(targets)))
        for start in range(0, len(observed), block):
            rows = slice(start, min(start + block, len(observed)))
            part = dist if block >= len(observed) else rows_of(dist, rows)
            if part is None:  # a family whose rows cannot be told apart
                return self._add(dist, observed, divisors)
            self._add(part, observed[rows], divisors, coming=len(observed) - rows.stop)
        return None

    def result(self) -> Diagnosis:
        """The diagnosis of all rows so far; more may be added afterwards."""
        if not self.rows:
            raise InputError("no rows yet: call update(dist, y) first")
        parts = {p.prerank: p for p in self._parts if p.method}
        skipped = without_rows([p.prerank for p in self._parts], parts, self.preranks)
        if not parts:
            raise InputError("no row has a value of a target: nothing can be said")
        stand_ins = {
            p.prerank.label: p.stand_ins for p in parts.values() if p.stand_ins is not None
        }
        # Not from the stream of the draws: looking does not change what comes.
        seed = torch.Generator().manual_seed(self.rows)
        measured = Measurement(
            results=tuple(part.result() for part in parts.values()),
            targets=self._targets,
            skipped=self._skipped | skipped,
            remarks=self._opening.remarks(self._targets),
            null_seed=int(torch.randint(2**31, (), generator=seed)),
            units=self._words,
            dependence=None,
            stand_ins=stand_ins,
            pools=self._pools if MARGINAL in stand_ins else None,
        )
        return measured.judged(levels=self.levels, n_null=self.n_null)

    def _add(
        self, dist: Distribution, y: Tensor, divisors: Tensor | None, *, coming: int = 0
    ) -> None:
        terms = tuple(part.prerank for part in self._parts)
        options: dict[str, Any] = {"n_samples": self.n_samples, "generator": self._generator}
        options |= {"with_null_pits": True, "null_members": STAND_INS}
        gaps = has_gaps(dist, y)
        if gaps:
            found = gapped_pits(dist, y, terms, divisors, **options)
        else:
            results = scaled_pits(dist, y, terms, divisors, **options)
            found = dict(zip(terms, results, strict=True))
        for part in self._parts:
            if part.prerank in found:
                part.check(found[part.prerank])
        for part in self._parts:
            if part.prerank not in found:
                part.skip(len(y))
                continue
            result = found[part.prerank]
            part.add(result)
            if part.prerank.label == MARGINAL and result.null_pits is not None:
                if result.method == "ranks":  # of these rows all are ranked, if a cause is wanted
                    points = draw(dist, self.n_samples, generator=self._generator).points
                    self._thinned.add(y.unsqueeze(0), points.detach(), coming=coming)
                else:
                    self._thinned.add(result.z.unsqueeze(0), result.null_pits, coming=coming)
        whole = [SubEvents(torch.arange(len(y)), torch.arange(y.shape[-1]), dist, y)]
        for one in sub_events(dist, y) if gaps else whole:
            if len(one.targets) == y.shape[-1]:
                self._opening.add(one.dist, one.y)
        self.rows += len(y)

    def _pools(self) -> ProjectedPIT | None:
        """PITs of the targets in some rows that have all, with those of their pools."""
        [part] = [part for part in self._parts if part.prerank.label == MARGINAL]
        kept = self._thinned.values
        if bool(kept.isnan().any()):
            kept = kept[:, available_rows(kept.movedim(0, 1).flatten(1))]
            if kept.shape[1] < FEWEST_COMPLETE:
                return None
        if part.method != "ranks":
            return replace(part.result(), z=kept[0], null_pits=kept[1:])
        dist, source = Ensemble(kept[1:]), torch.Generator().manual_seed(self.rows)
        [found] = project_pits(
            dist, kept[0], (part.prerank,), generator=source, with_null_pits=True
        )
        return found


@dataclass
class _Part:
    """What is kept of one pre-rank."""

    prerank: PreRank
    pits: CollectedPITs = field(default_factory=CollectedPITs)
    method: str = ""
    ties: Tensor | None = None
    counts: Tensor | None = None
    stand_ins: StandIns | None = None
    skipped: int = 0

    def check(self, result: ProjectedPIT) -> None:
        self.pits.check(result.z)
        if self.method and result.method != self.method:
            raise InputError(
                f"{self.prerank.label} of this batch is by {result.method}, of earlier ones by "
                f"{self.method}: diagnose them separately"
            )

    def skip(self, rows: int) -> None:
        """Leave out the next rows, none of which has enough targets."""
        self.skipped += rows

    def add(self, result: ProjectedPIT) -> None:
        pool = [result.z] if result.null_pits is None else [result.z, *result.null_pits]
        z = torch.stack(pool).to(result.z)
        if self.skipped:
            z = torch.cat([z.new_full((len(z), self.skipped, z.shape[-1]), torch.nan), z], 1)
            self.skipped = 0
        self.pits.add(z[0])
        self.method = result.method
        counts = (~result.z.isnan()).sum(-2).double()
        weighted = torch.where(counts > 0, result.ties.double() * counts, 0)
        self.ties = weighted if self.ties is None else self.ties + weighted
        self.counts = counts if self.counts is None else self.counts + counts
        if result.null_pits is not None:
            self.stand_ins = self.stand_ins or StandIns()
            self.stand_ins.add(z)

    def result(self) -> ProjectedPIT:
        assert self.ties is not None
        assert self.counts is not None
        z = self.pits.together
        if self.skipped:
            z = torch.cat([z, z.new_full((self.skipped, z.shape[-1]), torch.nan)])
        return ProjectedPIT(self.prerank, z, self.method, (self.ties / self.counts).to(z))


class _OpeningRows:
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
        if self._points and points.shape[::2] != self._points[0].shape[::2]:
            return
        most = max(1, (_OPENING_VALUES - self._values) // points[:, 0].numel())
        self._members &= members
        self._points.append(points[:, :most].clone())
        self._observed.append(y[:most].clone())
        self._values += self._points[-1].numel()

    def remarks(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Sentences on all that was seen."""
        if not self._points:
            return ()
        dist, y = Ensemble(torch.cat(self._points, 1)), torch.cat(self._observed)
        of_members = member_remarks(dist, y) if self._members else ()
        return (*tie_remarks(dist, y, targets), *of_members, *dict.fromkeys(self._remarks))
