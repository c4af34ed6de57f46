"""Repair the dependence of an ensemble of real numbers, and judge it on held-out months.

For each month and company, the members are what followed the 20 earlier months that were most
nearly as restless. Each company has analogs of its own, which loses the dependence between them;
the Schaake shuffle brings back that of the past. The prices come with matplotlib.
Run it with a folder for the picture: python real_forecasts.py .
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure

import prerank
from prerank.recalibration import SchaakeShuffle
from prerank.report import HistogramGrid

with get_sample_data("Stocks.csv") as file:
    prices = pd.read_csv(file, comment="#", index_col="Date", parse_dates=True)
prices = prices.loc[prices.index.day == 1, ["IBM", "AAPL", "MSFT", "XRX", "ADBE"]]
paths = xr.DataArray(100 * np.log(prices), dims=["init", "company"], name="change")
leads = pd.Index([1, 2, 3], name="lead")
changes = xr.concat([paths.shift(init=-k) - paths for k in leads], leads).dropna("init")
observed = changes.transpose("init", "company", "lead")
unrest = np.abs(paths.diff("init")).rolling(init=6).mean().reindex_like(paths).to_numpy()


def analogs(start: int) -> np.ndarray:
    """What followed the months that were like this one, `(member, company, lead)`."""
    known = np.arange(6, start - 2)  # whose three months were over
    gap = np.abs(np.log(unrest[known] / unrest[start]))
    return observed.to_numpy()[known[gap.argsort(0)[:20]], np.arange(5)]


members = np.stack([analogs(start) for start in range(96, observed.sizes["init"])], 1)
observed = observed[96:]
forecast = observed.expand_dims(number=20).copy(data=members)

event = ("company", "lead")
past, known = (array.sel(init=slice(None, "2010")) for array in (forecast, observed))
new, truth = (array.sel(init=slice("2011", None)) for array in (forecast, observed))
shuffle = SchaakeShuffle(margins=False, generator=0).fit(past, known, target=event)

shown, rows = ("location", "scale", "dependency"), {}
for name, ensemble in {"analogs": new, "shuffled": shuffle(new)}.items():
    found = prerank.diagnose(ensemble, truth, target=event, time="init")
    table = found.table.query("component == 'all'")
    print(f"{name}, {found.n} months from 2011 on")
    print(table[["prerank", "excess", "p_holm"]].round(4).to_string(index=False))
    score = prerank.variogram_score(ensemble, truth, target=event).mean()
    print(f"variogram score {float(score):.1f}", end="\n\n")
    rows[name] = {one.label: one for one in found.histograms(bins=10) if one.label in shown}

grid = HistogramGrid(rows, label="before and after")
figure = Figure(figsize=grid.size, layout="constrained")
grid.plot(figure)
figure.savefig(Path(sys.argv[1]) / "real_forecasts.png", dpi=120)
