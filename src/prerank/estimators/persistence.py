"""Saving and loading fitted models without pickle: weights in safetensors, the rest in JSON."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prerank.errors import InputError
from prerank.files import (
    check_json,
    check_place,
    check_within,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
    writing,
)
from prerank.files.encoding import TableEncoder
from prerank.training.data import Scaler
from prerank.training.selection import Judgement, Selection

__all__ = ["REPORT", "check_model_folder", "read_model", "save_model"]

FORMAT = 1
REPORT = "report.html"
"""Name of the page that may lie beside a model."""

_SETTINGS = "model.json"
_OF_A_MODEL = re.compile(rf"{re.escape(_SETTINGS)}|{re.escape(REPORT)}|[0-9a-f]+\.safetensors")
_SHOWN_FILES = 3
_SCALERS = {"x": "x_scaler_", "y": "y_scaler_"}
_FACTS: dict[str, Callable[[Any], Any]] = {  # attributes of the model, with a _ behind the name
    "strength": float,
    "flat_target": bool,
    "n_outputs": int,
    "n_features_in": int,
    "named_targets": bool,
}


def save_model(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to a folder.

    The weights get a name of their own, and `model.json`, which holds that name and their hash, is
    written last: an interrupted save leaves the model that was there before.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    folder = Path(path)
    parameters = model.get_params(deep=False)
    if not isinstance(parameters["preranks"], str):
        parameters["preranks"] = _as_text(model)
    if not isinstance(parameters["random_state"], int | np.integer):
        parameters["random_state"] = None  # a generator's state is not part of the model
    parameters["hidden"] = [int(width) for width in parameters["hidden"]]
    tensors = {"theta": model.theta_}
    for key, attribute in _SCALERS.items():
        for part in fields(Scaler):
            tensors[f"{key}.{part.name}"] = getattr(getattr(model, attribute), part.name)
    names = getattr(model, "feature_names_in_", None)
    settings = {
        "format": FORMAT,
        "class": type(model).__name__,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "network": {
            **{name: _plain(value) for name, value in asdict(model.network_).items()},
            "hidden": parameters["hidden"],
        },
        **{name: getattr(model, f"{name}_") for name in _FACTS},
        "selection": _plain_selection(model.selection_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "target_names": list(model.target_names_),
        "levels": None if model.encoder_ is None else model.encoder_.levels,
    }
    check_json(settings)  # before an older model is touched
    name = hashlib.sha256(model.theta_.contiguous().numpy().tobytes()).hexdigest()[:16]
    weights = write_tensors(folder / f"{name}.safetensors", tensors, {"format": str(FORMAT)})
    settings |= {"weights": weights.name, "weights_sha256": _sha256(weights)}
    write_json(folder / _SETTINGS, {**settings, "sha256": _digest(settings)})
    for older in folder.glob("[0-9a-f]*.safetensors"):
        if older != weights:
            older.unlink()


def read_model(path: str | PathLike[str], kinds: Iterable[Any]) -> Any:
    """Read a model that `save_model` wrote; one that was changed or is not complete is refused.

    Args:
        path: of the folder.
        kinds: classes of regressors, one of which the model is of.
    """
    folder = Path(path)
    settings = read_json(check_within(folder / _SETTINGS, folder))
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        version = settings.get("format") if isinstance(settings, dict) else None
        raise InputError(
            f"{folder} has model format {version!r}, but this version of prerank reads {FORMAT}: "
            "use the version that wrote it"
        )
    if settings.pop("sha256", None) != _digest(settings):
        raise InputError(
            f"{folder / _SETTINGS} does not match the hash in it: the file was changed"
        )
    weights = check_within(folder / Path(str(settings.get("weights"))).name, folder)
    if not weights.is_file():
        raise InputError(f"{folder} has no {weights.name}: the model is incomplete")
    if _sha256(weights) != settings.get("weights_sha256"):
        raise InputError(
            f"{weights} does not match the hash in {_SETTINGS}: the file was changed or belongs to "
            "another model"
        )
    tensors, _ = read_tensors(weights)
    try:
        return _restore(settings, tensors, {kind.__name__: kind for kind in kinds})
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error.__cause__, ImportError):
            raise  # it says what to install
        raise InputError(f"{folder / _SETTINGS} is not a complete model: {error!r}") from error


def check_model_folder(path: str | PathLike[str], *, replace: bool = False) -> None:
    """Refuse a folder for a new model that is there, or cannot be written.

    Args:
        path: of the folder.
        replace: whether it may be there, if it holds a model and its report and nothing else.
    """
    out = Path(path)
    with writing(out):
        if not out.exists():
            check_place(out.resolve())
            return
        if not replace:
            raise InputError(
                f"{out} is already there: choose another folder, or replace it (--force)"
            )
        others = sorted(file.name for file in out.iterdir() if not _OF_A_MODEL.fullmatch(file.name))
        if others:
            named = ", ".join(others[:_SHOWN_FILES])
            more = ", ..." if len(others) > _SHOWN_FILES else ""
            raise InputError(
                f"{out} holds something else than a model ({named}{more}): it is not replaced"
            )
        if any(out.iterdir()) and not _is_model(out / _SETTINGS):
            raise InputError(f"{out} holds no model of prerank's: it is not replaced")
        check_place(out.resolve())


def _is_model(settings: Path) -> bool:
    """Whether a file is `model.json` of a model, if not necessarily a sound one."""
    try:
        content = read_json(settings)
    except InputError:
        return False
    return isinstance(content, dict) and {"format", "class", "weights"} <= set(content)


def _restore(
    settings: dict[str, Any], tensors: dict[str, torch.Tensor], kinds: dict[str, Any]
) -> Any:
    if settings["class"] not in kinds:
        raise ValueError(f"unknown class {settings['class']!r}")
    parameters, network = settings["parameters"], settings["network"]
    model = kinds[settings["class"]](**{**parameters, "hidden": tuple(parameters["hidden"])})
    model.network_ = model.network_class(**{**network, "hidden": tuple(network["hidden"])})
    model.theta_ = _numbers(tensors, "theta", (1, model.network_.n_parameters))
    widths = {"x": model.network_.n_inputs, "y": model.network_.n_targets}
    for key, attribute in _SCALERS.items():
        names = [part.name for part in fields(Scaler)]
        parts = {name: _numbers(tensors, f"{key}.{name}", (1, widths[key])) for name in names}
        if not (parts["scale"] > 0).all():
            raise ValueError(f"{key}.scale is not positive")
        setattr(model, attribute, Scaler(**parts))
    for name, kind in _FACTS.items():
        setattr(model, f"{name}_", kind(settings[name]))
    model.selection_ = _restore_selection(settings["selection"])
    if settings["feature_names_in"] is not None:
        model.feature_names_in_ = np.array(_texts(settings["feature_names_in"]), dtype=object)
    model.target_names_ = _texts(settings["target_names"])
    levels, model.encoder_ = settings["levels"], None
    if levels is not None:
        columns = (None if column is None else _texts(column) for column in levels)
        model.encoder_ = TableEncoder(tuple(columns))
    _check_sizes(model, model.network_.n_inputs if levels is None else len(levels))
    return model


def _numbers(tensors: dict[str, torch.Tensor], name: str, shape: tuple[int, int]) -> torch.Tensor:
    """A tensor of the file that holds what the model needs."""
    tensor = tensors[name]
    if tensor.dtype not in (torch.float32, torch.float64) or tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}")
    if not tensor.isfinite().all():
        raise ValueError(f"{name} is not finite")
    return tensor


def _texts(values: Any) -> tuple[str, ...]:
    """A list of different texts, one at least."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{str(values)[:80]} is no list of texts")
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{str(values)[:80]} is empty, or names something twice")
    return tuple(values)


def _check_sizes(model: Any, columns: int) -> None:
    """Refuse numbers that do not fit the network, before rows of their size are asked for."""
    names = getattr(model, "feature_names_in_", None)
    sizes = {model.n_features_in_, columns, columns if names is None else len(names)}
    outputs = {model.n_outputs_, model.network_.n_targets, len(model.target_names_)}
    if len(sizes) > 1 or len(outputs) > 1:
        raise ValueError(f"numbers of inputs {sorted(sizes)}, of targets {sorted(outputs)}")
    if model.encoder_ is not None:
        encoded = sum(1 if column is None else len(column) for column in model.encoder_.levels)
        if encoded != model.network_.n_inputs:
            raise ValueError(f"{encoded} encoded inputs for a network of {model.network_.n_inputs}")


def _restore_selection(stored: dict[str, Any] | None) -> Selection | None:
    if stored is None:
        return None
    trace: list[dict[str, Any]] = [
        {name: float(v) if isinstance(v, str) else v for name, v in row.items()}
        for row in stored["trace"]
    ]
    return Selection(**{**stored, "trace": tuple(Judgement(**row) for row in trace)})


def _plain_selection(selection: Selection | None) -> dict[str, Any] | None:
    """Numbers of the trace that are not finite become text: JSON has no word for them."""
    if selection is None:
        return None
    stored = asdict(selection)
    trace = [
        {n: str(v) if isinstance(v, float) and not isfinite(v) else v for n, v in row.items()}
        for row in stored["trace"]
    ]
    return {**stored, "trace": trace}


def _plain(value: Any) -> Any:
    """Numbers of numpy and devices of torch, as JSON knows them."""
    if hasattr(value, "item"):
        return value.item()
    return str(value) if isinstance(value, torch.device) else value


def _as_text(model: Any) -> str:
    from prerank.preranks import Custom, Projection, parse

    terms = parse(model.preranks)
    for term in terms:
        if isinstance(term, Custom | Projection):
            raise InputError(
                f"pre-rank {term.label!r} is code and cannot be saved: fit with named pre-ranks"
            )
    return "+".join(term.label for term in terms)


def _digest(settings: dict[str, Any]) -> str:
    """Hash of settings, whatever the order and the spaces that they are written with."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
