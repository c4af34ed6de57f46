"""Forecasts of every row by networks that have not seen it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from prerank.distributions import GaussianMixture, affine
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_count
from prerank.models import MixtureNetwork
from prerank.training.data import TrainingData
from prerank.training.fitting import train
from prerank.training.runs import Progress, Run, Settings

__all__ = ["CrossFit", "cross_fit", "draw_folds"]

_FOLDS = 5


def draw_folds(
    n: int,
    *,
    folds: int = _FOLDS,
    repeats: int = 1,
    seed: int = 0,
    groups: object = None,
    time: object = None,
) -> Tensor:
    """Number of the fold of each row, `(repeats, n)`.

    Rows are spread at random, another time for each repeat. Rows of one group share a fold: the
    largest group goes first, each into the fold with the fewest rows. With `time`, a fold is one
    block of neighbouring rows; in repeats after the first the blocks begin elsewhere, and one of
    them holds both ends.

    Args:
        n: number of rows.
        folds: K, at least 3: one is unseen, one stops the training and the rest trains.
        repeats: R.
        seed: of the order of rows.
        groups: name of each row's group, `(n,)`.
        time: time of each row, `(n,)`, or whatever else orders them.

    Example:
        >>> draw_folds(7, folds=3)[0].bincount()
        tensor([3, 2, 2])
    """
    as_count(folds, "folds", minimum=3)
    as_count(repeats, "repeats", minimum=1)
    if groups is not None and time is not None:
        raise InputError("give groups or time, not both")
    if n < 2 * folds:
        raise InputError(f"{n} rows are too few for {folds} folds: each needs at least 2")
    draw = torch.Generator().manual_seed(seed)
    if time is not None:
        order = torch.as_tensor(np.argsort(_labels(time, "time", n), kind="stable"))
        place = torch.empty(n, dtype=torch.int64)
        place[order] = torch.arange(n)
        starts = [int(torch.randint(n, (), generator=draw)) if r else 0 for r in range(repeats)]
        return torch.stack([(place + start) % n * folds // n for start in starts])
    if groups is None:
        orders = [torch.randperm(n, generator=draw) for _ in range(repeats)]
        return torch.stack([order.argsort() % folds for order in orders])
    _, member = np.unique(_labels(groups, "groups", n).astype(str), return_inverse=True)
    group = torch.as_tensor(member)
    sizes = group.bincount()
    if len(sizes) < folds:
        raise InputError(f"groups has {len(sizes)} groups, fewer than the {folds} folds")
    return torch.stack([_spread(sizes, folds, draw)[group] for _ in range(repeats)])


def _labels(values: object, name: str, n: int) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    labels = np.asarray(values)
    if labels.shape != (n,):
        raise ShapeError(f"{name} has shape {labels.shape}, but there are {n} rows")
    if not {"None", "nan", "NaT", "<NA>"}.isdisjoint(map(str, labels.tolist())):
        raise InputError(f"{name} has missing values: give one for every row")
    return labels


def _spread(sizes: Tensor, folds: int, draw: torch.Generator) -> Tensor:
    """Fold of each group; groups of one size come in random order."""
    order = torch.randperm(len(sizes), generator=draw)
    order = order[sizes[order].argsort(descending=True, stable=True)]
    filled, fold = torch.zeros(folds, dtype=torch.int64), torch.empty_like(sizes)
    for group in order.tolist():
        least = int(filled.argmin())
        fold[group] = least
        filled[least] += sizes[group]
    return fold


@dataclass(frozen=True)
class CrossFit:
    """Networks of R repeats of K folds, trained in one stack.

    Attributes:
        network: their form.
        data: a split for each network; split `r K + k` leaves fold k of repeat r unseen.
        theta: parameters `(R K, P)`.
        folds: fold of each row, `(R, N)`.
    """

    network: MixtureNetwork
    data: TrainingData
    theta: Tensor
    folds: Tensor

    @property
    def members(self) -> list[int]:
        """Numbers of the R networks that make the final predictor: one from each repeat.

        As many networks, trained on as many rows, as in the forecasts of `unseen`.
        """
        count = len(self.theta) // len(self.folds)
        return [r * count + r % count for r in range(len(self.folds))]

    def unseen(self) -> GaussianMixture:
        """Forecast of each row by the R networks that have not seen it, in original units."""
        count, n = len(self.theta) // len(self.folds), self.folds.shape[1]
        parts = []
        for r, fold in enumerate(self.folds):
            rows = [(fold == k).nonzero().squeeze(-1) for k in range(count)]
            pieces = [self._predicted(r * count + k, at) for k, at in enumerate(rows)]
            back = torch.cat(rows).argsort().to(self.theta.device)
            parts.append([torch.cat(values)[back] for values in zip(*pieces, strict=True)])
        logits, loc, scale_tril = (torch.cat(values, 1) for values in zip(*parts, strict=True))
        assert len(logits) == n
        return GaussianMixture(logits, loc, scale_tril, validate_args=False)

    def _predicted(self, split: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Parameters of the forecasts of some rows by one network."""
        inputs = self.data.x[split : split + 1, rows.to(self.data.x.device)]
        with torch.no_grad():
            stack = self.network(self.theta[split : split + 1], inputs)
        scaler = self.data.y_scaler.member(split)
        loc, scale = (part.squeeze(0).to(stack.loc) for part in (scaler.loc, scaler.scale))
        dist = affine(stack, loc, scale)
        assert isinstance(dist, GaussianMixture)
        return dist.logits[0], dist.loc[0], dist.scale_tril[0]


def cross_fit(
    network: MixtureNetwork,
    x: object,
    y: object,
    *,
    folds: Tensor,
    seed: int = 0,
    settings: Settings | None = None,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[Progress], None] | None = None,
) -> CrossFit:
    """Train one network for each fold of each repeat.

    Fold k is unseen, fold k + 1 stops the training and the others train. Splits have equally many
    rows: the few that are too many are left out at random.

    Args:
        network: what to train.
        x: inputs `(N, L)`.
        y: targets `(N, D)`.
        folds: of `draw_folds`.
        seed: of the initial weights, batches and the rows that are left out.
        settings: of the training.
        device: where to train.
        on_epoch: is told the progress.

    Example:
        >>> from prerank.datasets import AR1Regression
        >>> x, y = AR1Regression(dim=2).sample(120, generator=0)
        >>> network = MixtureNetwork(x.shape[1], 2, 1, (8,))
        >>> fitted = cross_fit(
        ...     network, x, y, folds=draw_folds(120, repeats=2), settings=Settings(max_epochs=1)
        ... )
        >>> fitted.unseen().logits.shape, fitted.members
        (torch.Size([120, 2]), [0, 6])
    """
    count = int(folds.max()) + 1
    draw = torch.Generator().manual_seed(seed)
    n = folds.shape[1]
    splits = []
    for fold in folds:
        order = torch.randperm(n, generator=draw)
        number = fold[order]
        for k in range(count):
            stops = number == (k + 1) % count
            splits.append((order[~stops & (number != k)], order[stops]))
    sizes = [min(len(split[part]) for split in splits) for part in (0, 1)]
    equal = [(train_rows[: sizes[0]], stop_rows[: sizes[1]]) for train_rows, stop_rows in splits]
    data = TrainingData.build(x, y, equal, device=device)
    runs = [Run(seed + split, split) for split in range(len(splits))]
    result = train(network, data, runs, settings=settings or Settings(), on_epoch=on_epoch)
    return CrossFit(network, data, result.theta, folds)
