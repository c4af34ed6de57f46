"""Studies: tiny plans, their finished and interrupted folders, and their reports."""

from pathlib import Path

import pandas as pd

from golden.commands import command
from golden.compare import FOLDER, masked, plain
from prerank.study import Plan, Store, run_study
from prerank.training import Settings

STUDIES = FOLDER / "study"
_SIZES = {
    "variants": ("none", "marginal"),
    "seeds": (0, 1),
    "n_samples": 10,
    "n_components": 1,
    "hidden": (4,),
    "n_null": 20,
    "training": Settings(lr=1e-2, batch_size=256, max_epochs=2),
}
PLANS = {
    "finished": Plan(name="golden", datasets=("ar1", "outliers"), strengths=(1.0, 10.0), **_SIZES),
    "published": Plan(
        name="golden-published",
        protocol="published",
        datasets=("ar1",),
        strengths=(10.0,),
        **_SIZES,
    ),
}


def make_study(name, folder):
    """Run the study of a name to its end."""
    run_study(PLANS[name], folder)


def make_interrupted(folder):
    """Run the finished study, but stop inside its first penalised unit, after a checkpoint."""

    def stop(progress):
        training = progress.training
        if training is not None and progress.unit.variant != "none" and training.epoch == 2:
            raise KeyboardInterrupt

    try:
        run_study(PLANS["finished"], folder, checkpoint_every=0.0, on_progress=stop)
    except KeyboardInterrupt:
        return
    raise AssertionError("the study was not interrupted")


LATER = ["variogram"]
"""Columns that results got after these were written; they can still be read without."""


def make_rows(folder):
    """Read the results of a study, without durations and later columns, in a fixed order."""
    keys = ["dataset", "variant", "part", "prerank", "strength", "seed"]
    results = Store(folder).results().sort_values(keys).reset_index(drop=True)
    results = results.drop(columns=LATER, errors="ignore")
    return masked(plain(results), Path(folder))


def make_report(folder, out):
    """Write the report of a study by the command line; return its tables."""
    done = command("study", "report", folder, "--out", out, cwd=out.parent)
    assert done.code == 0, done.error
    return sorted(Path(out).glob("*.csv"))


def make_comparison(out):
    """Compare the two finished studies by the command line; return the table."""
    folders = [STUDIES / name for name in PLANS]
    done = command("study", "compare", *folders, "--out", out, cwd=out.parent)
    assert done.code == 0, done.error
    return out


def make_table(path):
    """Read a CSV file as columns."""
    return plain(pd.read_csv(path))


def make_contents(folder):
    """Read the bytes of all files of a folder."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
