"""Energy load: on which days is the forecast too narrow?
=========================================================

A forecast of the electricity load at night, in the morning and in the evening may be calibrated on
average over the year, and be far too narrow on some days: those on which reserves are needed. Which
days these are, nobody has to guess: ``prerank.diagnose_where`` searches the inputs.

The data is simulated, with a known truth: on days below 3 °C many heaters run, and errors are twice
as large. The forecast has the spread of mild days for all of them.
"""

# %%
# The truth and the forecast
# --------------------------
# Every day has a temperature, wind and a price, and the three errors of a day are correlated. Some
# days find the fault and repair it; others, drawn apart, judge the repair.
import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.recalibration import RegionalHead
from prerank.report import HistogramGrid

torch.manual_seed(0)
correlations = 0.6 * torch.ones(3, 3, dtype=torch.float64) + 0.4 * torch.eye(3)


def days(n: int) -> tuple[pd.DataFrame, pd.DataFrame, MultivariateNormal]:
    """Inputs, observed load and forecast of n days, in GW."""
    x = torch.rand(n, 3, dtype=torch.float64) * torch.tensor([30, 20, 90])
    x[:, 0] -= 5
    mean = 40 + torch.tensor([-8, 2, 5]) + 0.05 * (15 - x[:, :1]) ** 2 - 0.1 * x[:, 1:2]
    factor = torch.linalg.cholesky(correlations)
    errors = torch.randn(n, 3, dtype=torch.float64) @ factor.mT
    errors *= 1 + (x[:, :1] < 3)
    X = pd.DataFrame(x, columns=["temperature", "wind", "price"])
    Y = pd.DataFrame(mean + errors, columns=["night", "morning", "evening"])
    return X, Y, MultivariateNormal(mean, correlations.expand(n, 3, 3))


X, Y, forecast = days(2000)
X_new, Y_new, forecast_new = days(2000)

# %%
# Diagnosis
# ---------
# Over all days together the verdict is a wrong shape, which says little about the cause.
print(prerank.diagnose(forecast, Y, generator=0).verdict().headline)

# %%
# Over the inputs it becomes clear. The points are means of a score of the PITs in bins of the
# input, with two standard errors; zero is calibrated. The shaded region is what the search found.
where = prerank.diagnose_where(forecast, Y, X, generator=0)
print(where)
displays = where.plot()

# %%
# Repair
# ------
# One change for all days cannot repair this. ``RegionalHead`` finds regions in half of the rows,
# fits a change to each, and keeps those that make the other half more likely.
head = RegionalHead(n_null=99).fit(forecast, Y, X)
print(head.report())

# %%
# On the new days, with cold and mild ones apart. A filled histogram leaves its band.
cold = (X_new["temperature"] < 3).to_numpy()
rows = {}
for name, dist in {"before": forecast_new, "after": head(forecast_new, X_new)}.items():
    season = ["below 3 °C" if day else "mild" for day in cold]
    groups = prerank.diagnosis.diagnose_by(dist, Y_new, season, preranks="hdr", generator=0)
    rows[name] = {label: one.histograms()[0] for label, one in groups.groups.items()}
    print(f"{name}: NLL {prerank.nll(dist, Y_new).mean():.3f}")
grid = HistogramGrid(rows).plot()
print(grid.caption)
plt.show()
