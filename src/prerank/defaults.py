"""Defaults that the command line and Python share, without torch."""

__all__ = [
    "BATCH_SIZE",
    "BUDGET",
    "COMMAND_SEED",
    "COMMAND_STRENGTH",
    "HELD_OUT",
    "LEARNING_RATE",
    "MAX_EPOCHS",
    "N_COMPONENTS",
    "PATIENCE",
    "PENALTY_PRERANKS",
    "PREDICTED_SAMPLES",
    "QUANTILES",
    "SCALE_FLOOR",
    "STRENGTH",
    "TRAINING_SAMPLES",
    "VALIDATION_SHARE",
]

# --- Fitting ---------------------------------------------------------------------------------
#
# `prerank fit` and `MixtureRegressor` train alike but for two defaults. The command selects the
# strength (it writes a report that shows the selection, and nobody waits for it in a loop); Python
# takes one that is given, which is six times as fast. The command has a seed, so that the same
# line gives the same model; Python follows scikit-learn, where random_state=None is a new draw.

PENALTY_PRERANKS = "marginal+hdr"
"""Pre-ranks of the penalty."""

STRENGTH = 10.0
"""Strength of the penalty of an estimator."""

COMMAND_STRENGTH = "auto"
"""Strength of the penalty of `prerank fit`."""

COMMAND_SEED = 0
"""Random seed of commands; estimators have `random_state=None`."""

BUDGET = 0.10
"""By how much the energy score may worsen, as a fraction, where a strength is selected."""

N_COMPONENTS = 5
"""Gaussians in a mixture."""

SCALE_FLOOR = 1e-3
"""Least scale of a prediction, in standard deviations of the targets."""

MAX_EPOCHS = 1000
"""Most epochs of a training, without the penalty and again with it."""

PATIENCE = 15
"""Epochs without improvement after which a training stops."""

BATCH_SIZE = 256
"""Rows per step."""

LEARNING_RATE = 1e-3
"""Learning rate of Adam."""

TRAINING_SAMPLES = 100
"""Draws per row of a penalty, and of the exact evaluation that selects its strength."""

VALIDATION_SHARE = 0.2
"""Share of the rows of `fit` that stop the training."""

HELD_OUT = 0.2
"""Share of the rows of a table that `prerank fit` keeps for its diagnosis."""

QUANTILES = (0.05, 0.5, 0.95)
"""Levels of predicted quantiles."""

PREDICTED_SAMPLES = 100
"""Draws per row of `sample`; `prerank predict` writes samples on request only."""
