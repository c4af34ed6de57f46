"""A callback of Lightning: diagnoses in a real training."""

import doctest
import importlib
import pickle

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal
from torch.utils.data import DataLoader, TensorDataset

from adapters.judging import load
from prerank import PrerankError, diagnose
from prerank.integrations import lightning_callback, torchmetric, tracked_numbers

lightning = load("lightning")

# Of lightning, which is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")


class Regressor(lightning.LightningModule):
    """Independent normals; its validation error is a metric of torchmetrics."""

    def __init__(self):
        super().__init__()
        self.network = nn.Linear(1, 4)
        self.error = torchmetric("marginal")

    def forward(self, x):
        loc, log_scale = self.network(x).chunk(2, -1)
        return Independent(Normal(loc, log_scale.exp()), 1)

    def training_step(self, batch, batch_idx):
        return -self(batch[0]).log_prob(batch[1]).mean()

    def validation_step(self, batch, batch_idx):
        self.error.update(self(batch[0]), batch[1])
        self.log("error", self.error)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)  # stays what it is


def rows(n, seed):
    x, y = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed)).split([1, 2], -1)
    return TensorDataset(x, y)


def trained(callback, epochs):
    lightning.seed_everything(0, verbose=False)
    module = Regressor()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    trainer.fit(module, DataLoader(rows(64, 0), 64), DataLoader(rows(300, 1), 128))
    return module, trainer


def test_all_validation_rows_are_diagnosed_and_logged():
    callback = lightning_callback(preranks="marginal+hdr", names=["rain", "wind"], n_null=99)
    assert isinstance(callback, lightning.Callback)
    module, trainer = trained(callback, 1)
    assert callback.diagnosis.n == 300  # without the rows of Lightning's own check before
    assert {"rain", "wind"} < set(callback.diagnosis.table.component)
    x, y = rows(300, 1).tensors
    with torch.no_grad():
        expected = tracked_numbers(diagnose(module(x), y, preranks="marginal+hdr", n_null=99))
    found = {name: float(trainer.callback_metrics[name]) for name in expected}
    name = "calibration/marginal/excess"  # in closed form, so the same number
    assert found[name] == pytest.approx(expected[name], abs=1e-6)
    # The metric of the module has seen the same rows.
    error = callback.diagnosis.by_prerank["marginal"].pce
    assert float(trainer.callback_metrics["error"]) == pytest.approx(error, abs=1e-6)


def test_every_other_epoch_with_another_forecast():
    seen = []

    def forecast(module, batch):
        seen.append(module.current_epoch)
        return module(batch[0]), 2 * batch[1]

    callback = lightning_callback(forecast=forecast, every=2, preranks="marginal", prefix="twice")
    _, trainer = trained(callback, 4)
    assert set(seen) == {1, 3}
    assert "twice/excess" in trainer.callback_metrics


def test_bad_arguments_and_copies():
    with pytest.raises(PrerankError, match="every"):
        lightning_callback(every=0)
    with pytest.raises(PrerankError, match="samples"):
        lightning_callback(scale="samples")
    assert pickle.loads(pickle.dumps(lightning_callback(every=3))).every == 3


def test_example():
    module = importlib.import_module("prerank.integrations.callback_class")
    assert doctest.testmod(module).failed == 0
