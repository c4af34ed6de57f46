"""Which of two forecasts of the same rows is better calibrated, and which scores better?"""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.dimension_matching import Names
from prerank.adapters.named_arguments import NamedCall, accepts_names
from prerank.calibration import pce_floor
from prerank.calibration.dependent_rows import FEWEST_UNITS, DependentRows, row_units
from prerank.calibration.paired_errors import PairedDifference, pce_difference, score_difference
from prerank.defaults import BAND_LEVEL, LEVELS, N_SAMPLES, SCALE, SEED, SIGNIFICANCE
from prerank.diagnosis.diagnoses import Diagnosis
from prerank.diagnosis.measurement import diagnose
from prerank.distributions import affine
from prerank.distributions.affine import divisors_of
from prerank.distributions.ensemble import check_unweighted
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.extras import needed_by
from prerank.inputs import (
    as_generator,
    as_names,
    as_probability,
    check_distribution,
    check_observations,
)
from prerank.preranks import PreRankLike
from prerank.report.wording import aligned_lines, p_text
from prerank.scores import energy_score, nll

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare"]

EXCESS, ENERGY, NLL, MEAN = "excess", "energy score", "NLL", "mean"


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns. `print` shows the answer in words, and the table.

    Attributes:
        names: of the two forecasts.
        differences: by measure (`"excess"`, `"energy score"`, `"NLL"`) and pre-rank; the excess
            has a row `"mean"` over the pre-ranks, a score has no pre-rank.
        diagnoses: of the two forecasts, with the same options.
        level: confidence of the intervals.
        assumption: of the dependence between rows, in words.
        skipped: what could not be compared, and why.
    """

    names: tuple[str, str]
    differences: dict[tuple[str, str], PairedDifference]
    diagnoses: tuple[Diagnosis, Diagnosis]
    level: float
    assumption: str
    skipped: dict[str, str]

    @cached_property
    @needed_by("Comparison.table")
    def table(self) -> "pd.DataFrame":
        """One row for each measure and pre-rank.

        Columns: `measure`, `prerank`, `value_a`, `value_b`, `difference` (a minus b), `lower`,
        `upper`, `p_value` (of no difference, not corrected for the number of rows). Smaller is
        better in all rows.
        """
        import pandas as pd

        return pd.DataFrame(self.records())

    def records(self) -> list[dict[str, object]]:
        """The rows of the table by the names of its columns."""
        return [
            {"measure": measure, "prerank": prerank} | asdict(found)
            for (measure, prerank), found in self.differences.items()
        ]

    @property
    def better_calibrated(self) -> str | None:
        """Name of the forecast with the smaller mean excess, where there is evidence."""
        return self._better(EXCESS, MEAN)

    @property
    def better_scoring(self) -> str | None:
        """Name of the forecast with the smaller energy score, where there is evidence."""
        return self._better(ENERGY, "")

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answers in words: calibration, scores, and what was assumed."""
        calibration = self._sentence(EXCESS, MEAN, "is better calibrated", "calibration")
        scores = [
            self._sentence(measure, "", f"has the better {measure}", measure)
            for measure, _ in self.differences
            if measure != EXCESS
        ]
        return (calibration, *scores, f"Assumed: {self.assumption}.")

    def _better(self, measure: str, prerank: str) -> str | None:
        found = self.differences[measure, prerank]
        if found.p_value >= SIGNIFICANCE:
            return None
        return self.names[0] if found.difference < 0 else self.names[1]

    def _sentence(self, measure: str, prerank: str, verb: str, noun: str) -> str:
        found = self.differences[measure, prerank]
        better = self._better(measure, prerank)
        start = f"{better} {verb}" if better else f"No evidence of a difference in {noun}"
        first, second = self.names
        what = f"{prerank} {measure}".strip()
        return (
            f"{start}: {what} {found.value_a:.4f} ({first}) and {found.value_b:.4f} ({second}), "
            f"difference {found.difference:+.4f}, {self.level:.0%} interval "
            f"[{found.lower:+.4f}, {found.upper:+.4f}]."
        )

    def __str__(self) -> str:
        """The answers, the table, and what was skipped."""
        rows = [
            [*map(str, list(record.values())[:2])]
            + [f"{value:.4f}" for value in list(record.values())[2:-1]]
            + [p_text(float(str(record["p_value"])))]
            for record in self.records()
        ]
        lines = [*self.sentences, "", *aligned_lines([list(self.records()[0]), *rows])]
        lines += [f"skipped {what}: {reason}" for what, reason in self.skipped.items()]
        return "\n".join(lines)


@accepts_names(NamedCall.whole)
def compare(
    dist_a: Distribution,
    dist_b: Distribution,
    y: object,
    *,
    preranks: PreRankLike | None = None,
    time: object = None,
    cluster: object = None,
    names: tuple[str, str] = ("a", "b"),
    n_samples: int = N_SAMPLES,
    scale: object = SCALE,
    levels: int = LEVELS,
    level: float = BAND_LEVEL,
    generator: torch.Generator | int | None = SEED,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
) -> Comparison:
    """Compare two forecasts of the same rows: calibration and scores, paired by row.

    The intervals of scores are t intervals of the mean difference. Those of the excess hold for
    every forecast: they are about exact where both are clearly miscalibrated, and conservative
    where one is nearly calibrated (see `prerank.calibration.paired_errors`). The p-values are
    those levels at which the intervals reach 0.

    Args:
        dist_a: `batch_shape (N,)`, `event_shape (D,)`; samples must have equal weights.
        dist_b: likewise.
        y: observations `(N, D)`, ten rows at least.
        preranks: which ones; by default all of the paper's that apply to both.
        time: as in `diagnose`.
        cluster: as in `diagnose`.
        names: of the two forecasts, for the words.
        n_samples: draws per row where they are needed.
        scale: as in `diagnose`; `"samples"` takes the spread of the samples of `dist_a` for both.
        levels: number of levels of the PCE.
        level: confidence of the intervals.
        generator: a generator or seed; None draws from torch's global state. Both forecasts get the
            same draws.
        member: the dimension of the members, where the forecasts and `y` are of xarray
            (`prerank.adapters.named_forecast`).
        target: the dimensions that form one event, likewise.
        rows: the other dimensions, likewise.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> y = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> right = MultivariateNormal(torch.zeros(500, 2), torch.eye(2))
        >>> narrow = MultivariateNormal(torch.zeros(500, 2), 0.3 * torch.eye(2))
        >>> found = compare(right, narrow, y, preranks="marginal", names=("right", "narrow"))
        >>> found.better_calibrated, found.better_scoring
        ('right', 'right')
        >>> found.table.measure.tolist()
        ['excess', 'excess', 'energy score', 'NLL']
    """
    dists = check_distribution(dist_a), check_distribution(dist_b)
    for dist in dists:
        check_unweighted(dist, "compare")
    if len(dist_a.batch_shape) != 1 or dist_a.batch_shape != dist_b.batch_shape:
        raise ShapeError(
            "two forecasts of the same rows must both have batch_shape (N,), got "
            f"{tuple(dist_a.batch_shape)} and {tuple(dist_b.batch_shape)}"
        )
    if len(set(as_names(names, 2, "names"))) != 2:
        raise InputError(f"names must be two different ones, got {names!r}")
    as_probability(level, "level")
    observed = check_observations(dist_a, y)
    divisors, _ = divisors_of(scale, dist_a, observed, None)
    n = len(observed)
    rows = row_units(time, cluster, n) or DependentRows("row", np.arange(n))
    seed = _seed_of(generator)
    options: dict[str, Any] = {
        **{"preranks": preranks, "n_samples": n_samples, "levels": levels},
        **{"scale": divisors, "generator": seed, "time": time, "cluster": cluster},
    }
    first, second = (diagnose(dist, y, **options) for dist in dists)
    if n < FEWEST_UNITS:
        raise InputError(f"{n} rows are too few for intervals: {FEWEST_UNITS} are needed")
    skipped = first.skipped | second.skipped
    labels = [label for label in first.pits if label in second.pits]
    if not labels:
        raise InputError("no pre-rank applies to both forecasts: name one that does in preranks")
    found = {}
    for name, chosen in [*((label, [label]) for label in labels), (MEAN, labels)]:
        a, b = ([one.pits[label] for label in chosen] for one in (first, second))
        difference = pce_difference(a, b, rows, level=level, levels=levels, seed=seed)
        found[EXCESS, name] = _less_floor(difference, pce_floor(n, levels=levels))
    for measure, scores in _scores(dists, y, observed, divisors, n_samples, seed).items():
        if isinstance(scores, str):
            skipped[measure] = scores
        else:
            found[measure, ""] = score_difference(scores[0], scores[1], rows, level=level)
    return Comparison(names, found, (first, second), level, rows.assumption, skipped)


def _seed_of(generator: torch.Generator | int | None) -> int:
    """A seed that both forecasts share."""
    source = as_generator(generator, "compare")
    if isinstance(generator, int | np.integer) and abs(int(generator)) < 2**63:
        return int(generator)
    return int(torch.randint(2**31, (), generator=source))


def _less_floor(found: PairedDifference, floor: float) -> PairedDifference:
    return replace(found, value_a=found.value_a - floor, value_b=found.value_b - floor)


def _scores(
    dists: Sequence[Distribution],
    y: object,
    observed: Tensor,
    divisors: Tensor | None,
    n_samples: int,
    seed: int,
) -> dict[str, list[Tensor] | str]:
    """Scores of each row by both forecasts, or the reason why there are none."""
    moved, at = dists, y
    if divisors is not None:
        factor = 1 / divisors
        moved = [affine(dist, torch.zeros_like(factor), factor) for dist in dists]
        at = factor * observed
    with torch.no_grad():
        scores: dict[str, list[Tensor] | str] = {
            ENERGY: [energy_score(one, at, n_samples=n_samples, generator=seed) for one in moved]
        }
        try:
            likelihoods = [nll(dist, y) for dist in dists]
        except NotApplicableError:
            scores[NLL] = "samples have no density"
        else:
            finite = all(bool(one.isfinite().all()) for one in likelihoods)
            scores[NLL] = likelihoods if finite else "the density is 0 or infinite in some rows"
    return scores
