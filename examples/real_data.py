"""Real data: a regressor with a penalty
========================================

Four measurements of breast tumours at their worst are predicted jointly from four of their means.
The targets are skewed, and one Gaussian has to compromise there. How much of that does a penalty
repair on a small real dataset, which comes with scikit-learn?
"""

# %%
# The network is trained without the penalty first and then with it. Both are judged on rows that
# neither has seen.
import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import prerank
from prerank.report import ReliabilityGrid

table = load_breast_cancer(as_frame=True).data
X = table[["mean texture", "mean smoothness", "mean symmetry", "mean fractal dimension"]]
Y = table[["worst area", "worst compactness", "worst concavity", "worst concave points"]]
x, x_test, y, y_test = train_test_split(X, Y, test_size=1 / 3, random_state=0)

model = prerank.MixtureRegressor(
    n_components=1,
    method="network",
    preranks="marginal+scale+dependency+hdr",
    strength=100.0,
    lr=3e-3,
    device="cpu",
    random_state=0,
)
model.fit(x, y)

# %%
# Before and after
# ----------------
found = {}
for name, fitted in {"before": model.without_penalty(), "after": model}.items():
    found[name] = fitted.diagnose(x_test, y_test)
    rows = found[name].table.query("component == 'all'")
    print(f"{name} the penalty, {len(x_test)} held-out rows")
    print(rows[["prerank", "excess", "p_holm"]].round(4).to_string(index=False))
    print(f"energy score {-fitted.score(x_test, y_test):.4f}", end="\n\n")
print(found["before"].verdict().headline)
print(found["after"].verdict().headline)

# %%
# Before, the spread between the targets (``scale``) and the density (``hdr``) are clearly off. The
# penalty takes away four fifths of both errors. On 190 rows there is no evidence left against
# ``scale``; ``hdr`` still fails. The error of ``marginal`` hardly changes, though the penalty looks
# at it: the targets are skewed, and one Gaussian is not. Pre-ranks that the penalty does not look
# at, such as the principal components here, need not follow. That is one split of a small dataset,
# and the pre-ranks of the penalty were chosen after looking at it: with ``"marginal+scale+hdr"``,
# ``dependency`` was worse after the penalty than before. The results on 14 datasets have seeds and
# standard errors.
shown = ("scale", "hdr")
rows = {name: [one for one in d.displays() if one.label in shown] for name, d in found.items()}
grid = ReliabilityGrid(rows).plot()
plt.show()
