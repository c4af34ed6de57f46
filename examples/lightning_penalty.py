"""A calibration penalty in the training step of a LightningModule.

The network predicts two targets as independent normals, though their errors are log-normal and move
together. The likelihood alone leaves its predictions miscalibrated; the penalty is one more term in
the loss. Run it with `python examples/lightning_penalty.py` where lightning is installed.
"""

import lightning
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal
from torch.utils.data import DataLoader, TensorDataset

import prerank


class Regressor(lightning.LightningModule):
    """Two targets from one input, trained by likelihood and calibration.

    Args:
        strength: how much the penalty counts.
        preranks: what is to be calibrated.
    """

    def __init__(self, *, strength: float = 10.0, preranks: str = "marginal+hdr") -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 4))
        self.penalty = prerank.CalibrationPenalty(preranks)
        # Collects PITs over the batches, and computes the error once, at the end of an epoch.
        self.error = prerank.ProjectedCalibrationError(preranks)
        self.strength = strength

    def forward(self, x: Tensor) -> Distribution:
        """The predictive distribution of each row, `event_shape (2,)`."""
        loc, log_scale = self.network(x).chunk(2, -1)
        return Independent(Normal(loc, log_scale.exp()), 1)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Negative log-likelihood plus the penalty."""
        x, y = batch
        dist = self(x)
        likelihood = prerank.nll(dist, y).mean()
        penalty = self.penalty(dist, y)
        self.log_dict({"nll": likelihood, "penalty": penalty})
        return likelihood + self.strength * penalty

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Collect the PITs of the batch."""
        x, y = batch
        self.error.update(self(x), y)

    def on_validation_epoch_end(self) -> None:
        """The error of the whole validation set: not a mean over batches."""
        self.log("validation_pce", self.error.compute().mean())
        self.error.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def skewed(rows: int, seed: int) -> TensorDataset:
    """Log-normal errors about a line, dependent on each other."""
    g = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(rows, 1, generator=g) - 1
    one, two = torch.randn(2, rows, 1, generator=g)
    errors = torch.cat([one, 0.6 * one + 0.8 * two], -1).exp()
    return TensorDataset(x, x * torch.tensor([1.0, -1.0]) + 0.4 * errors)


def fit(strength: float, *, epochs: int = 20) -> float:
    """Train with a strength, and return the calibration error on new rows."""
    lightning.seed_everything(0, verbose=False)
    model = Regressor(strength=strength)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train = DataLoader(skewed(1024, seed=1), batch_size=256, shuffle=True)
    trainer.fit(model, train, DataLoader(skewed(1000, seed=2), batch_size=250))
    return float(trainer.callback_metrics["validation_pce"])


if __name__ == "__main__":
    print(f"PCE without the penalty {fit(0.0):.3f}, with it {fit(10.0):.3f}")
    print(f"(a perfect predictor scores {prerank.pce_floor(n=1000):.3f})")
