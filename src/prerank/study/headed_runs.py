"""Runs with a calibration head behind them, which is fitted to rows that training did not use."""

import time
from dataclasses import dataclass
from hashlib import sha256

from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import InputError
from prerank.models import MixtureNetwork
from prerank.recalibration import CalibrationHead, Change
from prerank.recalibration.changed_forecasts import changed_forecast
from prerank.training import Checkpoint, Interrupted, Run, TrainingData
from prerank.training.heads import fit_head
from prerank.training.state import CheckpointStore

__all__ = ["HeadedNetwork"]


@dataclass(frozen=True)
class HeadedNetwork:
    """The network of one run, whose forecasts a head changes.

    Attributes:
        network: what was trained.
        change: what the head changes.

    Example:
        >>> import torch
        >>> from prerank.datasets import OutlierRegression
        >>> x, y = OutlierRegression(dim=2).sample(400, generator=0)
        >>> rows = torch.arange(400)
        >>> data = TrainingData.build(x, y, [(rows[:100], rows[100:])])
        >>> network = MixtureNetwork(x.shape[1], 2, 1, (4,))
        >>> theta = network.initial(0)[None]
        >>> headed = HeadedNetwork.fit(network, data, theta, Run(0), rows[100:])
        >>> headed(theta.float(), data.x[:, :3]).batch_shape, headed.change == headed.change
        (torch.Size([1, 3]), True)
    """

    network: MixtureNetwork
    change: Change

    @classmethod
    def fit(
        cls,
        network: MixtureNetwork,
        data: TrainingData,
        theta: Tensor,
        run: Run,
        unseen: Tensor,
        checkpoint: Checkpoint | None = None,
    ) -> "HeadedNetwork":
        """Fit a head with the seed of a run, unless a checkpoint has it.

        Args:
            network: what was trained.
            data: its rows.
            theta: parameters of the run, `(1, P)`.
            run: as it was trained.
            unseen: rows that it was not fitted to.
            checkpoint: keeps the head until the checkpoint is dropped.

        Raises:
            Interrupted: when time is up, before a fit starts.
        """
        store = None if checkpoint is None else _part(checkpoint, theta, run)
        known = None if store is None else _kept(store)
        if known is not None:
            return cls(network, known)
        if checkpoint is not None and time.monotonic() >= checkpoint.until:
            raise Interrupted("time is up: the heads of earlier runs are kept")
        head = CalibrationHead(seed=run.seed)
        fit_head(head, network, data, theta, [run], [unseen.cpu()])
        if store is not None:
            store.save(head.change_._asdict(), {})
        return cls(network, head.change_)

    @property
    def n_parameters(self) -> int:
        """Those of the network."""
        return self.network.n_parameters

    @property
    def stackable(self) -> bool:
        """The change is that of one run."""
        return False

    def initial(self, seed: int) -> Tensor:
        """Those of the network."""
        return self.network.initial(seed)

    def __call__(self, theta: Tensor, x: Tensor) -> Distribution:
        """Predict with parameters `(1, P)` for inputs `(1, B, L)`, and change the forecasts."""
        return changed_forecast(self.network(theta, x), self.change, seed=0)


def _part(checkpoint: Checkpoint, theta: Tensor, run: Run) -> CheckpointStore:
    """The store of one head; other parameters have another one."""
    origin = sha256(theta.cpu().numpy().tobytes()).hexdigest()[:12]
    return checkpoint.store.part(f"head-{run.seed}-{origin}")


def _kept(store: CheckpointStore) -> Change | None:
    """The change that a store has; None where there is none, or a damaged one."""
    try:
        found = store.load()
        return None if found is None else Change(**found[0])
    except (InputError, TypeError):
        store.discard()
        return None
