"""Studies of a second or two, and what is needed to look at their folders."""

import dataclasses

import numpy as np

from prerank.datasets import Table, save_table
from prerank.study import Plan
from prerank.training import Settings

LABELS = ["marginal", "location", "scale", "dependency", "pca", "hdr", "copula"]
SEVERAL = ["marginal", "pca"]  # pre-ranks of several components

_TINY = Plan(
    name="tiny",
    datasets=("ar1", "outliers"),
    variants=("none", "marginal", "hdr"),
    seeds=(0, 1),
    strengths=(1.0, 30.0),
    n_samples=20,
    n_components=1,
    hidden=(4,),
    n_null=50,
    training=Settings(lr=1e-2, batch_size=256, max_epochs=3),
)


def tiny(**changes):
    """A plan of a few seconds; `max_epochs` is that of the training."""
    if "max_epochs" in changes:
        epochs = changes.pop("max_epochs")
        changes["training"] = dataclasses.replace(_TINY.training, max_epochs=epochs)
    return dataclasses.replace(_TINY, **changes)


def write_table(folder, name, dim, n=300, power=1):
    """A dataset of two inputs and correlated targets in a file; no normal law has odd powers."""
    rng = np.random.default_rng(dim)
    x = rng.normal(size=(n, 2)).astype(np.float32)
    y = (x[:, :1] + rng.normal(size=(n, dim)) ** power).astype(np.float32)
    return save_table(Table(name, x, y, ("a", "b"), tuple(f"t{d}" for d in range(dim))), folder)


def contents(folder):
    """All files of a folder: their times and bytes."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows_of(results):
    """All rows but for the seconds that they took, in an order of their own, lists as tuples."""
    frame = results.drop(columns="seconds")
    for name in ("curve", "null"):
        frame[name] = [None if v is None else tuple(map(float, v)) for v in frame[name]]
    keys = ["dataset", "variant", "part", "prerank", "strength", "seed"]
    return frame.sort_values(keys).reset_index(drop=True)
