"""Training many runs at once, and choosing the strength of a penalty."""

from prerank.training.checkpoints import Checkpoint, Interrupted
from prerank.training.data import TrainingData
from prerank.training.evaluation import Evaluation, evaluate
from prerank.training.fitting import train
from prerank.training.objective import Objective
from prerank.training.runs import Progress, Run, Settings, TrainingResult
from prerank.training.selection import Selection, Trial, choose_strength, search_strength
from prerank.training.trainer import Trainer
from prerank.training.trials import validation_trials

__all__ = [
    "Checkpoint",
    "Evaluation",
    "Interrupted",
    "Objective",
    "Progress",
    "Run",
    "Selection",
    "Settings",
    "Trainer",
    "TrainingData",
    "TrainingResult",
    "Trial",
    "choose_strength",
    "evaluate",
    "search_strength",
    "train",
    "validation_trials",
]
