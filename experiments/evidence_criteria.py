"""Criteria for tests, verdicts and searches, and which of them the tables of evidence reach."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from scipy.stats import binom

from marked_pages import Verdict
from prerank.calibration import holm

LEVEL, SURE = 0.05, 0.01


class Evidence:
    """The tables of a folder, one for each part, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getattr__(self, part: str) -> pd.DataFrame:
        path = self.folder / f"{part}.csv"
        if not path.exists():
            raise AttributeError(part)
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
        setattr(self, part, table)
        return table


def excess_p_values(table: pd.DataFrame, level: float = LEVEL) -> pd.Series:
    """P-value of each cell that its true rate is at most a level, by Holm over the cells."""
    hits = (table.rate * table.data_sets).round()
    return pd.Series(holm(binom.sf(hits - 1, table.data_sets, level)), table.index)


def verdicts(evidence: Evidence) -> Iterator[Verdict]:
    """All criteria, in their order."""
    yield sizes(evidence.sizes)
    yield from words(evidence.verdicts)
    yield from dependent(evidence.dependent)
    yield from where(evidence.where)
    yield from regions(evidence.where_dependent, evidence.where_head)
    yield coverage(evidence.comparison)
    yield alarms(evidence.monitoring)
    yield limits(evidence.equivalence)


def sizes(table: pd.DataFrame) -> Verdict:
    """No test rejects calibrated forecasts more often than its level."""
    p = excess_p_values(table)
    above = table[p < SURE]
    worst = table.loc[table.rate.idxmax()]
    return Verdict(
        f"calibrated forecasts rejected in more than 5 % of {_counts(table)} data sets: no cell at "
        "1 %, one-sided binomial, Holm over the cells",
        f"{len(table)} cells, at most {100 * worst.rate:.2f} % ({worst.forecast}, D = {worst.D}, "
        f"{worst.event}), smallest p = {p.min():.2g}",
        [f"{row.forecast}, D = {row.D}, {row.event}: {row.rate:.3f}" for row in above.itertuples()],
    )


def words(table: pd.DataFrame) -> Iterator[Verdict]:
    """The right word in 90 % of data sets, a wrong one in 5 %."""
    for name, what, missed, worst in (
        ("right words in at least 90 %", table.rate, table.rate < 0.9, table.rate.idxmin()),
        ("wrong words in at most 5 %", table.wrong, table.wrong > 0.05, table.wrong.idxmax()),
    ):
        yield Verdict(
            f"verdicts: {name} of {_counts(table)} data sets of each of {len(table)} scenarios",
            f"{100 * what[worst]:.1f} % ({_scenario(table.loc[worst])})",
            [f"{_scenario(row)}: {what[k]:.3f}" for k, row in table[missed].iterrows()],
        )


def dependent(table: pd.DataFrame) -> Iterator[Verdict]:
    """Rows in time order: sizes, and power beside that of the test for independent rows."""
    own = table[table.test == "time order"]
    size = own[own.event == "size"]
    yield _rates("rows in time order: rejected in at most 7 %, series up to .7", size, 0.07)
    keys = ["event", "targets", "series", "rows", "prerank"]
    power = table[table.event.isin(["shift .1", "spread 1.1", "spread .9"])]
    wide = power.pivot_table("rate", keys, "test").dropna()
    wide = wide[wide["independent rows"] >= 0.15]
    ratio = wide["time order"] / wide["independent rows"]
    low = ratio[ratio < 0.8]
    yield Verdict(
        "rows in time order: at least 80 % of the power for independent rows, where that is 15 % "
        "or more",
        f"{len(ratio)} cells, mean {ratio.mean():.2f}, least {ratio.min():.2f}",
        [f"{k[0]}, D = {k[1]}, {k[4]}: {value:.2f}" for k, value in low.items()],
    )


def where(table: pd.DataFrame) -> Iterator[Verdict]:
    """Planted regions are found, and no others."""
    planted = table[table.auc.notna()]
    all_wrong = planted[planted.wrong_targets.isin(["4 of 4", "2 of 2"])]
    for name, rows in (("all targets", all_wrong), ("one of four", planted.drop(all_wrong.index))):
        missed = rows[rows.auc < 0.9]
        yield Verdict(
            f"regions with wrong rows, {name} wrong: mean AUC of at least .9",
            f"least {rows.auc.min():.3f}",
            [f"{row.scenario}, {row.place}: {row.auc:.3f}" for row in missed.itertuples()],
        )
    yield _rates("regions: false alarms at 5 %", table[table.auc.isna()], 0.05, sure=True)


def regions(dependent: pd.DataFrame, heads: pd.DataFrame) -> Iterator[Verdict]:
    """Searches among dependent rows, and heads of regions on fresh rows."""
    alarms = dependent[(dependent.scenario == "calibrated") & (dependent.taken_as == "they are")]
    yield _rates("regions of dependent rows: false alarms at most 7 %", alarms, 0.07, sure=True)
    planted = heads[heads.excess_after.notna()]
    left = planted.excess_after / planted.excess_before
    yield Verdict(
        "a head of regions leaves at most half of the excess there, on fresh rows",
        f"{len(planted)} faults, at most {100 * left.max():.0f} %",
        [f"{row.scenario}: {left[k]:.2f}" for k, row in planted[left > 0.5].iterrows()],
    )
    yield _rates(
        "a head of regions without a fault: kept in at most 5 %", heads.drop(planted.index), 0.05
    )


def coverage(table: pd.DataFrame) -> Verdict:
    """Intervals of differences hold what they state."""
    covered = table[table.event.str.endswith("covered")]
    p = binom.cdf((covered.rate * covered.data_sets).round(), covered.data_sets, 0.95)
    low = covered[holm(p) < SURE]
    return Verdict(
        "two forecasts compared: 95 % intervals cover in less than 95 % in no cell (as above)",
        f"{len(covered)} cells, {_counts(covered)} data sets, "
        f"least {100 * covered.rate.min():.1f} %",
        [f"{row.event}, {row.pair}, {row.dependence}: {row.rate:.3f}" for row in low.itertuples()],
    )


def alarms(table: pd.DataFrame) -> Verdict:
    """Monitors alarm no more often than their level."""
    null = table[table.scenario.str.endswith("calibrated")]
    above = null[null.rate > null.alpha]
    worst = (null.rate / null.alpha).max()
    return Verdict(
        "monitor: false alarms at most alpha",
        f"{len(null)} cells, at most {worst:.2f} alpha",
        [f"{row.scenario}, lead {row.lead}: {row.rate}" for row in above.itertuples()],
    )


def limits(table: pd.DataFrame) -> Verdict:
    """Confidence limits of the error are wrong in 5 %."""
    return _rates(
        "limits of the true error: wrong in at most 5 %",
        table[table.event.isin(["lower above", "upper below"])],
        0.05,
        sure=True,
    )


def _rates(criterion: str, rows: pd.DataFrame, limit: float, *, sure: bool = False) -> Verdict:
    """Rates at most a limit: as they are, or beyond chance."""
    above = rows[excess_p_values(rows, limit) < SURE] if sure else rows[rows.rate > limit]
    how = " (as above)" if sure else ""
    worst = rows.loc[rows.rate.idxmax()]
    return Verdict(
        f"{criterion}{how}, {_counts(rows)} data sets",
        f"{len(rows)} cells, at most {100 * worst.rate:.1f} %",
        [f"{_about(row)}: {row.rate:.3f}" for _, row in above.iterrows()],
    )


def _about(row: pd.Series) -> str:
    names = ("scenario", "prerank", "targets", "series", "event", "rows")
    return ", ".join(str(row[name]) for name in names if name in row)


def _scenario(row: pd.Series) -> str:
    return f"{row.scenario}, n = {row.n}, D = {row.D}"


def _counts(table: pd.DataFrame) -> str:
    least, most = table.data_sets.min(), table.data_sets.max()
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
