"""Is this predictor jointly calibrated? All pre-ranks in one call."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution

from prerank.calibration import (
    ReliabilityCurve,
    component_null,
    holm,
    null_pce,
    p_value,
    pce,
    pce_floor,
    reliability_band,
    reliability_curve,
    tie_remarks,
)
from prerank.distributions import Ensemble, affine
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.inputs import (
    as_generator,
    as_tensor,
    check_distribution,
    check_finite,
    check_observations,
    column_names,
)
from prerank.pits import ProjectedPIT, project_pits
from prerank.preranks import PAPER, PreRank, PreRankLike, parse
from prerank.report import ReliabilityDisplay, ReliabilityGrid

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure, SubFigure

__all__ = ["Diagnosis", "diagnose"]

ALL = "all"
"""Component of the row that stands for a whole pre-rank."""

_POWERLESS_TIES = 0.9
_BLUNT = 0.05
_BLUNT_NOTE = "n_null is too small to reject at 5 % after Holm's correction"


@dataclass(frozen=True)
class Finding:
    """One row of the table; `Diagnosis.table` says what the fields mean."""

    model: int
    prerank: str
    component: str
    pce: float
    floor: float
    excess: float
    p_value: float
    p_holm: float
    ties: float
    method: str
    note: str


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found.

    Attributes:
        findings: the rows of the table.
        pits: PITs of each pre-rank by label, `(..., N, J)`.
        skipped: label and reason of each pre-rank that does not apply.
        levels: number of levels of PCE and curves.
        remarks: what else was noticed and can be done, in sentences.
    """

    findings: tuple[Finding, ...]
    pits: dict[str, Tensor]
    skipped: dict[str, str]
    levels: int = 100
    remarks: tuple[str, ...] = ()

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row per pre-rank (component `"all"`), and one per component where there are several.

        Columns: `prerank`, `component`, `pce`, `floor` (its expectation for a perfect predictor),
        `excess` (pce - floor), `p_value`, `p_holm` (corrected over the pre-ranks; only in their
        rows), `ties` (fraction of samples that tie with the observation), `method`, `note`. For a
        stack of predictors a first column `model` numbers them, and Holm is applied within each.
        """
        import pandas as pd

        table = pd.DataFrame([asdict(finding) for finding in self.findings])
        return table if table["model"].any() else table.drop(columns="model")

    @cached_property
    def curves(self) -> dict[str, ReliabilityCurve]:
        """Reliability curve of each pre-rank by label."""
        return {label: reliability_curve(z, levels=self.levels) for label, z in self.pits.items()}

    def displays(self, *, model: int = 0, level: float = 0.95) -> list[ReliabilityDisplay]:
        """Reliability diagrams of one predictor, one for each pre-rank, not yet drawn.

        Args:
            model: which one, of a stack of predictors.
            level: probability of the band; weighted samples have none.
        """
        found = []
        for label, curve in self.curves.items():
            observed = curve.observed.reshape(-1, *curve.observed.shape[-2:])[model]
            rows = [f for f in self.findings if f.prerank == label and f.model == model]
            names = [row.component for row in rows if row.component != ALL] or [label]
            band = None
            if rows[0].method != "weighted ranks":
                n = self.pits[label].shape[-2]
                band = reliability_band(n, level=level, levels=self.levels)
            found.append(
                ReliabilityDisplay(
                    ReliabilityCurve(curve.levels, observed), band, label=label, names=names
                )
            )
        return found

    def plot(
        self, figure: "Figure | SubFigure | None" = None, *, level: float = 0.95
    ) -> ReliabilityGrid:
        """Draw the reliability diagrams, a column for each pre-rank, a row for each predictor.

        Args:
            figure: an empty figure; a new one by default, which is `.figure_` of what comes back.
            level: probability of the bands.
        """
        models = sorted({finding.model for finding in self.findings})
        rows = {
            f"model {model}" if len(models) > 1 else "": self.displays(model=model, level=level)
            for model in models
        }
        return ReliabilityGrid(rows).plot(figure)

    def __str__(self) -> str:
        """The table, what was skipped and what was noticed."""
        lines = [self.table.to_string(index=False, float_format="{:.4f}".format, na_rep="")]
        lines += [f"skipped {label}: {reason}" for label, reason in self.skipped.items()]
        lines += self.remarks
        return "\n".join(lines)


def diagnose(
    dist: Distribution,
    y: object,
    *,
    preranks: PreRankLike | None = None,
    n_samples: int = 100,
    scale: object = None,
    levels: int = 100,
    n_null: int = 2000,
    generator: torch.Generator | int | None = None,
) -> Diagnosis:
    """Measure calibration for every pre-rank, with floors and p-values.

    The p-values are valid for every number of rows, samples and ties, if the rows are independent
    of each other. With weighted samples there are none.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: observations `(..., N, D)`; a DataFrame's columns name the targets.
        preranks: which ones; by default all of the paper's that apply, the others being named in
            `Diagnosis.skipped`. One that is asked for and does not apply raises.
        n_samples: draws per row for pre-ranks without a closed form.
        scale: divisors of the targets, `(D,)`, since location, scale, dependency, pca and energy
            score depend on units: for instance the training standard deviations.
        levels: number of levels of the PCE.
        n_null: replicates for the mean over several components (single components use 50,000);
            the smallest p-value is one over n_null + 1.
        generator: a generator or seed.

    Returns:
        A `Diagnosis` with `.table`, `.pits`, `.curves`, `.plot()`, `.skipped` and
        `.remarks`.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> truth = MultivariateNormal(torch.zeros(500, 3), 0.5 * torch.eye(3) + 0.5)
        >>> guess = MultivariateNormal(torch.zeros(500, 3), torch.eye(3))
        >>> torch.manual_seed(0).initial_seed()
        0
        >>> found = diagnose(guess, truth.sample(), preranks="marginal+scale", generator=0)
        >>> rows = found.table.query("component == 'all'").set_index("prerank")
        >>> bool(rows.p_holm["marginal"] > 0.05), bool(rows.p_holm["scale"] < 0.001)
        (True, True)
    """
    check_distribution(dist)
    targets = column_names(y, dist.event_shape[0])
    if isinstance(dist, Ensemble):
        dist = dist.at_precision_of(y)
    observed = check_observations(dist, y)
    source = as_generator(generator, "draw")
    terms, skipped = _applicable(dist, preranks)

    def pits_of(law: Distribution, at: Tensor, chosen: tuple[PreRank, ...]) -> list[ProjectedPIT]:
        return project_pits(
            law, at, chosen, n_samples=n_samples, generator=source, with_stand_ins=True
        )

    if scale is None:
        results = pits_of(dist, observed, terms)
    else:
        # One factor for predictions and observations, so that ties stay ties.
        factor = 1 / _check_scale(scale, observed)
        scaled = affine(dist, torch.zeros_like(factor), factor)
        # Densities rank alike in all units. Those of a law that affine can only wrap are looked up
        # in the original ones: y / scale * scale may miss an atom.
        wrapped = isinstance(scaled, TransformedDistribution)
        moved = tuple(term for term in terms if not (wrapped and term.needs_log_prob))
        kept = tuple(term for term in terms if term not in moved)
        found = dict(zip(moved, pits_of(scaled, factor * observed, moved), strict=True))
        found |= zip(kept, pits_of(dist, observed, kept), strict=True) if kept else ()
        results = [found[term] for term in terms]
    # The same choices for every model of a stack, as if each had been diagnosed alone.
    null_seed = int(torch.randint(2**31, (), generator=source))
    findings: list[Finding] = []
    for model in range(dist.batch_shape[:-1].numel()):
        groups = [
            _judge(_member(result, model), model, targets, levels, n_null, null_seed)
            for result in results
        ]
        corrected = holm([overall.p_value for overall, *_ in groups])
        for (overall, *components), value in zip(groups, corrected, strict=True):
            blunt = bool(components) and len(terms) / (n_null + 1) > _BLUNT
            note = "; ".join(filter(None, [overall.note, _BLUNT_NOTE if blunt else ""]))
            findings += [replace(overall, p_holm=float(value), note=note), *components]
    pits = {result.prerank.label: result.z for result in results}
    remarks = tie_remarks(dist, observed, targets)
    return Diagnosis(tuple(findings), pits, skipped, levels, remarks)


def _applicable(
    dist: Distribution, preranks: PreRankLike | None
) -> tuple[tuple[PreRank, ...], dict[str, str]]:
    if preranks is not None:
        terms = parse(preranks)
        labels = [term.label for term in terms]
        if len(set(labels)) < len(labels):
            raise InputError(
                f"preranks holds the same name twice: {', '.join(labels)}. Give functions names of "
                "their own with preranks.Custom(function, title=...)"
            )
        return terms, {}
    terms, skipped = (), {}
    for prerank in PAPER:
        try:
            prerank.check(dist)
        except NotApplicableError as reason:
            skipped[prerank.label] = str(reason)
        else:
            terms += (prerank,)
    return terms, skipped


def _member(result: ProjectedPIT, model: int) -> ProjectedPIT:
    """One predictor of a stack."""
    z = result.z.reshape(-1, *result.z.shape[-2:])[model]
    ties = result.ties.reshape(-1, result.ties.shape[-1])[model]
    stand_ins = result.stand_ins
    if stand_ins is not None:
        stand_ins = stand_ins.reshape(stand_ins.shape[0], -1, *stand_ins.shape[-2:])[:, model]
    return ProjectedPIT(result.prerank, z, result.method, ties, stand_ins)


def _judge(
    result: ProjectedPIT,
    model: int,
    targets: Sequence[str],
    levels: int,
    n_null: int,
    null_seed: int,
) -> list[Finding]:
    """The finding for a pre-rank, then those for its components where there are several."""
    n, components = result.z.shape
    floor = pce_floor(n, levels=levels)
    errors = pce(result.z.double(), levels=levels)
    testable = result.method != "weighted ranks"
    null = null_pce(n, levels=levels)
    p_values = [p_value(float(e), null) if testable else np.nan for e in errors]
    overall = p_values[0]
    if result.stand_ins is not None:
        replicates = component_null(
            result.z, result.stand_ins, levels=levels, n_null=n_null, generator=null_seed
        )
        overall = p_value(float(errors.mean()), replicates.cpu().numpy())

    def finding(component: str, error: Tensor, p: float, ties: Tensor) -> Finding:
        return Finding(
            model=model,
            prerank=result.prerank.label,
            component=component,
            pce=float(error),
            floor=floor,
            excess=float(error) - floor,
            p_value=p,
            p_holm=np.nan,
            ties=float(ties),
            method=result.method,
            note=_note(float(ties), testable),
        )

    findings = [finding(ALL, errors.mean(), overall, result.ties.mean())]
    if components > 1:
        names = result.prerank.component_names(targets, components)
        findings += [
            finding(name, errors[j], p_values[j], result.ties[j]) for j, name in enumerate(names)
        ]
    return findings


def _note(ties: float, testable: bool) -> str:
    notes = [] if testable else ["weighted samples: no p-value"]
    if ties >= _POWERLESS_TIES:
        notes.append(f"no power: {ties:.0%} of the samples tie with the observation")
    return "; ".join(notes)


def _check_scale(scale: object, observed: Tensor) -> Tensor:
    divisors = as_tensor(scale, "scale")
    if divisors.shape != observed.shape[-1:]:
        raise ShapeError(
            f"scale has shape {tuple(divisors.shape)}, but there are {observed.shape[-1]} targets"
        )
    check_finite(divisors, "scale")
    if not bool((divisors > 0).all()):
        raise InputError("scale must be positive: it holds divisors of the targets")
    return divisors.to(observed)
