"""Units as tasks: estimated costs, good enough to start the longest first, and what they need."""

import math
from collections.abc import Sequence

from prerank.datasets import SYNTHETIC, open_dataset
from prerank.datasets.collection import find_table
from prerank.errors import InputError
from prerank.files.dataset_tables import table_shape
from prerank.preranks.parsing import bare_labels
from prerank.study.engines import Task
from prerank.study.plans import NONE, Plan
from prerank.study.store import Store, Unit
from prerank.training.selection import AUTO_GRID

__all__ = ["RATIOS", "count_rows", "study_tasks", "unit_cost"]

RATIOS = {
    "marginal": {"exact": 1.5, "published": 4.0},
    "location": {"exact": 1.5, "published": 3.5},
    "scale": {"exact": 2.8, "published": 4.7},
    "dependency": {"exact": 2.8, "published": 3.9},
    "pca": {"exact": 2.2, "published": 4.6},
    "hdr": {"exact": 4.2, "published": 15.0},
    "copula": {"exact": 5.2, "published": 420.0},  # published: draws 10,100 samples for each row
}
"""A penalised step over an unpenalised one, on two cores: `docs/results/speed.md`."""

_UNTIMED = {"exact": 3.0, "published": 3.0}  # other pre-ranks
_TRAINING = 0.64  # share of the rows that the published splits train on
_UNKNOWN = 10_000  # rows of a dataset that is not on this machine


def unit_cost(plan: Plan, variant: str, rows: int) -> float:
    r"""Work of a unit, in steps of one unpenalised run: an upper limit, as if no run stopped early.

    .. math:: \text{seeds} \times \text{strengths} \times \text{epochs} \times
              \text{steps per epoch} \times \Big(1 + \sum_i (r_i - 1)\Big),

    with :math:`r_i` the measured ratio of each pre-rank of the penalty.

    Args:
        plan: for seeds, strengths, epochs and batches.
        variant: the penalty, or `"none"`.
        rows: of the dataset.

    Example:
        >>> plan = Plan.preset("quick")
        >>> unit_cost(plan, "none", 3000), unit_cost(plan, "hdr", 3000)
        (840.0, 14112.0)
    """
    training = plan.training
    steps = max(training.min_steps, math.floor(_TRAINING * rows / training.batch_size), 1)
    runs = len(plan.seeds) * (1 if variant == NONE else _strengths(plan))
    labels = [] if variant == NONE else bare_labels(variant)
    ratio = 1 + sum(RATIOS.get(label, _UNTIMED)[plan.protocol] - 1 for label in labels)
    return float(runs * training.max_epochs * steps * ratio)


def study_tasks(store: Store, todo: Sequence[Unit], *, gpus: float = 0.0) -> list[Task]:
    """Units as tasks with their costs; penalised ones after the unpenalised one they start from.

    Args:
        store: of the study.
        todo: its units that are left.
        gpus: number of GPUs that each of them requests.
    """
    plan = store.plan
    by_dataset: dict[str, list[Unit]] = {}
    for unit in todo:
        by_dataset.setdefault(unit.dataset, []).append(unit)
    tasks = []
    for dataset, units in by_dataset.items():
        rows = count_rows(dataset)
        base = Unit(dataset, NONE)
        # A plan may leave out unpenalised runs; penalised ones start from them all the same.
        if plan.protocol == "exact" and NONE not in plan.variants and not store.done(base):
            units.insert(0, base)
        needed = (base.stem,) if plan.protocol == "exact" and base in units else ()
        for unit in units:
            cost = unit_cost(plan, unit.variant, rows)
            after = () if unit == base else needed
            tasks.append(Task(unit.stem, unit, cost=cost, gpus=gpus, after=after))
    return tasks


def count_rows(dataset: str) -> int:
    """Rows of a dataset, without reading them; a guess where it is not on this machine."""
    if dataset in SYNTHETIC:
        return len(open_dataset(dataset).x)
    try:
        return table_shape(find_table(dataset))[0]
    except InputError:
        return _UNKNOWN


def _strengths(plan: Plan) -> int:
    """How many are trained, with the 0 that the exact protocol adds."""
    if plan.protocol == "published":
        return 1
    return len(AUTO_GRID) if isinstance(plan.strengths, str) else len(plan.strengths) + 1
