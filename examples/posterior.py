"""SBI posterior: coverage of each parameter is not coverage of all
===================================================================

Simulation-based inference fits a posterior to simulations. It is checked with parameters drawn from
the prior and data simulated from them: each parameter's rank among posterior draws must be uniform
(simulation-based calibration, SBC). A posterior that treats every parameter apart passes this check
and is still wrong.

The simulator is simple on purpose, so that the true posterior is known: a parabola with three
coefficients, measured at eight times with noise. The posterior in question has the exact margins,
as networks that are trained for one parameter each would have, and none of the dependence.
"""

# %%
# Prior, simulator, true posterior
# --------------------------------
# Both are normal, so the posterior is normal too: its covariance is the same for all data, and its
# mean is linear in them.
import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch.distributions import Independent, MultivariateNormal, Normal

import prerank
from prerank.preranks import ReferenceDistance
from prerank.report import CornerDisplay, ReliabilityGrid

torch.manual_seed(1)
names = ["start", "speed", "bend"]
times = torch.linspace(0, 1, 8, dtype=torch.float64)
design = torch.stack([times**0, times, times**2], -1)
covariance = torch.linalg.inv(torch.eye(3) + design.mT @ design / 0.2**2)


def simulate(n: int) -> tuple[pd.DataFrame, torch.Tensor]:
    """Parameters from the prior, and the mean of the posterior of what is measured."""
    theta = torch.randn(n, 3, dtype=torch.float64)
    data = theta @ design.mT + 0.2 * torch.randn(n, 8, dtype=torch.float64)
    return pd.DataFrame(theta, columns=names), data @ design @ covariance / 0.2**2


def apart(mean: torch.Tensor) -> Independent:
    """The posterior in question."""
    return Independent(Normal(mean, covariance.diagonal().sqrt().expand_as(mean)), 1)


theta, mean = simulate(1000)
theta_new, mean_new = simulate(2000)

# %%
# Diagnosis
# ---------
# ``marginal`` is SBC, and finds nothing. The coverage of highest-density regions (``hdr``) and of
# balls about random points (``reference_distance``, which is TARP) looks at all parameters at once.
checks = ["marginal", "hdr", ReferenceDistance()]
found = {"before": prerank.diagnose(apart(mean_new), theta_new, preranks=checks, generator=0)}
table = found["before"].table.query("component == 'all'")
print(table[["prerank", "pce", "floor", "p_holm"]].round(4).to_string(index=False))
print(prerank.diagnose(apart(mean_new), theta_new, generator=0).verdict().headline)

# %%
# Repair
# ------
# More simulations, 1,000 of them, fit a calibration head. It restores the correlations that the
# posterior lacks.
head = prerank.calibrate(apart(mean), theta)
print(head.report())
repaired = head(apart(mean_new))
found["after"] = prerank.diagnose(repaired, theta_new, preranks=checks, generator=0)
grid = ReliabilityGrid({name: one.displays() for name, one in found.items()}).plot()

# %%
# Against the true posterior
# --------------------------
# In this case there is a stronger check. The mean log-density of the true parameters cannot be
# larger than that of the true posterior, and the difference is the information that was lost.
true = MultivariateNormal(mean_new, covariance)
for name, dist in {"before": apart(mean_new), "after": repaired}.items():
    lost = (prerank.nll(dist, theta_new) - prerank.nll(true, theta_new)).mean()
    print(f"{name}: {lost:.2f} nats lost")

# %%
# One posterior after the repair, in pairs of parameters. The diamond is the parameter that made the
# data.
draws = repaired.sample((1000,))[:, 0]
corner = CornerDisplay(draws, theta_new.iloc[0].to_numpy(), names, label="after the repair").plot()
# sphinx_gallery_thumbnail_number = 2
plt.show()
