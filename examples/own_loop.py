"""Own loop: calibration as one more term of the loss
=====================================================

The penalty goes into any training loop, with any network and any loss. Is it worth its place?

The data is simulated, with a known truth: three targets have outliers, one row in twenty is drawn
from a distribution that is five times as wide. The network predicts one Gaussian with a full
covariance, so its likelihood widens everything for the sake of the few.
"""

# %%
# Data and network
# ----------------
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.distributions import MultivariateNormal
from torch.nn.functional import softplus

import prerank
from prerank.datasets import OutlierRegression
from prerank.penalty import LevelCounts
from prerank.report import ReliabilityGrid

torch.manual_seed(0)
torch.set_num_threads(1)  # steps this small gain nothing from more
problem = OutlierRegression(dim=3, share=0.05, factor=5.0)
x, y = (part.float() for part in problem.sample(8000, generator=1))
train_rows, other_rows, test_rows = torch.arange(8000).split([3000, 1000, 4000])


class Gaussian(nn.Module):
    """Any module that returns a distribution will do."""

    def __init__(self, inputs: int, targets: int) -> None:
        super().__init__()
        self.rows, self.columns = torch.tril_indices(targets, targets)
        self.targets = targets
        self.body = nn.Sequential(
            nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, targets + len(self.rows))
        )

    def forward(self, inputs: torch.Tensor) -> MultivariateNormal:
        """Mean and Cholesky factor of the covariance."""
        loc, entries = self.body(inputs).split([self.targets, len(self.rows)], -1)
        entries = torch.where(self.rows == self.columns, softplus(entries) + 1e-3, entries)
        factor = entries.new_zeros(*entries.shape[:-1], self.targets, self.targets)
        factor[..., self.rows, self.columns] = entries
        return MultivariateNormal(loc, scale_tril=factor, validate_args=False)


# %%
# Training
# --------
# The penalty measures after every epoch how rows that were not trained on differ from those that
# were, and pulls their PITs to the diagonal.
model = Gaussian(x.shape[1], y.shape[1])
penalty = prerank.CalibrationPenalty("marginal+hdr")


def tally(rows: torch.Tensor) -> LevelCounts:
    """Count the PITs of some rows, with the present weights."""
    return penalty.tally(model(x[rows]), y[rows])


def train(epochs: int, lr: float, strength: float) -> None:
    """Minimise NLL + strength * penalty."""
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        shift = None
        if strength:
            with torch.no_grad():
                shift = penalty.shift(tally(train_rows), tally(other_rows))
        for rows in train_rows[torch.randperm(len(train_rows))].split(250):
            dist = model(x[rows])
            loss = -dist.log_prob(y[rows]).mean()
            if strength:
                loss = loss + strength * penalty(dist, y[rows], shift=shift)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def judge(name: str) -> prerank.Diagnosis:
    """Calibration and accuracy on rows that had no part in the training."""
    with torch.no_grad():
        dist = model(x[test_rows])
    found = prerank.diagnose(dist, y[test_rows], preranks=["marginal", "scale", "hdr"], generator=0)
    excess = found.table.query("component == 'all'").set_index("prerank").excess
    score = prerank.energy_score(dist, y[test_rows], generator=0).mean()
    print(f"{name}: " + ", ".join(f"{k} {v:+.4f}" for k, v in excess.items()), end="")
    print(f" above the floor; energy score {score:.4f}")
    return found


# %%
# Before and after
# ----------------
# The likelihood pays dearly for a few outliers and widens every prediction. The penalty narrows
# them again, and the energy score improves with it. The second part of the
# training starts from the weights of the first. It has a smaller learning rate, and aims at rows
# that the likelihood has not been fitted to.
train(40, lr=3e-3, strength=0.0)
before = judge("before")
train(20, lr=1e-3, strength=30.0)
after = judge("after")

grid = ReliabilityGrid({"before": before.displays(), "after": after.displays()}).plot()
plt.show()
