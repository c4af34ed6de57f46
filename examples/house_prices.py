"""House prices: where will price and rent lie together?
========================================================

A buyer wants to know where the price of a house and the rent it brings will lie, both at once, with
a probability of 90 %. A network with one Gaussian answers that, and its answer is only worth
something if it is calibrated. Prices are skewed, so here it is not.

The data is simulated, with a known truth: logarithms of price and rent are normal about a function
of area, age and distance, and their errors have a correlation of 0.7.
"""

# %%
# A table and a regressor
# -----------------------
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import prerank
from prerank.report import ReliabilityGrid

rng = np.random.default_rng(0)
n = 3000
X = pd.DataFrame(
    {"area": rng.gamma(9, 14, n), "age": rng.uniform(0, 90, n), "distance": rng.exponential(8, n)}
)
value = 1.1 * np.log(X["area"]) - 0.004 * X["age"] - 0.03 * X["distance"]
errors = 0.35 * rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], n)
Y = pd.DataFrame(
    {"price": np.exp(value + errors[:, 0]), "rent": 5 * np.exp(0.8 * value + errors[:, 1])}
)
fit, new = slice(0, 2000), slice(2000, 3000)

settings = {"n_components": 1, "hidden": (32,), "device": "cpu", "random_state": 0}
before = prerank.MixtureRegressor(method="none", **settings)
after = prerank.MixtureRegressor(method="head", folds=5, **settings)
models = {"before": before.fit(X[fit], Y[fit]), "after": after.fit(X[fit], Y[fit])}

# %%
# Diagnosis and repair
# --------------------
# The second model has a calibration head behind the same network, fitted by cross-fitting to all
# 2,000 rows. Both are judged on 1,000 rows that neither has seen.
found = {name: model.diagnose(X[new], Y[new]) for name, model in models.items()}
for name, one in found.items():
    print(f"{name}: {one.verdict().headline}")
print(models["after"].head_.report())

# %%
# The first row of the picture is the network alone, the second one has the head.
shown = ("marginal", "scale", "hdr")
rows = {k: [one for one in d.displays() if one.label in shown] for k, d in found.items()}
grid = ReliabilityGrid(rows).plot()

# %%
# Where will they lie?
# --------------------
# The smallest region that holds both with a probability of 90 %: how often it does on the new rows,
# with a standard error of 1 %, and how large it is. The calibrated regions are smaller.
regions = {name: model.predict_region(X[new], level=0.9) for name, model in models.items()}
for name, region in regions.items():
    covered, volume = region.contains(Y[new]).double().mean(), region.volume(generator=0).median()
    print(f"{name}: {covered:.1%} of the new houses inside, median volume {volume:.0f}")

# %%
# One house, with what it cost and brought in the end.
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for ax, (name, region) in zip(axes, regions.items(), strict=True):
    region.plot(3, y=Y[new], ax=ax)
    ax.set_title(name)
# sphinx_gallery_thumbnail_number = 2
plt.show()
