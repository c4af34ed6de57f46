"""Monitoring: is it still calibrated?
======================================

A forecast was calibrated when it went into service. Is it still? Testing again every week raises a
false alarm sooner or later. ``prerank.Monitor`` may be looked at after every row: the probability
that a calibrated forecast *ever* raises an alarm is at most ``alpha``.

The data is simulated, with a known truth: a year of three air pollutants, twenty rows a week. After
half of it one of the sensors is replaced, and the forecaster does not know.
"""

# %%
# The truth and the forecast
# --------------------------
# The forecast is the true distribution until week 26. From then on the new sensor of ozone reads .7
# standard deviations too high and no longer moves with the other two.
import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch.distributions import MultivariateNormal

import prerank
from prerank.report import ReliabilityGrid

torch.manual_seed(0)
together = 0.4 * torch.eye(3) + 0.6
alone = torch.tensor([[1.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 1.0]])


def week(number: int) -> pd.DataFrame:
    """Twenty observations."""
    covariance = together if number < 26 else alone
    y = torch.randn(20, 3) @ torch.linalg.cholesky(covariance).mT
    y[:, 2] += 0.7 * (number >= 26)
    return pd.DataFrame(y, columns=["dust", "nitrogen", "ozone"])


def forecast(rows: int) -> MultivariateNormal:
    """What is predicted."""
    return MultivariateNormal(torch.zeros(rows, 3), together)


# %%
# What a test every week would do
# -------------------------------
# In the first half of the year all is well, and a test at 5 % still rejects in some weeks.
weeks = [week(number) for number in range(52)]
tests = [prerank.diagnose(forecast(20), y, generator=0).verdict() for y in weeks[:26]]
wrong = [test for test in tests if test.failing]
print(f"false alarms of weekly tests: {len(wrong)} of 26 weeks")

# %%
# The monitor
# -----------
# The evidence stays low while the forecast is calibrated, and grows exponentially after the change.
# It crosses the dashed line once, and the alarm stays.
monitor = prerank.Monitor(alpha=0.01)
for number, y in enumerate(weeks):
    monitor.update(forecast(20), y)
    if monitor.alarm:
        print(f"alarm in week {number}")
        break
display = monitor.plot()
print(display.caption)

# %%
# Repair
# ------
# Once enough rows of the new sensor are there, twelve weeks here, a head is fitted to them. Which
# rows belong to it is a matter of record: somebody looks, and finds the date of the replacement.
since = pd.concat(weeks[26:38])
print(prerank.diagnose(forecast(240), since, generator=0).verdict().headline)
head = prerank.calibrate(forecast(240), since)
print(head.report())

# %%
# The weeks from 38 on judge the repair, and a new monitor watches it.
new = pd.concat(weeks[38:])
forecasts = {"before": forecast(280), "after": head(forecast(280))}
found = {k: prerank.diagnose(dist, new, generator=0) for k, dist in forecasts.items()}
shown = ("marginal", "dependency", "hdr")
rows = {k: [one for one in d.displays() if one.label in shown] for k, d in found.items()}
grid = ReliabilityGrid(rows).plot()
for name, one in found.items():
    print(f"{name}: {one.verdict().headline}")
second = prerank.Monitor(alpha=0.01)
second.update(forecasts["after"], new)
print(f"evidence after the repair {second.evidence:.2f}, alarm: {second.alarm}")
plt.show()
