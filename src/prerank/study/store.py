"""The folder of a study: one file for each unit of work, complete or absent."""

import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prerank.errors import InputError
from prerank.files import (
    FileLock,
    check_within,
    read_json,
    read_tensors,
    write_atomically,
    write_json,
    write_tensors,
    writing,
)
from prerank.study.engines import Event
from prerank.study.plans import NONE, Plan
from prerank.study.rows import OtherPlanError, Unit, read_result, settings, write_result

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Store", "Unit"]


_AGAIN = "Remove it, and run the study again"
_OTHER = "Put plan.toml back as it was, or choose another folder"
_PARTS = ("plan.toml", "log.jsonl", "results", "base", "checkpoints", "locks", "report")


class Store:
    """Results, checkpoints and locks of a study in a folder.

    A unit is done when its result, or the reason why it does not apply, is there. Files are put in
    place in one step, so a process may be killed at any moment; the lock of a unit belongs to the
    process that works on it, and is released when that process ends.

    Args:
        folder: created if it is missing.
        plan: of the study; read from the folder by default. A folder holds one study only.
    """

    def __init__(self, folder: str | PathLike[str], plan: Plan | None = None) -> None:
        self.folder = Path(folder)
        for part in _PARTS:  # a link could make a study write, or remove, the files of others
            check_within(self.folder / part, self.folder)
        path = self.folder / "plan.toml"
        if plan is not None and not path.exists():
            text = plan.to_toml().encode()
            with writing(path):  # of runners that start at once, the first one's plan stays
                write_atomically(path, lambda file: file.write_bytes(text), keep=True)
        if not path.exists():
            raise InputError(f"{self.folder} holds no study: it has no plan.toml")
        self.plan = Plan.read(path)
        if plan is not None and plan != self.plan:
            raise InputError(
                f"{self.folder} holds another study: its plan.toml differs from the plan that was "
                "asked for. Choose another folder"
            )

    @property
    def units(self) -> list[Unit]:
        """All of them, dataset by dataset."""
        return [Unit(d, v) for d in self.plan.datasets for v in self.plan.variants]

    def done(self, unit: Unit) -> bool:
        """Whether the unit needs no more work."""
        return self._result(unit).is_file() or self._skipped(unit).is_file()

    def left(self) -> list[Unit]:
        """Units that are not done, by one listing of the folder, which may be large and remote."""
        folder = self.folder / "results"
        files = os.scandir(folder) if folder.exists() else ()
        names = {file.name for file in files if file.is_file()}  # or a link to one
        return [
            unit
            for unit in self.units
            if names.isdisjoint((self._result(unit).name, self._skipped(unit).name))
        ]

    def write(self, unit: Unit, frame: "pd.DataFrame", about: dict[str, Any]) -> None:
        """Put the result of a unit in place."""
        write_result(self._result(unit), frame, {"plan": self.plan.to_toml(), **about})

    def clear(self, unit: Unit) -> None:
        """Remove partial files of a unit that a killed process left; needs the unit's lock."""
        partial_files = [("results", f".{unit.stem}.*"), ("checkpoints", f".{unit.stem}.*")]
        if unit.variant == NONE:
            partial_files.append(("base", f".{unit.dataset}.safetensors.*"))
        for folder, pattern in partial_files:
            for path in (self.folder / folder).glob(pattern):
                path.unlink(missing_ok=True)

    def skip(self, unit: Unit, reason: str) -> None:
        """Record why a unit does not apply."""
        entry = {"dataset": unit.dataset, "variant": unit.variant, "reason": reason}
        write_json(self._skipped(unit), entry)

    def results(self) -> "pd.DataFrame":
        """Rows of all units that are done, with seconds and the hash of the dataset's rows."""
        import pandas as pd

        frames = [self._read(unit) for unit in self._all_units() if self._result(unit).exists()]
        if not frames:
            raise InputError(f"{self.folder} has no results yet: run the study first")
        results = pd.concat(frames, ignore_index=True)
        mixed = results.groupby("dataset").content.nunique()
        for dataset in mixed.index[mixed > 1]:
            raise InputError(
                f"{self.folder} has results of different rows of {dataset}, which have changed on "
                f"the way. Remove results/{dataset}--* and base/{dataset}.safetensors, and run the "
                "study again"
            )
        return results

    def skipped(self) -> list[dict[str, str]]:
        """Units that do not apply, and why."""
        return [self._reason(u) for u in self._all_units() if self._skipped(u).exists()]

    def broken(self) -> dict[Path, str]:
        """Read all results, reasons and parameters: damaged files, and what is wrong with them.

        Raises:
            OtherPlanError: when a file is complete, but made by another plan.
            InputError: when a file may not be opened, and so may be complete.
        """
        units = self._all_units()
        checks: list[tuple[Path, Callable[[], object]]] = [
            *((self._result(unit), partial(self._read, unit)) for unit in units),
            *((self._skipped(unit), partial(self._reason, unit)) for unit in units),
            *((self._base(name), partial(self._theta, name)) for name in self.plan.datasets),
        ]
        broken = {}
        for path, read in checks:
            if not path.exists() and not path.is_symlink():
                continue
            try:
                if path.is_file() and not path.is_symlink():
                    path.open("rb").close()
                read()
            except OtherPlanError:
                raise
            except InputError as error:
                broken[path] = str(error)
            except OSError as error:
                raise InputError(f"cannot open {path}: {error.strerror}") from error
        return broken

    def remove_broken(self) -> dict[Path, str]:
        """Remove damaged files, which the next run of the study makes again.

        Returns:
            Result of `broken`.
        """
        broken = self.broken()
        for path in broken:
            with writing(path):
                path.unlink()
        return broken

    def log(self, event: Event) -> None:
        """Append an event of a unit to `log.jsonl`, as one line."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "unit": event.task.name,
            "kind": event.kind,
            "attempt": event.attempt,
            "error": f"{type(event.error).__name__}: {event.error}",
        }
        with suppress(OSError), (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")  # may fail: the event may be a full disk

    def write_base(self, dataset: str, theta: Tensor, *, content: str = "") -> None:
        """Store the unpenalised parameters of a dataset, from which penalised runs start.

        Args:
            dataset: by name.
            theta: `(seeds, P)`.
            content: hash of its rows.
        """
        write_tensors(self._base(dataset), {"theta": theta}, self._origin(dataset, content))

    def read_base(
        self, dataset: str, device: torch.device | str, *, content: str | None = None
    ) -> Tensor | None:
        """These parameters, or None if there are none yet; those of other rows are refused.

        Args:
            dataset: by name.
            device: where to put them.
            content: hash of the rows that they must come from; any by default.
        """
        if not self._base(dataset).exists():
            return None
        theta, about = self._theta(dataset)
        if content not in (None, about["content"]):
            raise InputError(
                f"{self._base(dataset)} comes from other rows than {dataset} has now. Choose "
                f"another folder, or remove this file and results/{dataset}--*, and run again"
            )
        return theta.to(device)

    def checkpoint(self, unit: Unit) -> Path:
        """Path of a unit's checkpoint."""
        return self.folder / "checkpoints" / unit.stem

    def claim(self, name: str) -> AbstractContextManager[bool]:
        """Hold a lock; False if another process holds it."""
        return FileLock(self.folder / "locks" / f"{name}.lock")

    def _all_units(self) -> list[Unit]:
        """A plan may leave out unpenalised runs; penalised ones start from them all the same."""
        bases = [Unit(dataset, NONE) for dataset in self.plan.datasets]
        return list(dict.fromkeys([*self.units, *bases]))

    def _read(self, unit: Unit) -> "pd.DataFrame":
        path = check_within(self._result(unit), self.folder)
        try:
            return read_result(path, unit, self.plan)
        except OtherPlanError as error:
            raise OtherPlanError(f"cannot use {path}: {error}. {_OTHER}") from error
        except (InputError, OSError) as error:
            raise InputError(f"cannot read {path}: {error}. {_AGAIN}") from error

    def _reason(self, unit: Unit) -> dict[str, str]:
        path = check_within(self._skipped(unit), self.folder)
        try:
            entry = read_json(path)
        except InputError as error:
            raise InputError(f"{error}. {_AGAIN}") from error
        whose = {"dataset": unit.dataset, "variant": unit.variant}
        if not isinstance(entry, dict) or entry != whose | {"reason": str(entry.get("reason"))}:
            raise InputError(f"{path} does not say why {unit.stem} was left out. {_AGAIN}")
        return entry

    def _theta(self, dataset: str) -> tuple[Tensor, dict[str, str]]:
        path = check_within(self._base(dataset), self.folder)
        try:
            tensors, about = read_tensors(path)
        except InputError as error:
            raise InputError(f"{error}. {_AGAIN}") from error
        theta = tensors.get("theta")
        expected = self._origin(dataset, about.get("content", ""))
        if {**about, "plan": expected["plan"]} == expected != about:
            raise OtherPlanError(f"cannot use {path}: it was made by another plan. {_OTHER}")
        if about != expected or theta is None or not theta.is_floating_point():
            raise InputError(f"{path} has no parameters of {dataset} by this plan. {_AGAIN}")
        return theta, about

    def _origin(self, dataset: str, content: str) -> dict[str, str]:
        """What the parameters depend on."""
        plan = json.dumps(settings(self.plan.to_toml()), sort_keys=True)
        return {"dataset": dataset, "plan": plan, "content": content}

    def _result(self, unit: Unit) -> Path:
        return self.folder / "results" / f"{unit.stem}.parquet"

    def _skipped(self, unit: Unit) -> Path:
        return self.folder / "results" / f"{unit.stem}.skipped.json"

    def _base(self, dataset: str) -> Path:
        return self.folder / "base" / f"{dataset}.safetensors"
