"""Which rows train, validate, calibrate and test."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.inputs import as_count

__all__ = ["PUBLISHED_SEEDS", "Split", "published_split"]

PUBLISHED_SEEDS = (0, 42, 866, 12, 4)
"""Seeds of the published runs: one split and one training each."""

_SHARES = (0.4, 0.1, 0.3, 0.2)  # train, validation, calibration, test
_CALIBRATION_CAP = 2048


@dataclass(frozen=True)
class Split:
    """Row numbers of the four parts, each a vector of int64."""

    train: Tensor
    validation: Tensor
    calibration: Tensor
    test: Tensor


def published_split(n: int, seed: int) -> Split:
    """Split n rows as the published runs did.

    Shares of 40, 10, 30 and 20 % for training, validation, calibration and test. The calibration
    part is capped at 2048 rows and the surplus shared equally among the other three; sizes are
    truncated and what remains goes to the test part. Rows are permuted by torch's generator.

    Example:
        >>> split = published_split(10_000, seed=0)
        >>> len(split.train), len(split.validation), len(split.calibration), len(split.test)
        (4317, 1317, 2048, 2318)
    """
    as_count(n, "n", minimum=1)
    surplus = max(0.0, _SHARES[2] - _CALIBRATION_CAP / n) / 3
    train, validation = (int((share + surplus) * n) for share in _SHARES[:2])
    calibration = min(int(_SHARES[2] * n), _CALIBRATION_CAP)
    test = n - train - validation - calibration
    if min(train, validation, test) < 1:
        raise InputError(f"n = {n} rows are too few to split into four parts")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return Split(*order.split([train, validation, calibration, test]))
