"""Settings of a saved model: which values each may have."""

from collections.abc import Callable
from typing import Any

import torch

from prerank.errors import InputError
from prerank.estimators.bounds import plain_bounds
from prerank.inputs import as_count
from prerank.preranks import parse

__all__ = ["check_settings"]

_METHODS = ("head", "network", "none")
_LARGEST = 2.0**96  # of numbers that mean anything as a setting
_MOST = 2**53  # whole numbers up to it are the same in every language that reads JSON


def _whole(minimum: int) -> Callable[[Any], bool]:
    return lambda value: as_count(value, "", minimum=minimum, maximum=_MOST) >= minimum


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _LARGEST


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _or_none(allowed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or allowed(value)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _device(value: Any) -> bool:
    """Whether it is the name of a device: it need not be there."""
    try:
        return isinstance(torch.device(value), torch.device)
    except (RuntimeError, TypeError):
        return False


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGEST


def _judgements(value: Any) -> bool:
    """Rows of a trace: numbers, of which JSON has no word for some, truth values and None."""
    if not (isinstance(value, list) and all(isinstance(row, dict) for row in value)):
        return False
    rest = [(name, v) for row in value for name, v in row.items() if v is not None]
    return all(
        _truth(v) if name in _TRUTHS else _finite(v) or v in ("inf", "-inf", "nan")
        for name, v in rest
    )


_TRUTHS = ("within_budget", "improves", "chosen")
_SELECTION: dict[str, Callable[[Any], bool]] = {
    "strength": _or_none(_number),
    "reason": _text,
    "trace": _judgements,
    "budget": _number,
    "limit": _finite,
    "nll_budget": _or_none(_number),
}
_PARAMETERS: dict[str, Callable[[Any], bool]] = {
    "hidden": lambda v: isinstance(v, list) and all(map(_whole(1), v)),
    "scale_floor": _positive,
    "method": lambda v: v in _METHODS,
    "members": _whole(1),
    "folds": _or_none(_whole(0)),
    "preranks": _or_none(lambda v: isinstance(v, str) and bool(parse(v))),
    "strength": lambda v: v == "auto" or _number(v),
    "budget": _number,
    "nll_budget": _or_none(_number),
    "discrete": lambda v: v == "auto" or v is False,
    "bounds": _or_none(lambda v: bool(plain_bounds(v))),
    "impute": _truth,
    "dates": _truth,
    "max_epochs": _whole(1),
    "patience": _whole(0),
    "batch_size": _whole(1),
    "lr": _positive,
    "device": _or_none(lambda v: _text(v) and _device(v)),
    "random_state": _or_none(_whole(0)),
    "verbose": lambda v: _truth(v) or _whole(0)(v),
    "n_components": _whole(1),
    "bins": _whole(1),
    "n_samples": _whole(2),
}
_FACTS: dict[str, Callable[[Any], bool]] = {
    "strength": _number,
    "flat_target": _truth,
    "named_targets": _truth,
    "n_outputs": _whole(1),
    "n_features_in": _whole(1),
    "head_rows": _whole(0),
    "folds": _whole(0),
}


def check_settings(settings: dict[str, Any]) -> None:
    """Raise where a setting of `model.json` has a type or a value that no model has.

    Args:
        settings: the content of the file; settings that are not there are not looked at.

    Example:
        >>> check_settings({"parameters": {"lr": -1.0}})
        Traceback (most recent call last):
        ValueError: lr is -1.0
    """
    parameters, network = (settings.get(name, {}) for name in ("parameters", "network"))
    selection = settings.get("selection")
    for table, values in (
        (_PARAMETERS, parameters),
        (_PARAMETERS, network),
        (_SELECTION, {} if selection is None else selection),
        (_FACTS, settings),
    ):
        if not isinstance(values, dict):
            raise ValueError(f"{str(values)[:80]} holds no settings")
        for name in table.keys() & values.keys():
            try:
                allowed = table[name](values[name])
            except (InputError, TypeError) as error:
                raise ValueError(f"{name} is {str(values[name])[:80]}") from error
            if not allowed:
                raise ValueError(f"{name} is {str(values[name])[:80]}")
    for name in parameters.keys() & network.keys():
        if parameters[name] != network[name]:
            raise ValueError(
                f"{name} is {parameters[name]}, but the network was made with {network[name]}"
            )
