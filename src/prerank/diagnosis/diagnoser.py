"""A diagnosis of rows that come batch by batch, or block by block of too many to hold at once."""

import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration.causes import FEWEST_COMPLETE, MARGINAL
from prerank.calibration.dependent_rows import row_units
from prerank.calibration.gaps import available_rows
from prerank.calibration.pit_counts import PITCounts
from prerank.calibration.stand_ins import STAND_INS, StandIns
from prerank.calibration.thinned_rows import ThinnedRows
from prerank.defaults import KEPT_ROWS, LEVELS, N_NULL, N_SAMPLES, SCALE, SEED
from prerank.diagnosis.accumulated_pits import AccumulatedPITs, OpeningRows
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
_KEPT_VALUES = 2**24  # PITs of all targets in the rows that are kept


class Diagnoser:
    """`diagnose` of rows that come in batches, in memory that hardly grows with their number.

    Kept are counts of the PITs of the observations (`prerank.calibration.pit_counts`) and of their
    stand-ins (`prerank.calibration.stand_ins`), and the PITs of some rows. The result does not
    depend on how rows are divided into batches, but for random draws, ties and stand-ins, which
    follow the generator from batch to batch. Remarks on ties and on members look at the first rows,
    about a million values of samples. `diagnose` itself goes this way above 65,536 rows, and keeps
    all PITs.

    Batches must be of one predictor, `batch_shape (N,)`. Diagnosers of parts of the rows, such as
    those of several processes, are added up by `merge`.

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
        time: as for `diagnose`, of all rows that will come, in their order. Counts are kept of each
            time, or of neighbouring ones where there are more than 2,048. Not with missing values.
        cluster: likewise; counts are kept of each cluster, or of several where there are more than
            256.
        keep: rows whose PITs are kept; None for all. Where more come, these are random ones, evenly
            spread, by which causes of failures are described. Tables, curves and histograms are of
            all rows.

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
        time: object = None,
        cluster: object = None,
        keep: int | None = KEPT_ROWS,
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
        self._keep = None if keep is None else as_count(keep, "keep", minimum=2)
        labels = cluster if time is None else time
        n = 0 if labels is None else len(labels)  # type: ignore[arg-type]
        self._dependence = row_units(time, cluster, n)
        self._first: int | None = None
        self._expected = n
        self._generator = as_generator(generator, "draw")
        self._clear()

    def _clear(self) -> None:
        """Forget all rows."""
        self.rows = 0
        self._parts: list[AccumulatedPITs] = []
        self._targets: tuple[str, ...] = ()
        self._skipped: dict[str, str] = {}
        self._words, self._members, self._ensemble = "", 0, False
        self._thinned = ThinnedRows(expected=self._expected)
        self._opening = OpeningRows()

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
        ensemble = isinstance(dist, Ensemble)
        if isinstance(dist, Ensemble):
            dist = dist.at_precision_of(y)
        observed = check_observations(dist, y, gaps=self._gaps)
        if self._gaps:  # in all batches alike
            dist = separable(dist, n_samples=self.n_samples, generator=self._generator)
        divisors, words = divisors_of(self.scale, dist, observed, self.units)
        if not self.rows:
            terms, self._skipped = asked_of_batches(dist, self.preranks)
            self._targets, self._words, self._ensemble = targets, words, ensemble
            self._parts = [self._accumulated(term) for term in terms]
        if self._dependence is not None and self._end + len(observed) > self._expected:
            raise InputError(
                f"time or cluster has {self._expected} values, and {self._end + len(observed)} "
                "rows came: give those of all rows, in their order"
            )
        size = len(dist.samples) if isinstance(dist, Ensemble) else self.n_samples
        if isinstance(dist, Ensemble):
            if self.rows and self._members not in (0, size):
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

    def part(self, start: int, stop: int, of: int) -> "Diagnoser":
        """A diagnoser of some rows, for another process, to be added by `merge` in their order.

        Its random numbers are its own; they come from the stream of this one.

        Args:
            start: number of its first row.
            stop: number of the row after its last.
            of: number of all rows.
        """
        other = copy(self)
        seed = int(torch.randint(2**31, (), generator=self._generator))
        other._generator = torch.Generator().manual_seed(seed)
        other._first, other._expected = start, of
        other._clear()
        self._expected = of
        if self._dependence is not None and of != len(self._dependence.units):
            raise InputError(
                f"time or cluster has {len(self._dependence.units)} values, and there are {of} rows"
            )
        return other

    def merge(self, other: "Diagnoser") -> None:
        """Add the rows of another diagnoser, as those that follow.

        Both must have the same settings. Where the other one has not come from `part`, give it
        another generator: its rows must not have the same random numbers.

        Example:
            >>> from torch.distributions import MultivariateNormal
            >>> whole, later = Diagnoser(generator=0), Diagnoser(generator=1)
            >>> dist = MultivariateNormal(torch.zeros(500, 2), torch.eye(2))
            >>> for one in (whole, later):
            ...     one.update(
            ...         dist, torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
            ...     )
            >>> whole.merge(later)
            >>> whole.rows, whole.result().n
            (1000, 1000)
        """
        if other is self:
            raise InputError("the other diagnoser is this one, whose rows are here already")
        if not other.rows:
            return
        if other._first is not None and other._first != self._end:
            raise InputError(
                f"the other rows start at {other._first}, and {self.rows} are here: add parts in "
                "the order of their rows"
            )
        if not self.rows:
            self._targets, self._words, self._skipped = other._targets, other._words, other._skipped
            self._members, self._ensemble = other._members, other._ensemble
            self._parts = [self._accumulated(part.prerank) for part in other._parts]
        self._check_alike(other)
        for mine, theirs in zip(self._parts, other._parts, strict=True):
            mine.merge(theirs)
        self._thinned.merge(other._thinned)
        self._opening.merge(other._opening)
        self.rows += other.rows

    def result(self) -> Diagnosis:
        """The diagnosis of all rows so far; more may be added afterwards."""
        if not self.rows:
            raise InputError("no rows yet: call update(dist, y) first")
        depend = self._dependence
        if depend is not None and self.rows != len(depend.units):
            raise InputError(
                f"time or cluster has {len(depend.units)} values, and {self.rows} rows came: give "
                "those of all rows, and add all of them first"
            )
        parts = {p.prerank: p for p in self._parts if p.method}
        skipped = without_rows([p.prerank for p in self._parts], parts, self.preranks)
        if not parts:
            raise InputError("no row has a value of a target: nothing can be said")
        results = tuple(part.result() for part in parts.values())
        first = next(iter(parts.values()))
        counted = not first.pits.whole
        named = {part.prerank.label: part for part in parts.values()}
        stand_ins = {
            label: part.stand_ins
            for label, part in named.items()
            if part.stand_ins is not None and part.stand_ins.rows
        }
        # Not from the stream of the draws: looking does not change what comes.
        seed = torch.Generator().manual_seed(self.rows)
        measured = Measurement(
            results=results,
            targets=self._targets,
            skipped=self._skipped | skipped,
            remarks=self._opening.remarks(self._targets),
            null_seed=int(torch.randint(2**31, (), generator=seed)),
            units=self._words,
            dependence=depend,
            stand_ins=stand_ins,
            pools=self._pools if self._thinned.kept else None,
            kept=first.pits.numbers if counted else None,
            counts={k: p.counts for k, p in named.items() if counted and p.counts is not None},
            opening={k: torch.cat(p.opening) for k, p in named.items() if p.opening}
            if counted
            else None,
            ensemble=self._ensemble,
        )
        return measured.judged(levels=self.levels, n_null=self.n_null)

    @property
    def _end(self) -> int:
        """Number of the next row among all."""
        return self.rows + (self._first or 0)

    def _accumulated(self, prerank: PreRank) -> AccumulatedPITs:
        """An empty state of a pre-rank."""
        most = sys.maxsize
        if self._keep is not None:
            most = min(self._keep, max(2, _KEPT_VALUES // len(self._targets)))
        return AccumulatedPITs(
            prerank,
            None if self._keep is None else PITCounts(self.levels, self._dependence),
            ThinnedRows(rows=most, values=sys.maxsize, expected=self._expected),
            StandIns(self._expected) if self._dependence is None else None,
            first=self._first or 0,
        )

    def _check_alike(self, other: "Diagnoser") -> None:
        """Raise where rows of another diagnoser cannot stand beside those that are here."""
        labels = [[part.prerank.label for part in one._parts] for one in (self, other)]
        alike = {
            "targets": self._targets == other._targets,
            "pre-ranks": labels[0] == labels[1],
            "units": self._words == other._words,
            "levels": self.levels == other.levels,
            "numbers of samples": self._members == other._members,
            "numbers of rows to keep": self._keep == other._keep,
            "times or clusters": (self._dependence is None) == (other._dependence is None),
        }
        differ = [name for name, same in alike.items() if not same]
        if differ:
            raise InputError(f"the other rows have other {', '.join(differ)}: diagnose them apart")

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
        rows = torch.arange(len(y)) + self._end
        for part in self._parts:
            if part.prerank not in found:
                part.skip(len(y))
                continue
            result = found[part.prerank]
            part.add(result, rows)
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

    def _pools(self) -> tuple[ProjectedPIT, Tensor] | None:
        """PITs of the targets in some rows that have all, with those of their pools."""
        [part] = [part for part in self._parts if part.prerank.label == MARGINAL]
        kept, numbers = self._thinned.values, self._thinned.numbers
        if bool(kept.isnan().any()):
            at = available_rows(kept.movedim(0, 1).flatten(1))
            kept, numbers = kept[:, at], numbers[at]
            if kept.shape[1] < FEWEST_COMPLETE:
                return None
        if part.method != "ranks":
            return replace(part.result(), z=kept[0], null_pits=kept[1:]), numbers
        dist, source = Ensemble(kept[1:]), torch.Generator().manual_seed(self.rows)
        [found] = project_pits(
            dist, kept[0], (part.prerank,), generator=source, with_null_pits=True
        )
        return found, numbers
