"""Tables of the documentation about tests, verdicts and searches, from the tables of evidence.

    python experiments/evidence_page.py

Puts tables between the markers of the pages in `PAGES`, from the files in
`docs/results/tables/evidence` that `evidence.py` writes, and prints the criteria.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from evidence_criteria import Evidence, verdicts
from marked_pages import filled, markdown, number, percent, verdict_table

TESTS = ("time order", "independent rows")
COMPARED = ("excess", "score")
DOCS = Path(__file__).parents[1] / "docs"
TABLES = DOCS / "results" / "tables" / "evidence"
PAGES = (
    "results/evidence.md",
    "guides/where_in_the_data.md",
)


def criteria(evidence: Evidence) -> str:
    """Which criteria are reached."""
    return verdict_table(verdicts(evidence))


def sizes(evidence: Evidence) -> str:
    """One line for each forecast and number of targets."""
    lines = []
    for (forecast, dim), cell in evidence.sizes.groupby(["forecast", "D"], sort=False):
        rates = cell.set_index("event").rate
        single = rates.drop(["Holm", "verdict"])
        each = f"{number(100 * single.min(), 1)} to {percent(single.max(), 1)}"
        whole = percent(rates["verdict"], 1)
        lines.append([forecast, str(dim), f"{cell.data_sets.iloc[0]:,}", each, whole])
    header = ["forecast", "targets", "data sets", "single pre-ranks", "verdict is bad"]
    return markdown(header, lines)


def power(evidence: Evidence) -> str:
    """Faults by statistics."""
    wide = evidence.power.pivot_table("rate", "scenario", "test", sort=False)
    lines = [[fault, *(number(rate, 2) for rate in row)] for fault, row in wide.iterrows()]
    return markdown(["fault", *wide.columns], lines)


def scenarios(evidence: Evidence) -> str:
    """Words of verdicts."""
    lines = [
        [row.scenario, f"{row.n}", f"{row.D}", row.words, number(row.rate, 3), number(row.wrong, 3)]
        for row in evidence.verdicts.itertuples()
    ]
    return markdown(["fault", "rows", "targets", "words", "right", "wrong"], lines)


def series(evidence: Evidence) -> str:
    """Sizes by the strength of the dependence, then power, for the pre-ranks together."""
    table = evidence.dependent[evidence.dependent.prerank != "all"]
    order = table.assign(power=table.event != "size").sort_values(
        ["power", "event", "targets", "series"], kind="stable"
    )
    lines = []
    keys = ["event", "targets", "series"]
    for (event, targets, strength), cell in order.groupby(keys, sort=False):
        what = f"calibrated, autocorrelation {strength:g}" if event == "size" else event
        wide = cell.pivot_table("rate", "prerank", "test").dropna()
        both = [percent(wide[test].mean(), 1) for test in TESTS]
        lines.append([what, f"{targets}", f"{cell.data_sets.iloc[0]:,}", *both])
    header = ["forecast", "targets", "data sets", "time, mean", "independent, mean"]
    return markdown(header, lines)


def planted(evidence: Evidence) -> str:
    """Regions that were put in."""
    table = evidence.where[evidence.where.auc.notna()]
    lines = [
        [
            *(row.scenario, row.place, row.wrong_targets, percent(row.rate)),
            *(number(row.auc, 3), percent(row.right_words)),
        ]
        for row in table.itertuples()
    ]
    return markdown(
        ["fault", "place", "wrong targets", "found (p ≤ .05)", "AUC", "words"], lines, 3
    )


def alarms(evidence: Evidence) -> str:
    """Regions where there are none."""
    table = evidence.where[evidence.where.auc.isna() & (evidence.where.event == "p <= .05")]
    lines = [[row.scenario, f"{row.data_sets}", percent(row.rate, 2)] for row in table.itertuples()]
    return markdown(["forecast", "data sets", "p ≤ .05"], lines)


def compared(evidence: Evidence) -> str:
    """How often intervals of differences hold the true one."""
    table = evidence.comparison
    keys = ["pair", "rows", "dependence", "shared"]
    lines = []
    for (pair, rows, dependence, shared), cell in table.groupby(keys, sort=False):
        covered = cell[cell.event.str.endswith("covered")].set_index("event").rate
        lines.append(
            [
                *(pair, dependence, f"{rows:,}", f"{shared:g}", f"{cell.data_sets.iloc[0]:,}"),
                *(percent(covered.get(f"{name}: covered", math.nan)) for name in COMPARED),
            ]
        )
    header = ["forecasts", "dependence", "rows", "shared", "data sets"]
    return markdown([*header, *COMPARED], lines, 2)


def dependent_regions(evidence: Evidence) -> str:
    """False alarms of searches among dependent rows."""
    table = evidence.where_dependent[evidence.where_dependent.scenario == "calibrated"]
    wide = table.pivot_table("rate", "rows", ["taken_as", "n"], sort=False)
    columns = [("they are", 500), ("they are", 1000), ("independent", 1000)]
    lines = [[rows, *(percent(wide[at][rows], 1) for at in columns)] for rows in wide.index]
    return markdown(["rows", "n = 500", "n = 1,000", "n = 1,000, taken as independent"], lines)


def regional(evidence: Evidence) -> str:
    """What heads of regions do on fresh rows."""
    names = ("excess_before", "excess_after", "gain", "gain_outside")
    lines = [
        [
            *(row.scenario, f"{row.data_sets}", percent(row.rate)),
            *("" if pd.isna(x := getattr(row, name)) else number(x, 3) for name in names),
        ]
        for row in evidence.where_head.itertuples()
    ]
    header = ["fault", "data sets", "change kept", "excess before", "excess after"]
    return markdown([*header, "gain inside", "gain outside"], lines)


def attained(evidence: Evidence) -> str:
    """How often a calibrated forecast is shown to be within a tolerance."""
    table = evidence.equivalence[evidence.equivalence.event.str.startswith("within")]
    wide = table.pivot_table("rate", ["scenario", "event"], "rows", sort=False)
    lines = [
        [scenario, event.removeprefix("within "), *(percent(rate) for rate in row)]
        for (scenario, event), row in wide.iterrows()
    ]
    return markdown(["forecast", "within", *(f"{n:,} rows" for n in wide.columns)], lines, 2)


def omnibus(evidence: Evidence) -> str:
    """Size and power of the omnibus test."""
    wide = evidence.omnibus.pivot_table("rate", "scenario", ["n", "targets"], sort=False)
    lines = [[fault, *(number(rate, 2) for rate in row)] for fault, row in wide.iterrows()]
    return markdown(["fault", *(f"n = {n}, D = {d}" for n, d in wide.columns)], lines)


def omnibus_error(evidence: Evidence) -> str:
    """How certain the shares of the table are."""
    sets = int(evidence.omnibus.data_sets.min())
    error = number(math.sqrt(0.05 * 0.95 / sets), 3)
    return f"With {sets} data sets, a share of .05 has a standard error of {error}."


def second_regions(evidence: Evidence) -> str:
    """How often a region is reported beside the only one."""
    [row] = evidence.where[evidence.where.event.str.contains("second")].itertuples()
    share = percent(row.rate, 2)
    return f"Of {row.data_sets} data sets with one true region, {share} had a second one."


def monitored(evidence: Evidence) -> str:
    """Alarms and delays of the monitor."""
    lines = [
        [
            *(row.scenario, f"{row.lead}", f"{row.alpha:g}", f"{row.data_sets:,}"),
            *(
                number(row.rate, 4),
                "" if pd.isna(row.median_delay) else number(row.median_delay, 0),
            ),
        ]
        for row in evidence.monitoring.itertuples()
    ]
    header = ["stream", "lead", "alpha", "data sets", "alarms", "median delay"]
    return markdown(header, lines)


def densities(evidence: Evidence) -> str:
    """Power of the exact density and of the estimated one, by the number of members."""
    wide = evidence.sample_density.pivot_table("rate", "forecast", ["members", "event"], sort=False)
    members = sorted(set(wide.columns.get_level_values(0)))
    lines = [
        [
            fault,
            *(
                f"{number(row[m, 'hdr'], 2)} / {number(row[m, 'sample_density'], 2)}"
                for m in members
            ),
        ]
        for fault, row in wide.iterrows()
    ]
    return markdown(["forecast", *(f"{m} members" for m in members)], lines)


CONTENTS: dict[str, Callable[[Evidence], str]] = {
    "criteria": criteria,
    "sizes": sizes,
    "power": power,
    "scenarios": scenarios,
    "series": series,
    "planted": planted,
    "alarms": alarms,
    "dependent_regions": dependent_regions,
    "regional": regional,
    "attained": attained,
    "compared": compared,
    "omnibus": omnibus,
    "densities": densities,
    "omnibus_error": omnibus_error,
    "second_regions": second_regions,
    "monitored": monitored,
}


def page_tables(evidence: Evidence) -> dict[str, Callable[[], str]]:
    """Tables of the pages by their markers."""
    return {name: partial(table, evidence) for name, table in CONTENTS.items()}


def main() -> None:
    """Fill the pages, and print the criteria."""
    evidence = Evidence(TABLES)
    for name in PAGES:
        path = DOCS / name
        path.write_text(filled(path.read_text(), page_tables(evidence)))
    print(criteria(evidence))


if __name__ == "__main__":
    main()
