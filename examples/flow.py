"""Flow: when the targets lie on a curve
========================================

A robot arm is sent two angles, and its joints miss them by some degrees. Its hand then lies on a
bent strip, which no ellipse covers. Is a normalising flow, which can bend, calibrated by itself?

The data is simulated, with a known truth: two joints with independent normal errors, that of the
shoulder larger than that of the elbow.
"""

# %%
# The truth
# ---------
import math

import matplotlib.pyplot as plt
import pandas as pd
import torch

import prerank
from prerank.report import ReliabilityGrid

torch.manual_seed(0)


def hand(angles: torch.Tensor) -> torch.Tensor:
    """Where the hand is, with errors in both joints."""
    noise = torch.randn(angles.shape) * torch.tensor([0.35, 0.1])
    shoulder, elbow = (angles + noise).unbind(-1)
    both = shoulder + elbow
    return torch.stack([shoulder.cos() + both.cos(), shoulder.sin() + both.sin()], -1)


angles = torch.rand(2600, 2) * torch.tensor([math.pi, math.pi / 2])
X = pd.DataFrame(angles, columns=["shoulder", "elbow"])
Y = pd.DataFrame(hand(angles), columns=["across", "up"])
fit, spare, new = slice(0, 1000), slice(1000, 1600), slice(1600, 2600)

# %%
# Diagnosis
# ---------
# A network with one Gaussian, and a flow, both trained by likelihood alone. The flow bends and is
# far better, but 1,000 rows have made it too sure of itself: observations fall where its density is
# low.
settings = {"method": "none", "device": "cpu", "random_state": 0}
models = {
    "Gaussian": prerank.MixtureRegressor(n_components=1, **settings).fit(X[fit], Y[fit]),
    "flow": prerank.FlowRegressor(bins=6, hidden=(32, 32), **settings).fit(X[fit], Y[fit]),
}


def judge(name: str, dist: torch.distributions.Distribution) -> prerank.Diagnosis:
    """Likelihood and calibration on 1,000 rows that nothing was fitted to."""
    found = prerank.diagnose(dist, Y[new], generator=0)
    print(f"{name}: NLL {prerank.nll(dist, Y[new]).mean():.2f}. {found.verdict().headline}")
    return found


forecasts = {name: model.predict_dist(X[new]) for name, model in models.items()}
found = {name: judge(name, dist) for name, dist in forecasts.items()}

# %%
# Repair
# ------
# A calibration head changes the flow by a few numbers, fitted to 600 spare rows. Without its
# penalty (``strength=0``) it maximises the likelihood alone, which takes less time for a flow.
head = prerank.CalibrationHead(strength=0).fit(models["flow"].predict_dist(X[spare]), Y[spare])
print(head.report())
forecasts["flow and head"] = head(forecasts["flow"])
found["flow and head"] = judge("flow and head", forecasts["flow and head"])
shown = ("marginal", "scale", "hdr")
rows = {k: [one for one in d.displays() if one.label in shown] for k, d in found.items()}
grid = ReliabilityGrid(rows).plot()

# %%
# What they predict
# -----------------
# For the first of the new rows, 500 draws of the truth and of each forecast.
figure, axes = plt.subplots(1, 4, figsize=(10, 3), sharex=True, sharey=True, layout="constrained")
draws = {"truth": hand(angles[new][:1].expand(500, 2))}
draws |= {name: dist.sample((500,))[:, 0] for name, dist in forecasts.items()}
for ax, (name, points) in zip(axes, draws.items(), strict=True):
    ax.scatter(*points.mT, s=4)
    ax.set(title=name, xlabel="across", ylabel="up")
    ax.label_outer()
# sphinx_gallery_thumbnail_number = 2
plt.show()
