"""Weather stations: from each of them to the region
====================================================

Every station of a region has a temperature forecast of its own. Two questions follow. Which
stations have a wrong forecast? And do all stations together behave as predicted? A warning for the
region depends on the second answer, and no check of single stations gives it.

The data is simulated, with a known truth: six stations, whose errors are correlated over 100 km,
and a forecast that takes them for independent and one valley for quieter than it is.
"""

# %%
# The truth and the forecast
# --------------------------
# One row is one day. The mean is predicted perfectly, so only the errors need to be simulated. Half
# of the days are for looking and repairing, the other half judges the repair.
import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.report import ReliabilityGrid, StationDisplay

torch.manual_seed(0)
names = ["Alm", "Berg", "Dorf", "Feld", "Lend", "Moos"]
places = pd.DataFrame(torch.rand(6, 2).numpy() * [2, 1] + [10, 47], index=names)
places.columns = ["longitude", "latitude"]
km = torch.tensor(places.to_numpy() * [75, 111])
correlations = (-torch.cdist(km, km) / 100).exp()
spreads = torch.ones(6, dtype=torch.float64)
spreads[4] = 1.5  # fog in the valley of Lend

factor = torch.linalg.cholesky(correlations) * spreads[:, None]
errors = torch.randn(2000, 6, dtype=torch.float64) @ factor.mT
past, new = (
    pd.DataFrame(errors, columns=names).iloc[:1000],
    pd.DataFrame(errors, columns=names)[1000:],
)
forecast = MultivariateNormal(torch.zeros(1000, 6).double(), torch.eye(6).double())

# %%
# Diagnosis
# ---------
# The verdict names both faults: one station, and the dependence between all of them.
found = prerank.diagnose(forecast, past, generator=0)
print(found.verdict().headline)

# %%
# On the map, the valley stands out. A thick edge marks evidence after a correction for the
# number of stations.
stations = found.table.query("prerank == 'marginal' and component != 'all'")
table = stations.set_index("component").join(places)
site_map = StationDisplay.from_table(table).plot()
print(site_map.caption)

# %%
# Repair
# ------
# ``prerank.calibrate`` fits a few numbers to the past days: widths of the stations, and
# correlations that the forecast does not have.
head = prerank.calibrate(forecast, past)
print(head.report())

# %%
# The days that follow were not used so far. Before the repair they leave the grey band, afterwards
# they keep to the diagonal.
forecasts = {"before": forecast, "after": head(forecast)}
shown = ["marginal", "scale", "hdr"]
after = {
    k: prerank.diagnose(dist, new, preranks=shown, generator=0) for k, dist in forecasts.items()
}
grid = ReliabilityGrid({name: one.displays() for name, one in after.items()}).plot()
for name, one in after.items():
    print(f"{name}: {one.verdict().headline}")

# %%
# What a user of the forecast notices: how far the mean of the region strays from its prediction.
for name, dist in forecasts.items():
    predicted = dist.sample((1000,)).mean(-1).std()
    print(f"{name}: predicted spread of the regional mean {predicted:.2f} K")
print(f"observed: {new.mean(axis=1).std():.2f} K")
plt.show()
