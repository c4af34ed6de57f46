"""The encoding of a model's inputs, as `model.json` holds it."""

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from prerank.files.date_features import CYCLES, DateFeatures
from prerank.files.encoding import Fill, TableEncoder

__all__ = ["encoder_settings", "restore_encoder", "texts"]


def encoder_settings(encoder: TableEncoder | None) -> dict[str, Any]:
    """Levels of text columns; features of dates and fills by position, where there are some.

    Example:
        >>> encoder_settings(TableEncoder((None, ("mud", "sand")), fills={0: Fill((2.0,), True)}))
        {'levels': (None, ('mud', 'sand')), 'fills': {'0': {'values': (2.0,), 'flagged': True}}}
    """
    if encoder is None:
        return {"levels": None}
    parts: dict[str, Mapping[int, Any]] = {"dates": encoder.dates, "fills": encoder.fills}
    stored = {
        name: {str(position): asdict(one) for position, one in part.items()}
        for name, part in parts.items()
        if part
    }
    return {"levels": encoder.levels, **stored}


def restore_encoder(settings: dict[str, Any]) -> TableEncoder | None:
    """What `encoder_settings` gave; settings that no model has raise an error."""
    if settings["levels"] is None:
        return None
    levels = tuple(None if column is None else texts(column) for column in settings["levels"])
    dates = {
        _position(place, levels): DateFeatures(_finite(part["first"]), _cycles(part["cycles"]))
        for place, part in settings.get("dates", {}).items()
    }
    fills = {
        _position(place, levels): Fill(tuple(map(_finite, part["values"])), _truth(part["flagged"]))
        for place, part in settings.get("fills", {}).items()
    }
    encoder = TableEncoder(levels, dates, fills)
    for position, fill in fills.items():
        if len(fill.values) != encoder.width_of(position):
            raise ValueError(f"{len(fill.values)} values to fill column {position}")
    if any(levels[position] is not None for position in dates):
        raise ValueError("a column is both text and dates")
    return encoder


def texts(values: Any) -> tuple[str, ...]:
    """A list of different texts, one at least."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{str(values)[:80]} is not a list of texts")
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{str(values)[:80]} is empty, or names something twice")
    return tuple(values)


def _position(text: str, columns: tuple[Any, ...]) -> int:
    if text not in map(str, range(len(columns))):
        raise ValueError(f"{text[:80]} is not a position of {len(columns)} columns")
    return int(text)


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not isfinite(value):
        raise ValueError(f"{str(value)[:80]} is not a finite number")
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{str(value)[:80]} is not a truth value")
    return value


def _cycles(values: Any) -> tuple[str, ...]:
    known = tuple(name for name in CYCLES if name in values)
    if list(known) != values:
        raise ValueError(f"{str(values)[:80]} are not known cycles")
    return known
