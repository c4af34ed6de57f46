"""Studies: plans, units of work, results and tables."""

from prerank.study import tables
from prerank.study.plans import HEAD, NONE, PRESETS, Plan
from prerank.study.protocols import check_datasets
from prerank.study.published_runs import published_cells, published_cross, published_strength
from prerank.study.runner import StudyProgress, run_study
from prerank.study.store import Store, Unit
from prerank.study.work import Outcome

__all__ = [
    "HEAD",
    "NONE",
    "PRESETS",
    "Outcome",
    "Plan",
    "Store",
    "StudyProgress",
    "Unit",
    "check_datasets",
    "published_cells",
    "published_cross",
    "published_strength",
    "run_study",
    "tables",
]
