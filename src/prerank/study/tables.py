"""Tables of a study: before and after, strengths, cross tables, p-values."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prerank.calibration import holm, null_pce, p_value
from prerank.preranks.parsing import bare_labels
from prerank.study.plans import HEAD, NONE
from prerank.study.published_runs import published_cells, published_cross

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "after",
    "before",
    "combined",
    "compared",
    "cross",
    "evidence",
    "frontier",
    "in_company",
    "mean_null",
    "relative_scores",
]

_CELL = ["dataset", "prerank"]


def before(results: "pd.DataFrame") -> "pd.DataFrame":
    """Calibration of the unpenalised runs, by dataset and pre-rank.

    Columns: `dataset`, `prerank`, `mean` and `se` (of the PCE that the protocol reports, over the
    runs), `runs`, `excess` (above the floor) and `excess_se`, `energy`, `nll` (median), and where
    the paper has the cell, `paper` and `paper_se`: of relaxed samples and batches of 256, so that
    only the published protocol is comparable with them. There, energy score and NLL are means
    over batches too.
    """
    return _beside_paper(_summary(_final(results, NONE), _CELL), "before")


def after(results: "pd.DataFrame", variant: str | None = None) -> "pd.DataFrame":
    """Calibration of treated runs, by dataset and pre-rank.

    Args:
        results: of a study.
        variant: of the runs, such as `"head"`; by default those that were penalised by the pre-rank
            itself.

    Columns as in `before`, and `strength` (0 where none qualified), `energy_ratio` (against the
    unpenalised runs), `gain` (mean paired decrease of the excess) and `gain_se`; and
    `paper_strength`, which the paper reports.
    """
    rows = _final(results)
    own = rows[rows.variant == (rows.prerank if variant is None else variant)]
    table = _summary(own, [*_CELL, "strength"])
    return _beside_paper(_against_base(table, own, _final(results, NONE)), "after")


def cross(results: "pd.DataFrame", dataset: str) -> "pd.DataFrame":
    """Every training variant of one dataset by every evaluated pre-rank, in long form.

    Columns: `variant`, `prerank`, `strength`, `mean`, `se`, `excess`, `energy`, `nll`, and `paper`.
    """
    rows = _final(results)
    table = _summary(rows[rows.dataset == dataset], ["variant", "prerank", "strength"])
    paper = published_cross().query("dataset == @dataset")[["variant", "prerank", "pce"]]
    return table.merge(paper.rename(columns={"pce": "paper"}), how="left", validate="one_to_one")


def combined(results: "pd.DataFrame") -> "pd.DataFrame":
    """What it costs a pre-rank that margins or principal components are penalised with it.

    Columns: `dataset`, `prerank`, `with` (`"marginal"` or `"pca(0.8)"`), `alone` and `together`
    (PCE of the pre-rank after either penalty), `increase` (their ratio, minus 1), `energy_ratio`
    (together against alone) and `seconds_ratio`.
    """
    rows = _final(results)
    table = _summary(rows, ["dataset", "variant", "prerank"])
    seconds = rows.groupby(["dataset", "variant"], as_index=False).seconds.first()
    return in_company(table.merge(seconds))


def in_company(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table of `combined`, from means over the runs.

    Args:
        table: columns `dataset`, `variant`, `prerank`, `mean`, `energy` and `seconds`; one row for
            each pre-rank that a variant was judged by.
    """
    import pandas as pd

    alone = table[table.variant == table.prerank].drop(columns="variant")
    pairs = []
    for other in ("marginal", "pca(0.8)"):
        own = table[table.variant == other + "+" + table.prerank].assign(**{"with": other})
        pairs.append(own.merge(alone, on=["dataset", "prerank"], suffixes=("", "_alone")))
    both = pd.concat(pairs, ignore_index=True)
    both = both.rename(columns={"mean": "together", "mean_alone": "alone"})
    both["increase"] = both.together / both.alone - 1
    both["energy_ratio"] = both.energy / both.energy_alone
    both["seconds_ratio"] = both.seconds / both.seconds_alone
    ratios = ["alone", "together", "increase", "energy_ratio", "seconds_ratio"]
    return both[["dataset", "prerank", "with", *ratios]]


def compared(studies: "dict[str, pd.DataFrame]") -> "pd.DataFrame":
    """Before and after of several studies side by side, such as numbers of draws or protocols.

    Args:
        studies: results by name.

    Returns:
        One row for each dataset and pre-rank that any study has, in the order in which they first
        appear. Columns `dataset`, `prerank`, `paper_before` and `paper_after` (what the paper
        reports), then for each study, after its name and a space, `before`, `before_se`, `after`,
        `after_se` (PCE that its protocol reports), `strength`, `excess_before`, `excess_after`
        (of the exact PCE) and `energy_ratio`; missing where the study, or the paper, has no such
        cell.
    """
    import pandas as pd

    sides = [_side(results).add_prefix(f"{name} ") for name, results in studies.items()]
    table = pd.concat(sides, axis=1)
    paper = published_cells().set_index(_CELL)[["before", "after"]].add_prefix("paper_")
    return pd.concat([paper.reindex(table.index), table], axis=1).reset_index()


def relative_scores(results: "pd.DataFrame") -> "pd.DataFrame":
    """Scores of every variant against the unpenalised runs, by dataset and variant.

    Columns: `dataset`, `variant`, `nll` (mean over the runs, less that without a penalty: it may be
    negative, so there is no ratio) and `energy` (ratio of the means, minus 1).
    """
    rows = _final(results).drop_duplicates(["dataset", "variant", "seed"])
    means = rows.groupby(["dataset", "variant"], as_index=False, sort=False)[["nll", "energy"]]
    table = means.mean()
    base = table[table.variant == NONE].set_index("dataset")
    table["nll"] -= table.dataset.map(base.nll)
    table["energy"] = table.energy / table.dataset.map(base.energy) - 1
    return table


def frontier(results: "pd.DataFrame", dataset: str, variant: str) -> "pd.DataFrame":
    """All strengths of a variant: excess of its own pre-ranks and energy score, by part.

    Columns: `part`, `strength`, `excess`, `energy_ratio`, `selected`.
    """
    own = results[(results.dataset == dataset) & (results.variant == variant)]
    own = own[own.prerank.isin(bare_labels(variant))].assign(excess=lambda t: t.pce - t.floor)
    table = own.groupby(["part", "strength"], as_index=False).agg(
        excess=("excess", "mean"), energy=("energy", "mean"), selected=("selected", "any")
    )
    base = table[table.strength == 0].set_index("part").energy
    table["energy_ratio"] = table.energy / table.part.map(base)
    return table.drop(columns="energy")


def evidence(results: "pd.DataFrame", variant: str | None = None) -> "pd.DataFrame":
    """Whether the mean PCE over the runs is larger than that of a calibrated predictor.

    Args:
        results: of a study.
        variant: of the runs; by default those that were penalised by the pre-rank itself.

    Returns:
        Columns `dataset`, `prerank`, `observed`, `null_mean`, `p_value` and `p_holm`, corrected
        within each dataset.
    """
    import pandas as pd

    rows = _final(results, variant)
    if variant is None:
        rows = rows[rows.variant == rows.prerank]
    rows = rows[rows.pce.notna()]
    lines: list[tuple[object, ...]] = []
    for dataset, group in rows.groupby("dataset", sort=False):
        entries = []
        for prerank, cell in group.groupby("prerank", sort=False):
            null = mean_null(cell)
            observed = float(cell.pce.mean())
            entries.append((dataset, prerank, observed, null.mean(), p_value(observed, null)))
        corrected = holm([entry[-1] for entry in entries])
        lines += [(*entry, float(p)) for entry, p in zip(entries, corrected, strict=True)]
    names = ["dataset", "prerank", "observed", "null_mean", "p_value", "p_holm"]
    return pd.DataFrame(lines, columns=names)


def mean_null(cell: "pd.DataFrame") -> npt.NDArray[np.float64]:
    """Replicates of the mean PCE over the runs of a cell, were they calibrated.

    Test rows of different splits overlap, as they did in the published test: the replicates take
    the runs for independent.
    """
    given = [null for null in cell["null"] if null is not None]
    if given:
        replicates: npt.NDArray[np.float64] = np.mean([np.asarray(null) for null in given], axis=0)
        return replicates
    rng = np.random.default_rng(len(cell))
    null = null_pce(int(cell.n.iloc[0]))
    return rng.choice(null, (len(cell), len(null))).mean(0)


def _final(results: "pd.DataFrame", variant: str | None = None) -> "pd.DataFrame":
    """Test rows of the runs at the selected strength."""
    rows = results[(results.part == "test") & results.selected]
    if "published_pce" in rows:
        rows = rows.assign(energy=rows.published_energy, nll=rows.published_nll)
    return rows if variant is None else rows[rows.variant == variant]


def _summary(rows: "pd.DataFrame", keys: list[str]) -> "pd.DataFrame":
    shown = rows.published_pce if "published_pce" in rows else rows.pce
    rows = rows.assign(shown=shown, excess=rows.pce - rows.floor)
    return rows.groupby(keys, as_index=False, sort=False).agg(
        mean=("shown", "mean"),
        se=("shown", "sem"),
        runs=("shown", "size"),
        excess=("excess", "mean"),
        excess_se=("excess", "sem"),
        energy=("energy", "mean"),
        nll=("nll", "median"),
    )


def _against_base(
    table: "pd.DataFrame", own: "pd.DataFrame", base: "pd.DataFrame"
) -> "pd.DataFrame":
    keys = [*_CELL, "seed"]
    paired = own.merge(base, on=keys, suffixes=("", "_base"), validate="many_to_one")
    paired = paired.assign(gain=paired.pce_base - paired.pce)
    gains = paired.groupby(_CELL, as_index=False, sort=False).agg(
        gain=("gain", "mean"),
        gain_se=("gain", "sem"),
        energy_base=("energy_base", "mean"),
    )
    merged = table.merge(gains, how="left", validate="one_to_one")
    merged["energy_ratio"] = merged.energy / merged.pop("energy_base")
    return merged


def _beside_paper(table: "pd.DataFrame", which: str) -> "pd.DataFrame":
    names = {which: "paper", f"{which}_se": "paper_se"}
    if which == "after":
        names["strength"] = "paper_strength"
    cells = published_cells()[[*_CELL, *names]].rename(columns=names)
    return table.merge(cells, on=_CELL, how="left", validate="one_to_one")


def _side(results: "pd.DataFrame") -> "pd.DataFrame":
    """Before and after of one study, by dataset and pre-rank; either may be missing.

    After is that of the penalties; of the head where it alone was studied.
    """
    import pandas as pd

    penalised = after(results)
    treated = penalised if len(penalised) else after(results, HEAD)
    old, new = (
        table.set_index(_CELL).rename(
            columns={"mean": name, "se": f"{name}_se", "excess": f"excess_{name}"}
        )
        for name, table in (("before", before(results)), ("after", treated))
    )
    parts = [
        old[["before", "before_se"]],
        new[["after", "after_se", "strength"]],
        old["excess_before"],
        new[["excess_after", "energy_ratio"]],
    ]
    return pd.concat(parts, axis=1)
