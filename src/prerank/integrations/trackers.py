"""Numbers of a diagnosis for trackers of experiments."""

from typing import Any

from prerank.diagnosis import Diagnosis
from prerank.extras import library

__all__ = ["log_to_mlflow", "log_to_wandb", "tracked_numbers"]


def tracked_numbers(diagnosis: Diagnosis, *, prefix: str = "calibration") -> dict[str, float]:
    r"""Excess of each pre-rank, :math:`\mathrm{PCE} - \mathrm{floor}`, their mean, and p-values.

    Names consist of letters, digits, `_`, `-`, `.` and `/`, which all trackers take.

    Args:
        diagnosis: of one forecast.
        prefix: of the names.

    Returns:
        `PREFIX/excess`, and `PREFIX/LABEL/excess` and `PREFIX/LABEL/p_value` for each pre-rank.
        Weighted samples have no p-values.

    Example:
        >>> import torch, prerank
        >>> from torch.distributions import MultivariateNormal
        >>> dist = MultivariateNormal(torch.zeros(200, 2), torch.eye(2))
        >>> y = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> list(tracked_numbers(prerank.diagnose(dist, y, preranks="scale")))
        ['calibration/excess', 'calibration/scale/excess', 'calibration/scale/p_value']
    """
    rows = diagnosis.by_prerank
    numbers = {f"{prefix}/excess": sum(row.excess for row in rows.values()) / len(rows)}
    for label, row in rows.items():
        name = f"{prefix}/{''.join(c if c.isalnum() or c in '_-.' else '_' for c in label)}"
        numbers[f"{name}/excess"] = float(row.excess)
        if row.p_value == row.p_value:  # not NaN
            numbers[f"{name}/p_value"] = float(row.p_value)
    return numbers


def log_to_mlflow(
    diagnosis: Diagnosis, *, step: int | None = None, prefix: str = "calibration"
) -> None:
    """Log the numbers, the verdict and the table of a diagnosis to the active run of mlflow.

    Args:
        diagnosis: of one forecast.
        step: such as the epoch.
        prefix: of the names.
    """
    mlflow = library("mlflow", "log_to_mlflow")
    mlflow.log_metrics(tracked_numbers(diagnosis, prefix=prefix), step=step)
    mlflow.log_text(str(diagnosis), f"{prefix}{'' if step is None else f'-{step}'}.txt")


def log_to_wandb(
    diagnosis: Diagnosis,
    *,
    step: int | None = None,
    prefix: str = "calibration",
    run: Any = None,
) -> None:
    """Log the numbers and the table of a diagnosis to a run of wandb.

    Args:
        diagnosis: of one forecast.
        step: such as the epoch.
        prefix: of the names.
        run: a `wandb.Run`; by default the active one.
    """
    wandb = library("wandb", "log_to_wandb")
    target: Any = wandb if run is None else run
    values = {f"{prefix}/table": wandb.Table(dataframe=diagnosis.table)}
    target.log({**tracked_numbers(diagnosis, prefix=prefix), **values}, step=step)
