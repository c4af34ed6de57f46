"""Defaults that the command line and Python share; importing them loads no other library."""

__all__ = [
    "BAND_LEVEL",
    "LEVELS",
    "MAX_GROUPS",
    "NULL_REPLICATES",
    "N_NULL",
    "N_SAMPLES",
    "SCALE",
    "SEED",
    "SIGNIFICANCE",
]

N_SAMPLES = 100
"""Draws per row for pre-ranks without a closed form; an `Ensemble` uses all of its members."""

LEVELS = 100
"""Number of levels of the PCE and of reliability curves, end points included."""

N_NULL = 2000
"""Replicates of the mean PCE over several components, in a diagnosis."""

NULL_REPLICATES = 50_000
"""Replicates of the PCE of a single component, which are cached by the number of rows."""

SEED = 0
"""Seed of draws, random ties and replicates."""

SCALE = "none"
"""Units: "none" keeps the original ones, "samples" divides each target by their spread."""

BAND_LEVEL = 0.95
"""Probability that the curve or histogram of a calibrated forecast stays inside its band."""

SIGNIFICANCE = 0.05
"""Corrected p-values below it are evidence of miscalibration."""

MAX_GROUPS = 1000
"""Largest number of groups of rows in one diagnosis."""
