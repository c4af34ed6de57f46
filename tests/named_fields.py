"""Ensembles with dimensions (time, number, station, lead), simulated from a known truth."""

import numpy as np
import pandas as pd
import xarray as xr

MEMBERS, TIMES = 15, 120
STATIONS, LEADS = ["Bonn", "Ghent", "Oslo"], [6, 12]
EVENT = ("station", "lead")


def fields(spread=1.0, *, seed=0, times=TIMES, dtype=np.float64):
    """An ensemble and observations of the same law, but for the spread of the ensemble."""
    rng = np.random.default_rng(seed)
    size = len(STATIONS) * len(LEADS)
    root = np.linalg.cholesky(0.6 + 0.4 * np.eye(size))
    noise = rng.normal(size=(MEMBERS + 1, times, size)) @ root.T
    noise[1:] *= spread
    centre = 280 + rng.normal(size=(times, size))
    values = (centre + noise).reshape(-1, times, len(STATIONS), len(LEADS)).astype(dtype)
    coords = {
        "time": pd.date_range("2025-01-01", periods=times, freq="3D"),
        "station": STATIONS,
        "lead": ("lead", LEADS, {"units": "hours"}),
    }
    dims = ("number", "time", *EVENT)
    pool = xr.DataArray(values, coords, dims, "t2m", {"units": "K"})
    pool = pool.assign_coords(height=("station", [60.0, 10.0, 20.0]))
    return pool[1:].assign_coords(number=range(MEMBERS)), pool[0]


def plain(samples, y, rows=("time",), target=EVENT):
    """The same as arrays `(S, N, D)` and `(N, D)`."""
    size = np.prod([y.sizes[dim] for dim in target], dtype=int)
    members = samples.transpose("number", *rows, *target).to_numpy()
    observed = y.transpose(*rows, *target).to_numpy()
    return members.reshape(len(members), -1, size), observed.reshape(-1, size)


def shuffled(samples):
    """The same forecast with its dimensions and labels in another order."""
    moved = samples.transpose("lead", "time", "number", "station")
    order = np.random.default_rng(1).permutation(moved.sizes["time"])
    return moved.isel(time=order, station=[2, 0, 1], lead=[1, 0])
