"""Which rows were used where values are missing, in words."""

from collections.abc import Sequence

from prerank.calibration.causes import MARGINAL
from prerank.calibration.error_table import ALL, Finding
from prerank.report.wording import listed

__all__ = ["absence_words"]

_NAMED = 6


def absence_words(findings: Sequence[Finding], n: int) -> str | None:
    """How many of n rows each pre-rank used, and each target; None where no value is missing.

    Args:
        findings: of one predictor.
        n: number of rows.

    Example:
        >>> row = Finding(0, "marginal", "all", 0.1, 0.1, 0.0, 0.5, 0.5, 0.0, "ranks", "", n=80)
        >>> absence_words([row], 100).partition(".")[0]
        'Values are missing: marginal used 80 of 100 rows'
    """
    used = {row.prerank: row.n for row in findings if row.component == ALL and row.n is not None}
    targets = {
        row.component: row.n
        for row in findings
        if row.prerank == MARGINAL and row.component != ALL and row.n is not None
    }
    if not used:
        return None
    parts = []
    if targets:
        sizes = list(targets.values())
        if len(targets) <= _NAMED:
            named = listed([f"{size:,} of {name}" for name, size in targets.items()])
        else:
            named = f"{min(sizes):,} to {max(sizes):,} of each target"
        parts.append(f"{MARGINAL} used {named}, of {n:,} rows")
        del used[MARGINAL]
    by_size: dict[int, list[str]] = {}
    for label, size in used.items():
        by_size.setdefault(size, []).append(label)
    parts += [f"{listed(labels)} used {size:,} of {n:,} rows" for size, labels in by_size.items()]
    return (
        f"Values are missing: {'; '.join(parts)}. The results hold if whether a value is missing "
        "does not depend on the values, given the inputs, the place and the time."
    )
