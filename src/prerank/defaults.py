"""Defaults that the command line and Python share; importing them loads no other library."""

# --- Diagnosing ------------------------------------------------------------------------------

N_SAMPLES = 100
"""Draws per row for pre-ranks without a closed form; an `Ensemble` uses all of its members."""

LEVELS = 100
"""Number of levels of the PCE and of reliability curves, end points included."""

N_NULL = 2000
"""Replicates of the mean PCE over several components, in a diagnosis."""

NULL_REPLICATES = 50_000
"""Replicates of the PCE of a single component, which are cached by the number of rows."""

MANY_ROWS = 2**16
"""Number of rows above which a diagnosis goes over them in blocks and keeps only counts of the
null, and whose levels the tests of uniformity have from there on."""

MANY_VALUES = 2**26
"""Number of members' values above which a diagnosis of arrays of xarray goes over them in blocks,
and the command line reads netCDF files and zarr stores so."""

KEPT_ROWS = 2**18
"""Rows of a diagnosis in blocks whose PITs are kept; of the others there are counts."""

SEED = 0
"""Seed of draws, random ties and replicates."""

SCALE = "none"
"""Units: "none" keeps the original ones, "samples" divides each target by their spread."""

UNITS = "original"
"""Units of targets that are judged as they are."""

BAND_LEVEL = 0.95
"""Probability that the curve or histogram of a calibrated forecast stays inside its band."""

SIGNIFICANCE = 0.05
"""Corrected p-values below it are evidence of miscalibration."""

ALARM = 0.01
"""Probability that a monitor ever gives a false alarm."""

N_PERMUTATIONS = 499
"""Permutations of the rows in a search for regions of the inputs."""

MAX_REGIONS = 3
"""Largest number of regions that a search reports."""

MAX_GROUPS = 1000
"""Largest number of groups of rows in one diagnosis."""

# --- Fitting ---------------------------------------------------------------------------------
#
# `prerank fit` and `MixtureRegressor` train alike but for two defaults. The command selects the
# strength (it writes a report that shows the selection, and nobody waits for it in a loop); Python
# takes one that is given, which is faster. The command has a seed, so that the same
# line gives the same model; Python follows scikit-learn, where random_state=None is a new draw.

METHOD = "head"
"""How a regressor is calibrated: a head behind the network, a penalty on it, or not at all."""

PENALTY_PRERANKS = "marginal+hdr"
"""Pre-ranks of the penalty on a network."""

HEAD_PRERANKS = "all"
"""Pre-ranks of the penalty on a head."""

CALIBRATION_ROWS = 20
"""Fewest rows, which the predictor was not fitted to, that a head or recalibrator is fitted to."""

STRENGTH = 10.0
"""Strength of the penalty of an estimator, on a head or on a network."""

COMMAND_STRENGTH = "auto"
"""Strength of the penalty of `prerank fit`."""

COMMAND_SEED = 0
"""Random seed of commands; estimators have `random_state=None`."""

BUDGET = 0.10
"""By how much the energy score may worsen, as a fraction, where a strength is selected."""

NLL_BUDGET = 0.5
"""By how many nats the negative log-likelihood may worsen, where a regressor selects a strength."""

N_COMPONENTS = 5
"""Gaussians in a mixture."""

SCALE_FLOOR = 1e-3
"""Least scale of a prediction, in standard deviations of the targets."""

DISCRETE = "auto"
"""Targets with few values or atoms: "auto" finds, spreads and rounds them."""

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

REGION_LEVEL = 0.9
"""Level of prediction intervals and regions."""

PREDICTED_SAMPLES = 100
"""Draws per row of `sample`; `prerank predict` writes samples on request only."""

# --- Studies ---------------------------------------------------------------------------------

PRESETS = ("quick", "paper-exact", "paper-as-published", "paper-head")
"""Plans that come with the package."""

CHECKPOINT_EVERY = 30.0
"""Seconds between two checkpoints of a training."""

__all__ = [name for name in list(globals()) if name.isupper()]
