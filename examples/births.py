"""Births: weeks are whole numbers, densities are not
=====================================================

Two things are known of every birth: how many weeks the pregnancy took, in whole weeks, and the
weight of the child. A network with a density spends it on narrow peaks at the weeks, and its ranks
cannot be uniform. What is to be done with a target that has twenty values?

The data is simulated, with a known truth that looks like a register: weeks depend on age, smoking
and earlier births, a few children come early, and the weight follows the weeks.
"""

# %%
# A table with a target of whole numbers
# --------------------------------------
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import prerank
from prerank.report import PITHistogramDisplay

rng = np.random.default_rng(0)
n = 4000
X = pd.DataFrame(
    {
        "age": rng.normal(30, 5, n),
        "smokes": rng.binomial(1, 0.15, n),
        "earlier": rng.poisson(0.8, n),
    }
)
early = rng.random(n) < 0.05 + 0.05 * X["smokes"]
days = 280 + 8 * rng.normal(size=n) - 2 * X["smokes"] - early * rng.gamma(2, 12, n)
weight = 3400 + 22 * (days - 280) - 180 * X["smokes"] + 40 * X["earlier"] + 400 * rng.normal(size=n)
Y = pd.DataFrame({"weeks": days // 7, "weight": weight})
fit, new = slice(0, 3000), slice(3000, 4000)
print(Y["weeks"].value_counts().sort_index().to_dict())

# %%
# Diagnosis
# ---------
# Taken as continuous, the weeks have a density with a peak at each value. The remark of the
# diagnosis says that no density can be calibrated here.
settings = {"n_components": 3, "hidden": (32,), "device": "cpu", "random_state": 0}
density = prerank.MixtureRegressor(method="none", discrete=False, **settings).fit(X[fit], Y[fit])
found = {"density": density.diagnose(X[new], Y[new])}
print(found["density"].verdict().headline)
print(*found["density"].remarks, sep="\n")

# %%
# Repair
# ------
# By default targets of few values are spread over cells of a normal distribution for the training,
# and forecasts are rounded back. The forecast then gives a probability to every week, and the head
# repairs what is left.
rounded = prerank.MixtureRegressor(**settings).fit(X[fit], Y[fit])
print("rounded:", *rounded.rounding_.words(rounded.target_names_))
found["rounded"] = rounded.diagnose(X[new], Y[new])
print(found["rounded"].verdict().headline)

# %%
# The histogram of the weeks has peaks before, and is flat afterwards, on 1,000 rows that were not
# used.
figure, axes = plt.subplots(2, 2, figsize=(8, 5), sharex=True, layout="constrained")
for row, (name, one) in zip(axes, found.items(), strict=True):
    z = one.pits["marginal"]
    for j, target in enumerate(Y):
        display = PITHistogramDisplay.from_pits(z[:, [j]], label=f"{name}: {target}", ax=row[j])
        print(display.caption)

# %%
# What the forecast is good for: how likely is a birth before week 37, for smokers and others?
weeks = rounded.predict_dist(X[new]).sample((500,), generator=0)[..., 0]
risk = (weeks < 37).double().mean(0).numpy()
for smokes, rows in X[new].assign(risk=risk, seen=Y[new]["weeks"] < 37).groupby("smokes"):
    print(f"smokes {smokes}: predicted {rows.risk.mean():.1%}, observed {rows.seen.mean():.1%}")
plt.show()
