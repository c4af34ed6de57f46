"""Criteria that the calibration head was set, and which of them its results reach."""

from collections.abc import Iterator

import pandas as pd

from head_results import (
    BASE,
    COMPARISONS,
    HEAD,
    NATS,
    PARTS,
    PERCENT,
    PROTOTYPE,
    UNSEEN,
    Comparison,
    Results,
    Unit,
)
from marked_pages import Verdict

MANY_ROWS = 1_000
WORSE_WITH_FIVE = 2


def verdicts(results: Results) -> Iterator[Verdict]:
    """All criteria, in their order."""
    yield from against_the_prototype(results)
    yield from calibrated(results)
    yield from scores(results)
    yield from five_members(results)
    yield from unseen(results)


def within(
    criterion: str, values: pd.Series, limit: float, unit: Unit, means: pd.Series | None = None
) -> Verdict:
    """Every value at most a limit; the means that the values are bounds of stand beside them."""
    most = f"{criterion} at most {unit(limit)} on each dataset"
    if values.empty:
        return Verdict(most, "no dataset", [])
    missed = []
    for name, value in values[values > limit].sort_values(ascending=False).items():
        mean = "" if means is None else f" (mean {unit(means[name])})"
        missed.append(f"{name} by {unit(value - limit)}{mean}")
    return Verdict(most, f"at most {unit(values.max())} ({values.idxmax()})", missed)


def below_zero(criterion: str, value: float, unit: Unit) -> Verdict:
    """One value below 0."""
    return Verdict(f"{criterion} below 0", unit(value), [unit(value)] if value >= 0 else [])


def bounded(results: Results, name: str, what: Comparison) -> Verdict:
    """The upper bounds of a comparison."""
    found = results.compare(what)
    return within(f"{name}: upper bound", found.bound, what.limit, what.unit, found["mean"])


def against_the_prototype(results: Results) -> Iterator[Verdict]:
    """Never clearly worse, and a third lower where the prototype is not perfect."""
    name = "excess, head - prototype"
    yield bounded(results, f"1. {name}", COMPARISONS[name])
    old, new = results.of(*PROTOTYPE).excess, results.of(*HEAD).excess
    above = old > results.perfect.excess
    change = (new / old - 1)[above].sort_values()
    middle, each = change.median(), [f"{name} {100 * x:+.0f} %" for name, x in change.items()]
    yield Verdict(
        "1. excess, head against prototype, where the prototype is above a perfect forecast's "
        "95 % point: a third lower in the median",
        f"{100 * middle:+.0f} % ({', '.join(each)})" if each else "no dataset",
        [f"by {100 * (middle + 1 / 3):.0f} %"] if middle > -1 / 3 else [],
    )


def calibrated(results: Results) -> Iterator[Verdict]:
    """Small errors on continuous datasets with many test rows."""
    found = results.of(*HEAD).loc[results.continuous]
    found = found[found.rows >= MANY_ROWS]
    where = f"continuous datasets with {MANY_ROWS:,} test rows or more"
    yield within(f"1. {where}: excess", found.excess, 0.003, PARTS)
    yield within(f"1. {where}: largest pre-rank", found.largest, 0.006, PARTS)


def scores(results: Results) -> Iterator[Verdict]:
    """Likelihood and energy score against the forecast without a head."""
    name = "NLL, head - base"
    yield bounded(results, f"2. {name}", COMPARISONS[name])
    head = results.of(*HEAD)
    pooled = (head.nll_change * head.rows).sum() / head.rows.sum()
    yield below_zero(f"2. {name}: mean over all test rows", pooled, NATS)
    name = "energy, head - base"
    yield bounded(results, f"2. {name}", COMPARISONS[name])
    yield below_zero(f"2. {name}: median of the datasets", head.energy_change.median(), PERCENT)


def five_members(results: Results) -> Iterator[Verdict]:
    """An ensemble of five behind a head against one network behind a head."""
    change = results.compare(COMPARISONS["NLL, five - one"])["mean"]
    needed, worse = len(change) - WORSE_WITH_FIVE, change[change >= 0]
    yield Verdict(
        f"2. NLL, five members against one: lower on at least {needed} of {len(change)} datasets",
        f"{(change < 0).sum()} of {len(change)}",
        [f"{dataset} {NATS(x)}" for dataset, x in worse.items()]
        if len(worse) > WORSE_WITH_FIVE
        else [],
    )
    name = "excess, five - one"
    yield bounded(results, f"2. {name}", COMPARISONS[name])


def unseen(results: Results) -> Iterator[Verdict]:
    """Pre-ranks that the head is not fitted to: their mean, and each alone."""
    name = "unseen, head - base"
    change = results.of(*HEAD)[["unseen", *UNSEEN]] - results.of(*BASE)[["unseen", *UNSEEN]]
    yield below_zero(f"3. {name}: mean over datasets", change.unseen.mean(), PARTS)
    mean = change[UNSEEN].mean()
    yield Verdict(
        "3. each unseen pre-rank alone: mean over datasets below 0",
        ", ".join(f"{label} {PARTS(x)}" for label, x in mean.items()),
        [f"{label} by {PARTS(x)}" for label, x in mean[mean >= 0].items()],
    )
    yield bounded(results, f"3. {name}", COMPARISONS[name])
