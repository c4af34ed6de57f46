"""Is this predictor jointly calibrated? All pre-ranks in one call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution

from prerank.calibration import member_remarks, tie_remarks
from prerank.calibration.causes import causes_of
from prerank.calibration.dependent_rows import DependentRows, row_units
from prerank.calibration.evidence import corrected_findings, findings_of
from prerank.calibration.serial_correlation import serial_correlation
from prerank.defaults import LEVELS, MAX_GROUPS, N_NULL, N_SAMPLES, SCALE, SEED
from prerank.diagnosis.diagnoses import Diagnosis, GroupedDiagnosis
from prerank.distributions import Ensemble, affine
from prerank.distributions.affine import divisors_of
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_generator, check_distribution, check_observations, column_names
from prerank.pits import ProjectedPIT, project_pits
from prerank.pits.ranks import labels_of
from prerank.preranks import PreRank, PreRankLike, applicable, is_all

__all__ = ["diagnose", "diagnose_by", "measured_pits"]

_SAME_FOR_ONE = ("location", "pca", "copula")


def diagnose(
    dist: Distribution,
    y: object,
    *,
    preranks: PreRankLike | None = None,
    n_samples: int = N_SAMPLES,
    scale: object = SCALE,
    levels: int = LEVELS,
    n_null: int = N_NULL,
    generator: torch.Generator | int | None = SEED,
    units: str | None = None,
    time: object = None,
    cluster: object = None,
) -> Diagnosis:
    """Measure calibration for every pre-rank, with floors and p-values.

    The p-values are valid for every number of rows, samples and ties, if the rows are independent
    of each other. Where they are not, `time` or `cluster` gives floors, p-values and bands that
    hold for large numbers of times or clusters. With weighted samples there are none.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: observations `(..., N, D)`; a DataFrame's columns name the targets.
        preranks: which ones; by default all of the paper's that apply, the others being named in
            `Diagnosis.skipped`. One that is asked for and does not apply raises.
        n_samples: draws per row for pre-ranks without a closed form.
        scale: divisors of the targets, `(D,)`, since location, scale, dependency, pca and energy
            score depend on units: for instance the training standard deviations. `"samples"`
            divides each target by the standard deviation of its predictive samples over all rows.
            `"none"`, or None, keeps the units of `dist` and `y`.
        levels: number of levels of the PCE.
        n_null: replicates for the mean over several components (single components use 50,000);
            the smallest p-value is one over n_null + 1.
        generator: a generator or seed; None draws from torch's global state.
        units: name of the units of `dist` and `y`, which the verdict mentions; `"original"` by
            default.
        time: of each row, `(N,)`: numbers or dates, also as text. Rows of the same and of
            neighbouring times may depend on each other.
        cluster: label of each row, `(N,)`, such as a station: rows of one cluster may depend on
            each other, those of different clusters must not.

    Returns:
        A `Diagnosis` with `.table`, `.pits`, `.curves`, `.verdict()`, `.plot()`, `.skipped` and
        `.remarks`.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> truth = MultivariateNormal(torch.zeros(500, 3), 0.5 * torch.eye(3) + 0.5)
        >>> guess = MultivariateNormal(torch.zeros(500, 3), torch.eye(3))
        >>> torch.manual_seed(0).initial_seed()
        0
        >>> diagnosis = diagnose(guess, truth.sample(), preranks="marginal+scale")
        >>> rows = diagnosis.table.query("component == 'all'").set_index("prerank")
        >>> bool(rows.p_holm["marginal"] > 0.05), bool(rows.p_holm["scale"] < 0.001)
        (True, True)
    """
    measured = _measure(dist, y, preranks, n_samples, scale, generator, units, time, cluster)
    return measured.judged(levels=levels, n_null=n_null)


def diagnose_by(dist: Distribution, y: object, groups: object, **options: Any) -> GroupedDiagnosis:
    """Measure calibration within groups of rows, and over all of them.

    A predictor can be right over all rows and wrong in each group, in opposite ways. The PITs are
    computed once; groups share nothing else.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        y: observations `(N, D)`.
        groups: name of each row's group, `(N,)`.
        options: the keywords of `diagnose`, with the same defaults.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> season = ["summer", "winter"] * 200
        >>> bias = torch.tensor([[0.5], [-0.5]]).repeat(200, 2)
        >>> y = bias + torch.randn(400, 2, generator=torch.Generator().manual_seed(1))
        >>> dist = MultivariateNormal(torch.zeros(400, 2), torch.eye(2))
        >>> for name, one in diagnose_by(dist, y, season, preranks="marginal").groups.items():
        ...     print(name, one.verdict().headline)
        summer Strongly miscalibrated: observed values higher than predicted in every target.
        winter Strongly miscalibrated: observed values lower than predicted in every target.
    """
    given = signature(diagnose).bind(dist, y, **options)
    given.apply_defaults()
    judging = {name: given.arguments.pop(name) for name in ("levels", "n_null")}
    measured = _measure(**given.arguments)
    if len(dist.batch_shape) != 1:
        raise ShapeError(
            f"groups are of the rows of one predictor, of batch_shape (N,): got "
            f"{tuple(dist.batch_shape)}"
        )
    rows = _rows(groups, dist.batch_shape[0])
    judging["tests"] = (1 + len(rows)) * len(measured.results)
    parts = [measured.judged(**judging)]
    parts += [measured.of_rows(at, name).judged(**judging) for name, at in rows.items()]
    corrected = iter(corrected_findings([row for part in parts for row in part.findings]))
    whole, *others = (
        replace(part, findings=tuple(next(corrected) for _ in part.findings)) for part in parts
    )
    return GroupedDiagnosis(whole, dict(zip(rows, others, strict=True)))


def measured_pits(
    dist: Distribution,
    y: object,
    *,
    preranks: PreRankLike | None,
    n_samples: int,
    scale: object,
    generator: torch.Generator | int | None,
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """PITs `(..., N, J)` of every pre-rank by label, as in `diagnose`, and the names of targets."""
    measured = _measure(dist, y, preranks, n_samples, scale, generator, None, with_null_pits=False)
    return {one.prerank.label: one.z for one in measured.results}, measured.targets


@dataclass(frozen=True)
class _Measurement:
    """PITs of every pre-rank, not yet judged.

    Attributes:
        results: PITs, and those of their pools, of each pre-rank.
        targets: names.
        skipped: label and reason of each pre-rank that does not apply.
        remarks: what else was noticed.
        null_seed: of the replicates.
        units: of the targets.
        dependence: which rows depend on each other.
        whole: whether these are all rows, whose order is looked at too.
    """

    results: tuple[ProjectedPIT, ...]
    targets: tuple[str, ...]
    skipped: dict[str, str]
    remarks: tuple[str, ...]
    null_seed: int
    units: str
    dependence: DependentRows | None
    whole: bool = True

    def of_rows(self, rows: Tensor, group: str) -> "_Measurement":
        """The rows of a group, by their numbers; the share of ties stays that of all."""

        def part(result: ProjectedPIT) -> ProjectedPIT:
            at, pool = rows.to(result.z.device), result.null_pits
            chosen = None if pool is None else pool[..., at, :]
            return replace(result, z=result.z[..., at, :], null_pits=chosen)

        results = tuple(part(result) for result in self.results)
        depend = self.dependence
        if depend is not None:
            depend = depend.of_rows(rows, f" in group {group!r}")
        return replace(self, results=results, dependence=depend, whole=False)

    def judged(self, *, levels: int, n_null: int, tests: int | None = None) -> Diagnosis:
        """Errors, and their evidence."""
        depend = self.dependence
        options: dict[str, Any] = {"levels": levels, "n_null": n_null, "tests": tests}
        options |= {"seed": self.null_seed, "dependence": depend}
        findings = findings_of(self.results, self.targets, **options)
        pits = {result.prerank.label: result.z for result in self.results}
        diagnosis = Diagnosis(
            findings,
            pits,
            self.skipped,
            levels,
            self.remarks,
            tests,
            self.units,
            depend,
            serial_correlation(pits, depend) if self.whole else None,
            causes_of(findings, self.results, self.targets, seed=self.null_seed),
        )
        if depend is not None or diagnosis.serial is None:
            return diagnosis
        remark = (
            f"PITs of neighbouring rows are correlated ({diagnosis.serial_words}): rows depend on "
            "each other, or the calibration changes along them, and p-values of independent rows "
            "are then too small. Pass time= (--time) or cluster= (--cluster)."
        )
        return replace(diagnosis, remarks=(*self.remarks, remark))


def _measure(
    dist: Distribution,
    y: object,
    preranks: PreRankLike | None,
    n_samples: int,
    scale: object,
    generator: torch.Generator | int | None,
    units: str | None,
    time: object = None,
    cluster: object = None,
    with_null_pits: bool = True,
) -> _Measurement:
    """The PITs of `diagnose`, whose arguments these are."""
    check_distribution(dist)
    targets = column_names(y, dist.event_shape[0])
    if isinstance(dist, Ensemble):
        dist = dist.at_precision_of(y)
    observed = check_observations(dist, y)
    dependence = row_units(time, cluster, observed.shape[-2])
    source = as_generator(generator, "draw")
    terms, skipped = _asked_for(dist, preranks)

    def pits_of(of: Distribution, at: Tensor, chosen: tuple[PreRank, ...]) -> list[ProjectedPIT]:
        return project_pits(
            of, at, chosen, n_samples=n_samples, generator=source, with_null_pits=with_null_pits
        )

    divisors, words = divisors_of(scale, dist, observed, units)
    if divisors is None:
        results = pits_of(dist, observed, terms)
    else:
        factor = 1 / divisors  # one for predictions and observations, so that ties stay ties
        scaled = affine(dist, torch.zeros_like(factor), factor)
        # Densities rank alike in all units. Those of a distribution that affine can only wrap are
        # looked up in the original ones: y / scale * scale may miss an atom.
        wrapped = isinstance(scaled, TransformedDistribution)
        moved = tuple(term for term in terms if not (wrapped and term.needs_log_prob))
        kept = tuple(term for term in terms if term not in moved)
        by_term = dict(zip(moved, pits_of(scaled, factor * observed, moved), strict=True))
        by_term |= zip(kept, pits_of(dist, observed, kept), strict=True) if kept else ()
        results = [by_term[term] for term in terms]
    return _Measurement(
        results=tuple(results),
        targets=tuple(targets),
        skipped=skipped,
        remarks=(*tie_remarks(dist, observed, targets), *member_remarks(dist, observed)),
        null_seed=int(torch.randint(2**31, (), generator=source)),
        units=words,
        dependence=dependence,
    )


def _asked_for(
    dist: Distribution, preranks: PreRankLike | None
) -> tuple[tuple[PreRank, ...], dict[str, str]]:
    terms, skipped = applicable("all" if preranks is None else preranks, dist)
    if dist.event_shape[0] == 1 and (preranks is None or is_all(preranks)):
        # One question asked several times would cost power after the correction.
        same = [term.label for term in terms if term.label in _SAME_FOR_ONE]
        terms = tuple(term for term in terms if term.label not in same)
        skipped |= dict.fromkeys(same, "the same as marginal for a single target")
    labels_of(terms)
    return terms, skipped


def _rows(groups: object, n: int) -> dict[str, Tensor]:
    """Numbers of the rows of each group, in the order of their first appearance."""
    values = np.asarray(groups if not isinstance(groups, Sequence) else list(groups), dtype=object)
    if values.shape != (n,):
        raise ShapeError(f"groups has shape {values.shape}, but there are {n} rows")
    members: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        if str(value) in ("None", "nan", "NaT", "<NA>") and not isinstance(value, str):
            raise InputError("groups has missing values: name the group of every row")
        members.setdefault(str(value), []).append(row)
    if len(members) > MAX_GROUPS:
        raise InputError(
            f"groups has {len(members)} different names for {n} rows: group them more coarsely "
            f"({MAX_GROUPS} at most)"
        )
    return {name: torch.tensor(at) for name, at in members.items()}
