"""A diagnosis on the terminal, and as a record for scripts."""

import math
from typing import Any

from rich.markup import escape
from rich.table import Table

from prerank.diagnosis import ALL, Diagnosis, Finding, GroupedDiagnosis
from prerank.report.table_text import p_text

__all__ = ["as_record", "findings_table", "groups_table"]


def as_record(found: Diagnosis | GroupedDiagnosis) -> dict[str, Any]:
    """Verdict and findings, in values that JSON knows.

    With groups, the verdict is that of all of them and the whole, the findings are of the whole,
    and `groups` has the record of each.
    """
    verdict = found.verdict()
    whole = found.overall if isinstance(found, GroupedDiagnosis) else found
    record: dict[str, Any] = {
        "n": whole.n,
        "verdict": {
            "mood": verdict.mood,
            "headline": verdict.headline,
            "points": list(verdict.points),
            "advice": list(verdict.advice),
        },
        "findings": [
            {name: _plain(value) for name, value in row.items()}
            for row in whole.table.to_dict("records")
        ],
        "skipped": whole.skipped,
    }
    if isinstance(found, GroupedDiagnosis):
        record["groups"] = {name: as_record(one) for name, one in found.groups.items()}
    return record


def findings_table(found: Diagnosis) -> Table:
    """The rows of whole pre-ranks."""
    table = _table(["pre-rank"])
    for row in _overall(found):
        table.add_row(escape(row.prerank), *_numbers(row))
    return table


def groups_table(found: GroupedDiagnosis) -> Table:
    """The rows of whole pre-ranks, group by group."""
    table = _table(["group", "rows", "pre-rank"])
    for name, one in found.groups.items():
        for row in _overall(one):
            table.add_row(escape(name), f"{one.n:,}", escape(row.prerank), *_numbers(row))
        table.add_section()
    return table


def _table(names: list[str]) -> Table:
    table = Table()
    for name in names:
        table.add_column(name)
    for name in ("error", "floor", "excess", "p (Holm)"):
        table.add_column(name, justify="right")
    return table


def _overall(found: Diagnosis) -> list[Finding]:
    return [row for row in found.findings if row.component == ALL]


def _numbers(row: Finding) -> list[str]:
    p = "" if math.isnan(row.p_holm) else p_text(row.p_holm)
    return [f"{row.pce:.4f}", f"{row.floor:.4f}", f"{row.excess:+.4f}", p]


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
