"""Saving and loading fitted models without pickle: weights in safetensors, the rest in JSON."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from functools import partial
from itertools import zip_longest
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prerank.distributions import Rounding, affine, draw
from prerank.errors import InputError
from prerank.estimators.bounds import plain_bounds
from prerank.estimators.model_folder import (
    SETTINGS,
    check_saving_place,
    settings_digest,
    settings_of,
    sha256_of,
    steady,
    stored_name,
    sweep,
)
from prerank.estimators.saved_encoding import encoder_settings, restore_encoder, texts
from prerank.estimators.saved_settings import check_settings
from prerank.files import (
    FileLock,
    check_json,
    check_within,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
    writing,
)
from prerank.files.folders import LOCK
from prerank.inputs import as_count
from prerank.recalibration import CalibrationHead
from prerank.training.data import Scaler
from prerank.training.selection import Judgement, Selection, Skipped

__all__ = ["read_model", "save_model"]

FORMAT = 2
_DRAWS = 8  # of the forecasts that are looked at
_ABOUT = {"format": str(FORMAT)}
_READ = (1, FORMAT)  # format 1 has one network and no head
_SCALERS = {"x": "x_scaler_", "y": "y_scaler_"}
_FACTS: dict[str, Callable[[Any], Any]] = {  # attributes of the model, with a _ behind the name
    "strength": float,
    "flat_target": bool,
    "n_outputs": int,
    "n_features_in": int,
    "named_targets": bool,
}
_HEAD_FACTS = ("head_rows", "folds")


def save_model(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to a folder.

    Weights and head are named by the hash of their bytes, so that a file of an older model is never
    changed. `model.json`, which holds these names, is written last: an interrupted save leaves the
    model that was there before. A lock keeps two savers apart.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    folder = Path(path)
    parameters = model.get_params(deep=False)
    if not isinstance(parameters["preranks"], str | None):
        parameters["preranks"] = _as_text(model)
    if not isinstance(parameters["random_state"], int | np.integer):
        parameters["random_state"] = None  # a generator's state is not part of the model
    parameters["hidden"] = [int(width) for width in parameters["hidden"]]
    parameters["bounds"] = plain_bounds(parameters["bounds"])
    tensors = {"theta": model.theta_, "target_scales": model.target_scales_}
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
        **{name: getattr(model, f"{name}_") for name in (*_FACTS, *_HEAD_FACTS)},
        "selection": _plain_selection(model.selection_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "target_names": list(model.target_names_),
        **encoder_settings(model.encoder_),
        "rounding": model.rounding_.as_json(),
    }
    check_json(settings)  # before an older model is touched
    try:
        check_settings(settings)
        _check_forecast(model, "it has")
    except ValueError as error:
        raise InputError(f"this model could not be loaded again: {error}") from error
    with writing(folder):
        check_saving_place(folder)
        with FileLock(folder / LOCK, wait=True):
            before = settings_of(folder)
            try:
                parts = [_store(folder, partial(write_tensors, tensors=tensors, about=_ABOUT))]
                if model.head_ is not None:
                    parts.append(_store(folder, model.head_.save))
                for key, file in zip_longest(("weights", "head"), parts):
                    settings |= {key: file and file.name, f"{key}_sha256": file and sha256_of(file)}
                settings["sha256"] = settings_digest(settings)
                write_json(folder / SETTINGS, settings)
            finally:  # an interrupt may come when all is done, and deletes nothing then
                sweep(folder, before)


def _store(folder: Path, write: Callable[[Path], object]) -> Path:
    """Write a part of a model, and name it by the hash of its bytes."""
    written = folder / f".{secrets.token_hex(8)}.part"
    try:
        write(written)
        return written.replace(folder / stored_name(written))
    finally:
        written.unlink(missing_ok=True)


def read_model(path: str | PathLike[str], kinds: Iterable[Any]) -> Any:
    """Read a model that `save_model` wrote; one that was changed or is not complete is refused.

    Args:
        path: of the folder.
        kinds: classes of regressors, one of which the model is of.
    """
    folder = Path(path)
    return steady(folder, lambda: _read(folder, kinds))


def _read(folder: Path, kinds: Iterable[Any]) -> Any:
    settings = read_json(check_within(folder / SETTINGS, folder))
    version = settings.get("format") if isinstance(settings, dict) else None
    if version not in _READ:
        raise InputError(
            f"{folder} has model format {version!r}, but this version of prerank reads {FORMAT} "
            "and older: use the version that wrote it"
        )
    if settings.pop("sha256", None) != settings_digest(settings):
        raise InputError(f"{folder / SETTINGS} does not match the hash in it: the file was changed")
    tensors, _ = read_tensors(_part_of(folder, settings, "weights"))
    head = None if settings.get("head") is None else _part_of(folder, settings, "head")
    try:
        model = _restore(settings, tensors, {kind.__name__: kind for kind in kinds})
        model.head_ = None
        _check_forecast(model, "the weights have")
        if head is not None:
            model.head_ = CalibrationHead.load(head)
            _check_forecast(model, "the head has")
        return model
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error.__cause__, ImportError):
            raise  # it says what to install
        raise InputError(f"{folder / SETTINGS} is not a complete model: {error!r}") from error


def _part_of(folder: Path, settings: dict[str, Any], name: str) -> Path:
    """The file of the weights or of the head, if it is the one that was saved."""
    path = check_within(folder / Path(str(settings.get(name))).name, folder)
    if not path.is_file():
        raise InputError(f"{folder} has no {path.name}: the model is incomplete")
    if sha256_of(path) != settings.get(f"{name}_sha256"):
        raise InputError(
            f"{path} does not match the hash in {SETTINGS}: the file was changed or belongs to "
            "another model"
        )
    return path


def _restore(
    settings: dict[str, Any], tensors: dict[str, torch.Tensor], kinds: dict[str, Any]
) -> Any:
    if settings["class"] not in kinds:
        raise ValueError(f"unknown class {settings['class']!r}")
    check_settings(settings)
    old, network = settings["format"] == 1, settings["network"]
    parameters = _newer(settings["parameters"]) if old else settings["parameters"]
    hidden, bounds = tuple(parameters["hidden"]), plain_bounds(parameters.get("bounds"))
    model = kinds[settings["class"]](**{**parameters, "hidden": hidden, "bounds": bounds})
    model.network_ = model.network_class(**{**network, "hidden": tuple(network["hidden"])})
    members = as_count(parameters["members"], "members", minimum=1)
    model.theta_ = _numbers(tensors, "theta", (members, model.network_.n_parameters))
    widths = {"x": model.network_.n_inputs, "y": model.network_.n_targets}
    for key, attribute in _SCALERS.items():
        names = [part.name for part in fields(Scaler)]
        stack = 1 if old else len(tensors[f"{key}.loc"])  # one scaler for all members, or one each
        if stack not in (1, members):
            raise ValueError(f"{stack} scalers for {members} members")
        shape = (1, widths[key]) if old else (stack, 1, widths[key])
        parts = {
            name: _numbers(tensors, f"{key}.{name}", shape).reshape(stack, 1, -1) for name in names
        }
        variance = parts["scale"].double().square()
        if not ((parts["scale"] > 0) & (variance > 0) & variance.isfinite()).all():
            raise ValueError(f"{key}.scale is not positive, or has no square")
        if not (parts["low"] <= parts["high"]).all():
            raise ValueError(f"{key}.low lies above {key}.high")
        setattr(model, attribute, Scaler(**parts))
    for name, kind in _FACTS.items():
        setattr(model, f"{name}_", kind(settings[name]))
    for name in _HEAD_FACTS:
        setattr(model, f"{name}_", 0 if old else int(settings[name]))
    model.selection_ = _restore_selection(settings["selection"])
    if settings["feature_names_in"] is not None:
        model.feature_names_in_ = np.array(texts(settings["feature_names_in"]), dtype=object)
    model.target_names_ = texts(settings["target_names"])
    rounding = settings.get("rounding", [None] * widths["y"])
    model.rounding_ = Rounding.from_json(rounding)
    model.target_scales_ = model.y_scaler_.scale[0, 0]
    if model.rounding_:
        model.target_scales_ = _numbers(tensors, "target_scales", (widths["y"],))
        if not (model.target_scales_ > 0).all():
            raise ValueError("target_scales are not positive")
    model.encoder_ = restore_encoder(settings)
    columns = model.network_.n_inputs if model.encoder_ is None else len(model.encoder_.levels)
    _check_sizes(model, columns)
    return model


def _newer(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a model of format 1: its network was penalised, or nothing was."""
    if parameters["strength"] == 0:
        return {**parameters, "members": 1, "method": "none", "preranks": None}
    return {**parameters, "members": 1, "method": "network"}


def _check_forecast(model: Any, what: str) -> None:
    """Refuse a model whose forecast has no finite densities, or samples without squares.

    For the mean of all inputs, where what the first layer multiplies is 0, and for the smallest and
    the largest ones.
    """
    scaler = model.x_scaler_
    rows = torch.cat([torch.zeros_like(scaler.low), scaler.low, scaler.high], -2).double()
    try:
        dist = model._distribution(rows)
        points = draw(dist, _DRAWS, generator=0).points
        density = affine(dist, *model._units).log_prob(model._units[0] + model._units[1] * points)
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"{what} parameters that do not fit the network: {error}") from error
    if not bool(points.float().square().isfinite().all() and density.isfinite().all()):
        raise ValueError(f"{what} parameters that give no finite forecast")


def _numbers(tensors: dict[str, torch.Tensor], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of the file that holds what the model needs."""
    tensor = tensors[name]
    if tensor.dtype not in (torch.float32, torch.float64) or tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}")
    if not tensor.isfinite().all():
        raise ValueError(f"{name} is not finite")
    return tensor


def _check_sizes(model: Any, columns: int) -> None:
    """Refuse numbers that do not fit the network, before rows of their size are asked for."""
    names = getattr(model, "feature_names_in_", None)
    sizes = {model.n_features_in_, columns, columns if names is None else len(names)}
    outputs = {model.n_outputs_, model.network_.n_targets, len(model.target_names_)}
    outputs.add(len(model.rounding_.cells))
    if model.flat_target_:
        outputs.add(1)
    if len(sizes) > 1 or len(outputs) > 1:
        raise ValueError(f"numbers of inputs {sorted(sizes)}, of targets {sorted(outputs)}")
    if model.encoder_ is not None:
        encoded = model.encoder_.width
        if encoded != model.network_.n_inputs:
            raise ValueError(f"{encoded} encoded inputs for a network of {model.network_.n_inputs}")


def _restore_selection(stored: dict[str, Any] | None) -> Selection | None:
    if stored is None:
        return None
    trace: list[dict[str, Any]] = [
        {name: float(v) if isinstance(v, str) else v for name, v in row.items()}
        for row in stored["trace"]
    ]
    skipped = tuple(Skipped(**row) for row in stored.get("skipped", ()))
    judged = tuple(Judgement(**row) for row in trace)
    return Selection(**{**stored, "trace": judged, "skipped": skipped})


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
