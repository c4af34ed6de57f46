"""A diagnosis as a command prints it: a record for scripts, and tables for readers."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from prerank.calibration.decision import DEGREES
from prerank.cli.messages import Screen, say
from prerank.diagnosis import Diagnosis, GroupedDiagnosis, WhereDiagnosis
from prerank.files.visible_text import visible_name
from prerank.report.wording import p_text

__all__ = ["as_record", "print_diagnosis", "where_record", "whole_of"]


def as_record(
    diagnosis: Diagnosis | GroupedDiagnosis, *, within: float | None = None
) -> dict[str, Any]:
    """Verdict and findings, in values that JSON knows; with `within`, also `equivalence`.

    With groups, the verdict is that of all of them and the whole, the findings are of the whole,
    and `groups` has the record of each.
    """
    verdict = diagnosis.verdict(within=within)
    whole = whole_of(diagnosis)
    record: dict[str, Any] = {
        "n": whole.n,
        "verdict": {
            "mood": verdict.status,
            "headline": verdict.headline,
            "points": list(verdict.points),
            "advice": list(verdict.advice),
        },
        "findings": [
            {name: _plain(value) for name, value in row.items()} for row in whole.records()
        ],
        "skipped": whole.skipped,
    }
    if within is not None:
        claim = asdict(diagnosis.within(within))
        record["equivalence"] = {name: _plain(value) for name, value in claim.items()}
    if whole.dependence is not None:
        rows = whole.dependence
        record["rows"] = {"kind": rows.kind, "units": rows.count, "degrees": rows.degrees}
    if whole.serial is not None:
        record["serial_correlation"] = asdict(whole.serial)
    if isinstance(diagnosis, GroupedDiagnosis):
        record["groups"] = {
            name: as_record(one, within=within) for name, one in diagnosis.groups.items()
        }
    return record


def where_record(where: WhereDiagnosis | None) -> dict[str, Any]:
    """The regions of the inputs in values that JSON knows; nothing without them."""
    if where is None:
        return {}
    found = {"p_value": where.p_value, "headline": where.headline, "regions": where.records()}
    return {"where": found}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def whole_of(diagnosis: Diagnosis | GroupedDiagnosis) -> Diagnosis:
    """The diagnosis of all rows."""
    return diagnosis.overall if isinstance(diagnosis, GroupedDiagnosis) else diagnosis


def print_diagnosis(
    diagnosis: Diagnosis | GroupedDiagnosis, within: float | None, where: WhereDiagnosis | None
) -> None:
    """Print the verdict, the tables and the groups."""
    console = Screen()
    whole = whole_of(diagnosis)
    say(str(diagnosis.verdict(within=within)))
    console.print(_table({"": whole}))
    if isinstance(diagnosis, GroupedDiagnosis):
        console.print(_table(diagnosis.groups, "group", "rows"))
        for name, one in diagnosis.groups.items():
            say(f"{visible_name(name)}: {one.verdict(within=within).headline}")
        least = ", ".join(f"{degree} from {DEGREES[degree]:g}" for degree in ("moderate", "strong"))
        say(f"Degrees: by the lower limit, at 95 % confidence, of the true error; {least}.")
    for label, reason in whole.skipped.items():
        say(f"Skipped {label}: {reason}")
    if where is not None:
        say(str(where))


def _table(diagnoses: Mapping[str, Diagnosis], *named: str) -> Table:
    """The rows of whole pre-ranks, after the name and the number of rows where these are named."""
    headings = ("error", "floor", "excess", "at most (95 %)", "p (Holm)")
    table = Table(*named, "pre-rank", *(Column(name, justify="right") for name in headings))
    for name, one in diagnoses.items():
        start = [escape(visible_name(name)), f"{one.n:,}"] if named else []
        for row in one.by_prerank.values():
            p = "" if math.isnan(row.p_holm) else p_text(row.p_holm)
            most = "" if math.isnan(row.upper) else f"{row.upper:.4f}"
            numbers = [f"{row.pce:.4f}", f"{row.floor:.4f}", f"{row.excess:+.4f}", most, p]
            table.add_row(*start, escape(row.prerank), *numbers)
        table.add_section()
    return table
