"""Is this predictor jointly calibrated? All pre-ranks in one call."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from inspect import signature, unwrap
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.dimension_matching import Names
from prerank.adapters.named_arguments import NamedCall, accepts_names, refuse_names
from prerank.calibration import member_remarks, tie_remarks
from prerank.calibration.dependent_rows import row_units
from prerank.calibration.error_table import corrected_findings
from prerank.coordinates import label_texts
from prerank.defaults import (
    LEVELS,
    MANY_ROWS,
    MANY_VALUES,
    MAX_GROUPS,
    N_NULL,
    N_SAMPLES,
    SCALE,
    SEED,
)
from prerank.diagnosis.diagnoser import Diagnoser
from prerank.diagnosis.diagnoses import Diagnosis
from prerank.diagnosis.grouped_diagnosis import GroupedDiagnosis
from prerank.diagnosis.judgement import (
    Measurement,
    asked_for,
    gapped_pits,
    scaled_pits,
    without_rows,
)
from prerank.diagnosis.row_runs import in_runs
from prerank.distributions import Ensemble
from prerank.distributions.affine import divisors_of
from prerank.distributions.availability import has_gaps, separable, sub_events
from prerank.distributions.magnitudes import resolution_remarks
from prerank.errors import InputError, ShapeError
from prerank.inputs import (
    as_generator,
    as_missing,
    check_distribution,
    check_observations,
    column_names,
)
from prerank.preranks import PCA, PreRankLike

__all__ = ["diagnose", "diagnose_by", "measured_pits"]


def _named_diagnosis(call: NamedCall[Diagnosis]) -> Diagnosis | GroupedDiagnosis:
    """The diagnosis in the unit of the arrays, and by a coordinate if one is named.

    Many rows are read one block after the other.
    """
    units = call.given.get("units") or call.forecast.units
    given = {name: value for name, value in call.given.items() if value is not None}
    engine = given.pop("engine", None)
    many = call.forecast.observed.n > MANY_ROWS or call.forecast.size > MANY_VALUES
    if engine is not None or many:
        reason = _all_at_once(call, given)
        if engine is not None and reason:
            raise InputError(
                f"engine: {reason}, which needs all rows in this process: leave it out"
            )
        if not reason:
            diagnoser = Diagnoser(**given | {"units": units})
            return in_runs(call.forecast, diagnoser, engine).result()
    call = replace(call, given={name: v for name, v in call.given.items() if name != "engine"})
    arguments = call.arguments | {"units": units}
    if call.by is None:
        return call.function(**arguments)
    several = not isinstance(call.by, str) and isinstance(call.by, Sequence)
    names = call.by if several else [call.by]
    groups = {name: label_texts(call.forecast.labels(name, "by")) for name in names}
    return diagnose_by(groups=groups, **arguments)


@accepts_names(_named_diagnosis)
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
    names: Sequence[str] | None = None,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
    by: str | Sequence[str] | None = None,
    missing: str = "raise",
    engine: object = None,
) -> Diagnosis:
    """Measure calibration for every pre-rank, with floors and p-values.

    The p-values are valid for every number of rows, samples and ties, if the rows are independent
    of each other. Where they are not, `time` or `cluster` gives floors, p-values and bands that
    hold for large numbers of times or clusters. With weighted samples there are none.

    More than 65,536 independent rows, or dependent ones of arrays of xarray, are looked at in
    blocks, as `Diagnoser` does, and so are arrays of xarray with more than 67 million values of
    members; p-values of several components are then sequential ones.

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
        n_null: replicates for several components together (single components use 50,000). Where
            no replicate is as extreme, the p-value is the smallest one of a component times their
            number, or 1 / (n_null + 1) if that is smaller.
        generator: a generator or seed; None draws from torch's global state.
        units: name of the units of `dist` and `y`, which the verdict mentions; `"original"` by
            default.
        time: of each row, `(N,)`: numbers or dates, also as text. Rows of the same and of
            neighbouring times may depend on each other.
        cluster: label of each row, `(N,)`, such as a station: rows of one cluster may depend on
            each other, those of different clusters must not.
        names: of the targets, D texts; by default the columns of `y`.
        member: the dimension of the members, where `dist` and `y` are of xarray
            (`prerank.adapters.named_forecast`); `time` and `cluster` may be names of coordinates
            then.
        target: the dimensions that form one event, likewise.
        rows: the other dimensions, likewise.
        by: a coordinate with the groups of a `GroupedDiagnosis`, or several, likewise.
        missing: `"available"` takes NaN in `y`, and in an `Ensemble` that does: pre-ranks look at
            the targets that are there, or leave rows out that have not all of them, and column `n`
            counts the rows. Valid if whether a value is missing does not depend on the values.
        engine: where blocks of rows of arrays of xarray are read and counted, which this process
            adds up: `"dask"` (by its scheduler, such as that of a client), an engine of
            `prerank.study.engines` such as `RayCluster`, or what has a method `map`, such as an
            executor. By default this process, one block after the other.

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
    if engine is not None:
        raise InputError(
            "engine is for arrays of xarray, which are read in blocks, and dist is none: leave it "
            "out"
        )
    gaps = as_missing(missing)
    if gaps and not has_gaps(dist, check_observations(dist, y, gaps=True)):
        missing, gaps = "raise", False
    if time is None and cluster is None and _goes_in_blocks(dist, preranks, gaps):
        words = None
        if isinstance(scale, str) and scale == "samples":
            observed = check_observations(dist, y, gaps=gaps)
            scale, words = divisors_of(scale, dist, observed, units)
        diagnoser = Diagnoser(
            preranks=preranks,
            n_samples=n_samples,
            scale=scale,
            levels=levels,
            n_null=n_null,
            generator=generator,
            units=units,
            names=names,
            missing=missing,
            keep=None,
        )
        diagnoser.update(dist, y)
        found = diagnoser.result()
        return found if words is None else replace(found, units=words)
    measured = _measure(
        dist,
        y,
        preranks,
        n_samples,
        scale,
        generator,
        units,
        time,
        cluster,
        names=names,
        missing=missing,
    )
    return measured.judged(levels=levels, n_null=n_null)


def diagnose_by(dist: Distribution, y: object, groups: object, **options: Any) -> GroupedDiagnosis:
    """Measure calibration within groups of rows, and over all of them.

    A predictor can be right over all rows and wrong in each group, in opposite ways. The PITs are
    computed once; groups share nothing else.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        y: observations `(N, D)`.
        groups: name of each row's group, `(N,)`; or several groupings by name, such as
            `{"lead": leads, "season": seasons}`, whose combinations are the groups.
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
    given = signature(unwrap(diagnose)).bind(dist, y, **options)
    given.apply_defaults()
    names = ("member", "target", "rows", "by", "engine")
    refuse_names(**{name: given.arguments.pop(name) for name in names})
    judging = {name: given.arguments.pop(name) for name in ("levels", "n_null")}
    measured = _measure(**given.arguments)
    if len(dist.batch_shape) != 1:
        raise ShapeError(
            f"groups are of the rows of one predictor, of batch_shape (N,): got "
            f"{tuple(dist.batch_shape)}"
        )
    labels = _group_labels(groups, dist.batch_shape[0])
    rows = {"/".join(label): at for label, at in labels.items()}
    if len(rows) < len(labels):
        raise InputError("groups has different labels that read alike when joined by '/'")
    judging["tests"] = (1 + len(rows)) * len(measured.results)
    parts = [measured.judged(**judging)]
    parts += [measured.of_rows(at, name).judged(**judging) for name, at in rows.items()]
    corrected = iter(corrected_findings([row for part in parts for row in part.findings]))
    whole, *others = (
        replace(part, findings=tuple(next(corrected) for _ in part.findings)) for part in parts
    )
    named = dict(zip(rows, labels, strict=True))
    by = tuple(map(str, groups)) if isinstance(groups, Mapping) else ()
    return GroupedDiagnosis(whole, dict(zip(rows, others, strict=True)), named, by)


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
    names: Sequence[str] | None = None,
    missing: str = "raise",
) -> Measurement:
    """The PITs of `diagnose`, whose arguments these are."""
    gaps = as_missing(missing)
    check_distribution(dist, gaps=gaps)
    targets = column_names(y, dist.event_shape[0], names)
    ensemble = isinstance(dist, Ensemble)
    if isinstance(dist, Ensemble):
        dist = dist.at_precision_of(y)
    observed = check_observations(dist, y, gaps=gaps)
    gaps = has_gaps(dist, observed)
    dependence = row_units(time, cluster, observed.shape[-2])
    source = as_generator(generator, "draw")
    if gaps:
        dist = separable(dist, n_samples=n_samples, generator=source)
    terms, skipped = asked_for(dist, preranks)

    divisors, words = divisors_of(scale, dist, observed, units)
    options: dict[str, Any] = {"n_samples": n_samples, "generator": source}
    options["with_null_pits"] = with_null_pits
    if gaps:
        found = gapped_pits(dist, observed, terms, divisors, **options)
        if not found:
            raise InputError("y has no row with a value that dist has, too: nothing can be said")
        results = list(found.values())
        skipped |= without_rows(terms, found, preranks)
        # Remarks look at the rows that tell most.
        _, at, dist, observed = max(sub_events(dist, observed), key=lambda part: part.y.numel())
        judged = [targets[d] for d in at.tolist()]
    else:
        results = scaled_pits(dist, observed, terms, divisors, **options)
        judged = list(targets)
    return Measurement(
        results=tuple(results),
        targets=tuple(targets),
        skipped=skipped,
        remarks=(
            *tie_remarks(dist, observed, judged),
            *member_remarks(dist, observed),
            *resolution_remarks(dist, observed),
        ),
        null_seed=int(torch.randint(2**31, (), generator=source)),
        units=words,
        dependence=dependence,
        ensemble=ensemble,
    )


def _all_at_once(call: NamedCall[Diagnosis], given: Mapping[str, Any]) -> str:
    """Why all rows of named arrays have to be looked at together; "" where they need not."""
    if call.by is not None:
        return "by compares groups"
    if isinstance(given.get("scale"), str) and given["scale"] == "samples":
        return "scale='samples' divides by the spread in all rows"
    if given.keys() & {"time", "cluster"} and as_missing(call.forecast.missing):
        return "time or cluster takes all rows where values may be missing"
    first = call.forecast.slices(1)[0]
    if not _row_by_row(call.forecast.at(first).dist, given.get("preranks")):
        return "a pre-rank of preranks looks at several rows"
    return ""


def _goes_in_blocks(dist: Distribution, preranks: PreRankLike | None, gaps: bool) -> bool:
    """Whether there are many rows of one predictor, each of which is looked at alone."""
    check_distribution(dist, gaps=gaps)
    if len(dist.batch_shape) != 1 or dist.batch_shape[0] <= MANY_ROWS:
        return False
    return _row_by_row(dist, preranks)


def _row_by_row(dist: Distribution, preranks: PreRankLike | None) -> bool:
    """Whether what the pre-ranks make of a row depends on that row alone."""
    terms, _ = asked_for(dist, preranks)
    return not any(
        term.of_rows or (isinstance(term, PCA) and isinstance(term.components, float))
        for term in terms
    )


def _group_labels(groups: object, n: int) -> dict[tuple[str, ...], Tensor]:
    """Numbers of the rows of each group, in the order of their first appearance, by its labels."""
    several = groups.values() if isinstance(groups, Mapping) else [groups]
    if not several:
        raise InputError("groups is empty: name a group of every row")
    columns = [_texts(values, n) for values in several]
    members: dict[tuple[str, ...], list[int]] = {}
    for row, labels in enumerate(zip(*columns, strict=True)):
        members.setdefault(labels, []).append(row)
    if len(members) > MAX_GROUPS:
        raise InputError(
            f"groups has {len(members)} different names for {n} rows: group them more coarsely "
            f"({MAX_GROUPS} at most)"
        )
    return {labels: torch.tensor(at) for labels, at in members.items()}


def _texts(groups: object, n: int) -> list[str]:
    """The group of each row as text."""
    values = np.asarray(groups if not isinstance(groups, Sequence) else list(groups), dtype=object)
    if values.shape != (n,):
        raise ShapeError(f"groups has shape {values.shape}, but there are {n} rows")
    for value in values:
        if str(value) in ("None", "nan", "NaT", "<NA>") and not isinstance(value, str):
            raise InputError("groups has missing values: name the group of every row")
    return [str(value) for value in values]
