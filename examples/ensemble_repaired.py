"""Ensemble repaired: members that lost their dependence
========================================================

Methods that treat each station, or each company, apart make ensembles whose members do not belong
together. Can the dependence be brought back without touching the values?

The numbers are real and need no download: monthly prices of five companies, which come with
matplotlib. The target is the change of each price over one, two and three months.
"""

# %%
# An ensemble of analogs
# ----------------------
# For each month and company, the members are what followed the 20 earlier months that were most
# nearly as restless. Each company has analogs of its own, and so their dependence is lost.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.cbook import get_sample_data

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

# %%
# Diagnosis
# ---------
# The months up to 2010 serve to look and to repair. Months follow each other and share errors,
# which ``time="init"`` allows for.
event = ("company", "lead")
past, known = (array.sel(init=slice(None, "2010")) for array in (forecast, observed))
new, truth = (array.sel(init=slice("2011", None)) for array in (forecast, observed))
print(prerank.diagnose(past, known, target=event, time="init").verdict().headline)

# %%
# Repair
# ------
# The Schaake shuffle keeps the values of every target and reorders them: the members take the order
# of months of the past, which companies and leads have in common.
shuffle = SchaakeShuffle(margins=False, generator=0).fit(past, known, target=event)

# %%
# Before and after
# ----------------
# On the months from 2011 on, half of the excess of ``scale`` and most of that of ``dependency`` are
# gone.
shown, rows = ("location", "scale", "dependency"), {}
for name, ensemble in {"analogs": new, "shuffled": shuffle(new)}.items():
    found = prerank.diagnose(ensemble, truth, target=event, time="init")
    table = found.table.query("component == 'all'")
    print(f"{name}, {found.n} months from 2011 on")
    print(table[["prerank", "excess", "p_holm"]].round(4).to_string(index=False))
    score = prerank.variogram_score(ensemble, truth, target=event).mean()
    print(f"variogram score {float(score):.1f}", end="\n\n")
    rows[name] = {one.label: one for one in found.histograms(bins=10) if one.label in shown}

# %%
# A filled histogram leaves its band. After the shuffle none does, though bands of 135 months that
# depend on each other are wide.
grid = HistogramGrid(rows, label="before and after").plot()
plt.show()
