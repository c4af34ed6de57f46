"""Saved models: small regressors, their data, and what they predict."""

import shutil

import numpy as np
import pandas as pd

import prerank
from golden.compare import FOLDER, plain

ROWS, SHOWN = 120, 5
KINDS = ("mixture", "flow")
_SMALL = {
    "hidden": (4,),
    "method": "network",
    "preranks": "marginal+hdr",
    "strength": 5.0,
    "max_epochs": 5,
    "batch_size": 32,
    "lr": 0.01,
    "device": "cpu",
    "random_state": 0,
}


def make_rivers(rows=ROWS):
    """Make a table of two correlated targets, from numbers and text."""
    random = np.random.default_rng(0)
    depth, common = random.normal(size=(2, rows))
    bed = random.choice(["mud", "sand", "sänd, coarse"], rows)
    flow = depth + common
    load = depth + common + 0.5 * random.normal(size=rows) + (bed == "mud")
    return pd.DataFrame({"depth": depth, "bed": bed, "flow": flow, "load": load}).round(4)


def make_data(kind):
    """Make inputs and targets: named tables for the mixture, arrays for the flow."""
    table = make_rivers()
    x, y = table[["depth", "bed"]], table[["flow", "load"]]
    if kind == "mixture":
        return x, y
    return np.column_stack([x.depth, x.bed == "mud"]).astype(float), y.to_numpy()


def make_model(kind):
    """Fit the regressor of a kind."""
    if kind == "mixture":
        model = prerank.MixtureRegressor(n_components=2, **_SMALL)
    else:
        model = prerank.FlowRegressor(bins=4, n_samples=8, **_SMALL)
    return model.fit(*make_data(kind))


def make_predictions(model, kind):
    """Predict the first rows: points, quantiles, densities, samples and scores."""
    x, y = make_data(kind)
    first = y.iloc[:SHOWN].to_numpy() if kind == "mixture" else y[:SHOWN]
    dist = model.predict_dist(x[:SHOWN])
    found = {
        "strength": model.strength_,
        "target_names": model.target_names_,
        "predict": model.predict(x[:SHOWN]),
        "quantiles": model.predict_quantiles(x[:SHOWN], (0.1, 0.5, 0.9)),
        "log_density": -prerank.nll(dist, first),
        "sample": model.sample(x[:SHOWN], 3, random_state=0),
        "score": model.score(x, y),
    }
    return plain(found)


def write_model(kind):
    """Fit and save the model of a kind anew; return its predictions."""
    folder = FOLDER / "models" / kind
    shutil.rmtree(folder, ignore_errors=True)
    model = make_model(kind)
    model.save(folder)
    return make_predictions(model, kind)
