"""Diagnose a forecast that is right for every target and wrong for all of them together.

Three targets have a correlation of 0.6. The forecast knows the mean and the spread of each, and
takes them for independent. Run it with a folder for the picture: python wrong_dependence.py .
"""

import sys
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch.distributions import MultivariateNormal

import prerank

n = 2000
torch.manual_seed(0)
correlated = 0.4 * torch.eye(3) + 0.6
observed = MultivariateNormal(torch.zeros(n, 3), correlated).sample()
y = pd.DataFrame(observed.numpy(), columns=["rain", "wind", "temperature"])

forecasts = {
    "independent": MultivariateNormal(torch.zeros(n, 3), torch.eye(3)),
    "correlated": MultivariateNormal(torch.zeros(n, 3), correlated),
}
for name, forecast in forecasts.items():
    diagnosis = prerank.diagnose(forecast, y, generator=0)
    table = diagnosis.table.query("component == 'all'")
    print(f"The {name} forecast")
    print(table[["prerank", "pce", "floor", "p_holm"]].round(4).to_string(index=False))
    print(diagnosis.verdict().headline, end="\n\n")
    if name == "independent":
        figure = Figure(figsize=(12, 3.2), layout="constrained")
        diagnosis.plot(figure)
        figure.savefig(Path(sys.argv[1]) / "wrong_dependence.png", dpi=120)
