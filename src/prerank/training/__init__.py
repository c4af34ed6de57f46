"""Training many runs at once, and the path from data to a calibrated model."""

from prerank.numerics.folds import draw_folds
from prerank.training.calibrated import CalibratedTraining, train_calibrated
from prerank.training.cross_fitting import Partition, forecast_unseen
from prerank.training.data import TrainingData
from prerank.training.evaluation import Evaluation, evaluate, validation_trials
from prerank.training.fitting import Checkpoint, Interrupted, train
from prerank.training.objective import Objective
from prerank.training.runs import Progress, Run, Settings, TrainingResult
from prerank.training.selection import Selection, choose_strength, search_strength
from prerank.training.stages import search_in_stages
from prerank.training.trainer import Trainer
from prerank.training.trials import Trial

__all__ = [
    "CalibratedTraining",
    "Checkpoint",
    "Evaluation",
    "Interrupted",
    "Objective",
    "Partition",
    "Progress",
    "Run",
    "Selection",
    "Settings",
    "Trainer",
    "TrainingData",
    "TrainingResult",
    "Trial",
    "choose_strength",
    "draw_folds",
    "evaluate",
    "forecast_unseen",
    "search_in_stages",
    "search_strength",
    "train",
    "train_calibrated",
    "validation_trials",
]
