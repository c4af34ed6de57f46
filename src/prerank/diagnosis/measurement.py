"""Is this predictor jointly calibrated? All pre-ranks in one call."""

import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution

from prerank.calibration import tie_remarks
from prerank.diagnosis.findings import Diagnosis
from prerank.diagnosis.judgement import Measurement, judge
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

__all__ = ["diagnose", "measure"]


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
    measured = measure(
        dist, y, preranks=preranks, n_samples=n_samples, scale=scale, generator=generator
    )
    return judge(measured, levels=levels, n_null=n_null)


def measure(
    dist: Distribution,
    y: object,
    *,
    preranks: PreRankLike | None = None,
    n_samples: int = 100,
    scale: object = None,
    generator: torch.Generator | int | None = None,
) -> Measurement:
    """The PITs of `diagnose`, whose arguments these are."""
    check_distribution(dist)
    targets = column_names(y, dist.event_shape[0])
    if isinstance(dist, Ensemble):
        dist = dist.at_precision_of(y)
    observed = check_observations(dist, y)
    source = as_generator(generator, "draw")
    terms, skipped = _applicable(dist, preranks)

    def pits_of(law: Distribution, at: Tensor, chosen: tuple[PreRank, ...]) -> list[ProjectedPIT]:
        return project_pits(
            law, at, chosen, n_samples=n_samples, generator=source, with_null_pits=True
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
    return Measurement(
        results=tuple(results),
        targets=tuple(targets),
        skipped=skipped,
        remarks=tie_remarks(dist, observed, targets),
        null_seed=int(torch.randint(2**31, (), generator=source)),
    )


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
