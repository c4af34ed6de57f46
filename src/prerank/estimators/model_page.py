"""What a fitted model's page shows: its calibration on rows that it has not seen."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from prerank.diagnosis import Diagnosis
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.estimators.base import JointRegressor
from prerank.report import CornerDisplay
from prerank.report.html import Page
from prerank.report.wording import joined_names
from prerank.scores import energy_score

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fit_page"]

_SHOWN_SAMPLES = 500


def fit_page(
    model: JointRegressor,
    x: "pd.DataFrame",
    y: "pd.DataFrame",
    *,
    title: str,
    settings: Mapping[str, str] | None = None,
) -> tuple[Page, Diagnosis]:
    """Diagnose a fitted model on held-out rows, before and after the penalty.

    Args:
        model: as `fit` left it.
        x: inputs of rows that were not used in `fit`.
        y: their targets.
        title: of the page.
        settings: what else to state at the end.

    Returns:
        The page, and the diagnosis that it shows.
    """
    diagnosis = model.diagnose(x, y)
    before = model.without_penalty().diagnose(x, y) if model.strength_ else None
    parameter, name = model.own_parameter
    stated = {
        "penalty": str(model.preranks),
        "strength": f"{model.strength_:g}",
        name: str(getattr(model, parameter)),
        "budget": f"{model.budget:.0%}",
        "energy score": f"{-model.score(x, y):.4f} (in standard deviations of the targets)",
        "inputs": joined_names(map(str, x.columns)),
        "targets": joined_names(model.target_names_),
    }
    page = diagnosis_page(
        diagnosis,
        title=title,
        before=before,
        selection=model.selection_,
        examples=_examples(model, x, y) if model.n_outputs_ > 1 else (),
        settings={**(settings or {}), **stated},
    )
    return page, diagnosis


def _examples(
    model: JointRegressor, x: "pd.DataFrame", y: "pd.DataFrame"
) -> tuple[CornerDisplay, ...]:
    """A prediction of middling quality, and the worst."""
    observed = torch.from_numpy(y.to_numpy(dtype="float64", copy=True))
    order = energy_score(model.predict_dist(x), observed, generator=0).argsort()
    return tuple(
        CornerDisplay(
            model.sample(x.iloc[[row]], _SHOWN_SAMPLES, random_state=0)[:, 0],
            observed[row],
            model.target_names_,
        )
        for row in (int(order[len(order) // 2]), int(order[-1]))
    )
