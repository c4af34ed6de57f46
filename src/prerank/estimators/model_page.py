"""What a fitted model's page shows: its calibration on rows that it has not seen."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from prerank.defaults import PENALTY_PRERANKS
from prerank.diagnosis import Diagnosis
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.estimators.base import JointRegressor
from prerank.estimators.bounds import bounds_in_words
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
    time: object = None,
) -> tuple[Page, Diagnosis]:
    """Diagnose a fitted model on held-out rows, before and after its calibration.

    Args:
        model: as `fit` left it.
        x: inputs of rows that were not used in `fit`.
        y: their targets.
        title: of the page.
        settings: what else to state at the end.
        time: time of each row, where neighbouring rows may depend on each other.

    Returns:
        The page, and the diagnosis that it shows.
    """
    diagnosis = model.diagnose(x, y, time=time)
    changed = model.head_ is not None or model.strength_
    before = model.without_penalty().diagnose(x, y, time=time) if changed else None
    parameter, name = model.own_parameter
    stated = {
        **_calibration(model),
        "discrete targets": "; ".join(model.rounding_.words(model.target_names_)) or "none",
        "bounds": bounds_in_words(model.bounds) or "none",
        "members": str(model.members),
        name: str(getattr(model, parameter)),
        "energy score": f"{-model.score(x, y):.4f} (in standard deviations of the targets)",
        "inputs": joined_names(map(str, x.columns)),
        **({} if model.encoder_ is None else model.encoder_.words(list(map(str, x.columns)))),
        "targets": joined_names(model.target_names_),
    }
    page = diagnosis_page(
        diagnosis,
        title=title,
        before=before,
        change="the penalty" if model.head_ is None else "the head",
        selection=model.selection_,
        examples=_examples(model, x, y) if model.n_outputs_ > 1 else (),
        settings={**(settings or {}), **stated},
    )
    return page, diagnosis


def _calibration(model: JointRegressor) -> dict[str, str]:
    """The method and what it did, in words."""
    head = model.head_
    if head is not None:
        rows = f"{model.head_rows_:,} rows that its networks were not fitted to"
        folds = f", by cross-fitting in {model.folds_} folds" if model.folds_ else ""
        return {
            "method": "head: a calibration head behind the networks",
            "head fitted to": f"{rows}{folds}",
            "head changes": "; ".join(head.report().splitlines()),
            "penalty": str(head.preranks),
            "strength": f"{model.strength_:g}",
        }
    if model.method != "network":
        return {"method": "none: likelihood alone"}
    limit = "none" if model.nll_budget is None else f"{model.nll_budget:g} nats"
    return {
        "method": "network: a penalty on the network",
        "penalty": str(model.preranks or PENALTY_PRERANKS),
        "strength": f"{model.strength_:g}",
        "budget": f"{model.budget:.0%}",
        "budget of likelihood": limit,
    }


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
