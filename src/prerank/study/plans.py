"""Plans of studies: datasets, variants, seeds and settings, as TOML.

Entries are checked against the annotations of the dataclass and a table of bounds: pydantic would
replace some thirty lines, and need as many for the errors of this package.
"""

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch.distributions import MultivariateNormal

from prerank.datasets import PUBLISHED_SEEDS
from prerank.datasets.collection import check_name
from prerank.defaults import PRESETS
from prerank.errors import InputError, InputTypeError, PrerankError
from prerank.inputs import as_count, as_positive
from prerank.penalty import CalibrationPenalty
from prerank.preranks import parse
from prerank.training import Settings

__all__ = ["HEAD", "NONE", "PRESETS", "Plan"]

NONE = "none"
"""The variant without a penalty."""

HEAD = "head"
"""The variant with a calibration head behind the unpenalised runs; exact protocol only."""

PROTOCOLS = ("exact", "published")
_DEFAULT = Settings(lr=1e-4, batch_size=256, max_epochs=5000)
_SAME = ("lr", "batch_size", "min_steps", "max_epochs", "patience", "min_delta", "fine_tune")
_TRAINING = {name: name for name in _SAME} | {"shift": "holdout_offset"}  # entries, and settings
_LEAST = {"n_samples": 2, "n_components": 1, "n_null": 1, "hidden": 1}
_MOST = 10**6  # of everything that is counted: no machine can do more


@dataclass(frozen=True)
class Plan:
    """A study: every dataset with every variant.

    Attributes:
        name: of the study.
        datasets: by name.
        variants: `"none"`, `"head"` for a calibration head behind the unpenalised runs, or the
            pre-ranks of a penalty, such as `"marginal+hdr"`.
        protocol: `"exact"`: the default penalty, exact calibration of all rows at once, and the
            strength selected under the budget; `"published"`: everything as in the published runs.
        seeds: of splits, initial parameters and noise.
        strengths: to be tried, or `"auto"`; for the published protocol, `"auto"` are those that
            were reported.
        budget: by how much the energy score may worsen.
        n_samples: draws per row.
        tau: sharpness of the comparison with samples.
        n_components: of the mixture.
        hidden: widths of the hidden layers.
        n_null: replicates for p-values of several components.
        training: how to train; the published protocol neither fine-tunes nor shifts.

    Example:
        >>> plan = Plan.preset("quick")
        >>> plan.protocol, plan.variants[0]
        ('exact', 'none')
        >>> Plan.from_toml(plan.to_toml()) == plan
        True
    """

    name: str
    datasets: tuple[str, ...]
    variants: tuple[str, ...]
    protocol: str = "exact"
    seeds: tuple[int, ...] = PUBLISHED_SEEDS
    strengths: tuple[float, ...] | str = "auto"
    budget: float = 0.10
    n_samples: int = 100
    tau: float = 100.0
    n_components: int = 5
    hidden: tuple[int, ...] = (100, 100)
    n_null: int = 1000
    training: Settings = _DEFAULT

    def __post_init__(self) -> None:
        """Check every entry."""
        for name in ("datasets", "variants", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise InputError(f"{name} of a plan must list something, and nothing twice")
        if self.protocol not in PROTOCOLS:
            raise InputError(f"protocol must be one of {PROTOCOLS}, got {self.protocol!r}")
        for name in self.datasets:
            check_name(name)
        for seed in self.seeds:
            if not 0 <= seed < 2**63:
                raise InputError(f"seeds must lie in 0 .. 2**63 - 1, got {seed}")
        self._check_variants()
        self._check_strengths()
        self._check_counts()
        if not self.budget >= 0:
            raise InputError(f"budget must not be negative, got {self.budget!r}")
        as_positive(self.tau, "tau")
        if self.training != replace(
            _DEFAULT, **{name: getattr(self.training, name) for name in _TRAINING.values()}
        ):
            raise InputError(f"training of a plan sets {', '.join(_TRAINING)} and nothing else")

    def _check_variants(self) -> None:
        for variant in self.variants:
            if not variant.isprintable():
                raise InputError(f"variants become names of files, which {variant!r} cannot be")
        if HEAD in self.variants and self.protocol == "published":
            raise InputError("variants: the published protocol has no head, the exact one does")
        spelled = [v if v in (NONE, HEAD) else _spelling(v, self.protocol) for v in self.variants]
        if len(set(spelled)) < len(spelled):
            raise InputError(f"variants of a plan name one twice: {', '.join(self.variants)}")

    def _check_strengths(self) -> None:
        if isinstance(self.strengths, str):
            if self.strengths != "auto":
                raise InputError(f"strengths must be numbers or 'auto', got {self.strengths!r}")
        elif not self.strengths or not all(0 < s < float("inf") for s in self.strengths):
            raise InputError(f"strengths must be positive numbers, got {self.strengths}")
        elif len(set(self.strengths)) < len(self.strengths):
            raise InputError(f"strengths of a plan hold one twice: {self.strengths}")
        elif self.protocol == "published" and len(self.strengths) > 1:
            raise InputError("strengths: the published protocol selects none, give one or 'auto'")

    def _check_counts(self) -> None:
        counts: dict[str, Any] = {"number of seeds": len(self.seeds)}
        counts |= {f"training.{n}": getattr(self.training, n) for n in ("min_steps", "max_epochs")}
        for name, least in _LEAST.items():
            value = getattr(self, name)
            for count in value if isinstance(value, tuple) else (value,):
                counts[name] = max(as_count(count, name, minimum=least), counts.get(name, 0))
        for name, count in counts.items():
            if count > _MOST:
                raise InputError(f"{name} of a plan must be at most {_MOST:,}")

    @classmethod
    def preset(cls, name: str) -> "Plan":
        """One of `PRESETS`."""
        if name not in PRESETS:
            raise InputError(f"no preset {name!r}: there are {', '.join(PRESETS)}")
        file = resources.files("prerank.study") / "presets" / f"{name}.toml"
        return cls.from_toml(file.read_text(encoding="utf-8"))

    @classmethod
    def read(cls, name: str | PathLike[str]) -> "Plan":
        """A preset by its name, or a TOML file."""
        if str(name) in PRESETS:
            return cls.preset(str(name))
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:  # the latter where path or text are none
            raise InputError(
                f"cannot read the plan {path}: {error}. Presets are {', '.join(PRESETS)}"
            ) from error
        try:
            return cls.from_toml(text)
        except PrerankError as error:
            raise type(error)(f"{path}: {error}") from error

    @classmethod
    def from_toml(cls, text: str) -> "Plan":
        """Read a plan; unknown keys raise an error that lists the known ones."""
        try:
            entries = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # or numbers too long, brackets too deep
            raise InputError(f"the plan is not valid TOML: {error}") from error
        return cls._from_entries(entries)

    @classmethod
    def _from_entries(cls, entries: dict[str, Any]) -> "Plan":
        training = entries.pop("training", {})
        if not isinstance(training, dict):
            raise InputTypeError("training must be a table of settings")
        kinds = get_type_hints(cls)
        del kinds["training"]
        values = _converted(entries, kinds, "the plan")
        missing = [name for name in ("name", "datasets", "variants") if name not in values]
        if missing:
            raise InputError(f"the plan has no {', '.join(missing)}")
        kinds = {entry: type(getattr(_DEFAULT, name)) for entry, name in _TRAINING.items()}
        converted = _converted(training, kinds, "[training]")
        changes = {_TRAINING[entry]: value for entry, value in converted.items()}
        return cls(**values, training=replace(_DEFAULT, **changes))

    def changed(self, changes: Mapping[str, str]) -> "Plan":
        """The same plan with other entries, given as TOML: `{"n_samples": "1000"}`.

        Entries of the training have names like `training.lr`.

        Example:
            >>> Plan.preset("quick").changed({"tau": "50.0", "training.lr": "1e-4"}).tau
            50.0
        """
        entries = tomllib.loads(self.to_toml())
        for name, text in changes.items():
            try:
                parsed = tomllib.loads(f"value = {text}")
            except (ValueError, RecursionError) as error:
                raise InputError(f"{name}: {text[:80]!r} is not a TOML value ({error})") from error
            table, _, entry = name.rpartition(".")
            if table not in ("", "training") or name == "training" or len(parsed) > 1:
                raise InputError(f"{name} = {text}: name one entry of a plan, and its value")
            value = parsed["value"]
            (entries["training"] if table else entries)[entry] = value
        return type(self)._from_entries(entries)

    def to_toml(self) -> str:
        """Text that `from_toml` reads."""
        values = dataclasses.asdict(self)
        training = {entry: getattr(self.training, name) for entry, name in _TRAINING.items()}
        del values["training"]
        lines = [f"{name} = {_text(value)}" for name, value in values.items()]
        lines += ["", "[training]", *(f"{name} = {_text(v)}" for name, v in training.items())]
        return "\n".join(lines) + "\n"


def _spelling(variant: str, protocol: str) -> str:
    """One text for all spellings of a variant that can be trained with."""
    terms = parse(variant)
    labels = [term.label for term in terms]
    if len(set(labels)) < len(labels):
        raise InputError(f"variant {variant!r} names a pre-rank twice")
    make = CalibrationPenalty.published if protocol == "published" else CalibrationPenalty
    targets = 32  # enough for every lag and number of components
    probe = MultivariateNormal(torch.zeros(2, targets, requires_grad=True), torch.eye(targets))
    make(terms, n_samples=2)(probe, torch.zeros(2, targets), generator=0)
    return "+".join(labels)


def _converted(entries: dict[str, Any], kinds: dict[str, Any], where: str) -> dict[str, Any]:
    """Entries of a TOML table as the types of their fields."""
    unknown = sorted(entries.keys() - kinds.keys())
    if unknown:
        raise InputError(
            f"{where} has unknown entries {', '.join(unknown)}: known are "
            f"{', '.join(sorted(kinds))}"
        )
    return {name: _as_kind(name, value, kinds[name]) for name, value in entries.items()}


def _as_kind(name: str, value: Any, kind: Any) -> Any:
    """A value as the type of its field: lists become tuples, and integers floats."""
    if isinstance(kind, UnionType):  # of a text and a list
        kind = str if isinstance(value, str) else get_args(kind)[0]
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise InputTypeError(f"{name} must be a list, got {value!r}")
        return tuple(_as_kind(name, entry, get_args(kind)[0]) for entry in value)
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError as error:  # an integer of hundreds of digits
            raise InputError(f"{name} is too large for a number") from error
    if type(value) is not kind:
        raise InputTypeError(f"{name} has the wrong type: {value!r} is not {kind.__name__}")
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(_text(entry) for entry in value)}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)
