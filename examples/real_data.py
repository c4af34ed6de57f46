"""Fit a calibrated regressor to a dataset that comes with scikit-learn, and see what changed.

Four measurements of breast tumours at their worst are predicted jointly from four of their means.
One Gaussian has to compromise there: the targets are skewed. The network is trained without the
penalty first and then with it, and both are judged on rows that neither has seen.
Run it with a folder for the picture: python real_data.py .
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure
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

found = {}
for name, fitted in {"before": model.without_penalty(), "after": model}.items():
    found[name] = fitted.diagnose(x_test, y_test)
    rows = found[name].table.query("component == 'all'")
    print(f"{name} the penalty, {len(x_test)} held-out rows")
    print(rows[["prerank", "excess", "p_holm"]].round(4).to_string(index=False))
    print(f"energy score {-fitted.score(x_test, y_test):.4f}", end="\n\n")
print(found["before"].verdict().headline)
print(found["after"].verdict().headline)

shown = ("scale", "hdr")
grid = ReliabilityGrid(
    {
        name: [display for display in diagnosis.displays() if display.label in shown]
        for name, diagnosis in found.items()
    }
)
figure = Figure(figsize=grid.size, layout="constrained")
grid.plot(figure)
figure.savefig(Path(sys.argv[1]) / "real_data.png", dpi=120)
