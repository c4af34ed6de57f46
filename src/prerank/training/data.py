"""Standardised training data on the device, for several splits at once."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.errors import InputError, ShapeError
from prerank.inputs import as_points, check_finite
from prerank.training.runs import Run

__all__ = ["Scaler", "TrainingData", "fingerprint"]


def fingerprint(*tensors: Tensor) -> str:
    """Text that identifies tensors: shapes, types and a hash of all values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return f"{[(tuple(t.shape), t.dtype) for t in tensors]} {digest.hexdigest()}"


@dataclass(frozen=True)
class Scaler:
    """Column means, standard deviations and ranges; constant columns are only centred.

    Attributes:
        loc: `(..., 1, C)`.
        scale: `(..., 1, C)`, positive.
        low: smallest standardised value, `(..., 1, C)`.
        high: largest standardised value, `(..., 1, C)`.
    """

    loc: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def fit(cls, values: Tensor) -> "Scaler":
        """Measure the columns of `(..., N, C)`."""
        loc = values.mean(-2, keepdim=True)
        scale = values.std(-2, correction=0, keepdim=True)
        # Rounding gives a constant column a tiny spread: dividing by it would blow up new values.
        size = values.abs().amax(-2, keepdim=True)
        constant = scale <= 8 * torch.finfo(values.dtype).eps * size
        check_finite(scale, "the standard deviation of a column", "its values are too large")
        scale = torch.where(constant, 1, scale)
        low, high = values.amin(-2, keepdim=True), values.amax(-2, keepdim=True)
        return cls(loc, scale, (low - loc) / scale, (high - loc) / scale)

    def select(self, splits: Sequence[int]) -> "Scaler":
        """The scalers of some splits, on the CPU."""
        parts = (self.loc, self.scale, self.low, self.high)
        return Scaler(*(part[list(splits)].cpu() for part in parts))

    def relative_to(self, other: "Scaler") -> tuple[Tensor, Tensor]:
        """Where the 0 of these units lies in those of `other`, and how large the 1 is there."""
        return (self.loc - other.loc) / other.scale, self.scale / other.scale

    def __call__(self, values: Tensor, *, clip: bool = False) -> Tensor:
        """Standardise; with `clip`, hold values to the range that was seen."""
        standard = (values - self.loc) / self.scale
        return standard.clamp(self.low, self.high) if clip else standard


@dataclass(frozen=True)
class TrainingData:
    """Inputs and targets of U splits, each standardised by its own training rows.

    Attributes:
        x: `(U, N, L)`.
        y: `(U, N, D)`.
        train: row numbers `(U, n_train)`.
        validation: row numbers `(U, n_validation)`.
        x_scaler: of the inputs.
        y_scaler: of the targets.
        spreads: `(R, U, N, D)`, other versions of targets with random parts: each pass over the
            training rows takes the next of them. None where there is only y.
    """

    x: Tensor
    y: Tensor
    train: Tensor
    validation: Tensor
    x_scaler: Scaler
    y_scaler: Scaler
    spreads: Tensor | None = None

    @property
    def signature(self) -> str:
        """Text that identifies the data."""
        others = [] if self.spreads is None else [self.spreads]
        return fingerprint(self.x, self.y, self.train, self.validation, *others)

    def select(self, runs: Sequence[Run], rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of row numbers `(U, n)`, for each run: `(M, n, L)`, `(M, n, D)`."""
        split = torch.tensor([run.split for run in runs], device=self.x.device)
        place = split.unsqueeze(1), rows[split]
        return self.x[place], self.y[place]

    @classmethod
    def build(
        cls,
        x: object,
        y: object,
        splits: Sequence[tuple[Tensor, Tensor]],
        *,
        spreads: Sequence[Tensor] = (),
        clip: bool = True,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> "TrainingData":
        """Standardise once per split and put everything on the device.

        Args:
            x: inputs `(N, L)`.
            y: targets `(N, D)`.
            splits: training and validation rows of each split; equally many in all splits.
            spreads: other versions of y, with new random parts, for training.
            clip: hold inputs to the range of the training rows, column by column. A network
                extrapolates linearly, and one wild input can otherwise predict a spike far away
                from its target.
            dtype: of the standardised values (the statistics are computed in float64).
            device: where to keep them.
        """
        inputs, targets = as_points(x, "x").double(), as_points(y, "y").double()
        if inputs.dim() != 2 or targets.dim() != 2 or len(inputs) != len(targets):
            raise ShapeError(
                f"x must be (N, L) and y (N, D), got {tuple(inputs.shape)} and "
                f"{tuple(targets.shape)}"
            )
        if len({(len(train), len(validation)) for train, validation in splits}) != 1:
            raise InputError("splits must be given, and all of the same sizes")
        train = torch.stack([part for part, _ in splits])
        validation = torch.stack([part for _, part in splits])
        if train.shape[1] < 2 or validation.shape[1] < 2:
            raise InputError(
                f"{train.shape[1]} training and {validation.shape[1]} validation rows are too few"
            )
        x_scaler, y_scaler = Scaler.fit(inputs[train]), Scaler.fit(targets[train])
        standard = y_scaler(targets)
        _check_extremes(standard, targets, dtype)
        return cls(
            x_scaler(inputs, clip=clip).to(device, dtype),
            standard.to(device, dtype),
            train.to(device),
            validation.to(device),
            x_scaler,
            y_scaler,
            torch.stack([y_scaler(part) for part in spreads]).to(device, dtype)
            if spreads
            else None,
        )


def _check_extremes(standard: Tensor, targets: Tensor, dtype: torch.dtype) -> None:
    """Refuse targets whose squares, times the numbers of a fit, would not be finite.

    Args:
        standard: standardised targets `(U, N, D)`.
        targets: as they were given, `(N, D)`.
        dtype: of the training.
    """
    size = standard.abs().amax(0)
    if float(size.max()) < torch.finfo(dtype).max ** 0.4:
        return
    row, column = divmod(int(size.argmax()), size.shape[1])
    raise InputError(
        f"y has the value {float(targets[row, column]):.3g} in row {row} of column {column}, "
        f"{float(size.max()):.0e} standard deviations of the training rows away from their mean: "
        "correct it, leave the row out, or transform this target"
    )
