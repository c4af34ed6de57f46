"""Tables of hand-made results have the numbers that can be worked out on paper."""

import csv
from importlib import resources

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from prerank.calibration import null_pce, pce_floor
from prerank.errors import InputError
from prerank.study import published_cells, published_cross, published_strength
from prerank.study.tables import (
    after,
    before,
    combined,
    compared,
    cross,
    evidence,
    frontier,
    mean_null,
    relative_scores,
)
from study.tiny import LABELS

FLOOR, N = 0.01, 500


def published(name):
    """The paper's numbers, straight from the file."""
    path = resources.files("prerank.study") / "published" / f"{name}.csv"
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows(variant, prerank, values, **changes):
    """One row for each run, with these PCEs."""
    entry = {
        "dataset": "air",
        "variant": variant,
        "prerank": prerank,
        "strength": 0.0 if variant == "none" else 10.0,
        "part": "test",
        "selected": True,
        "floor": FLOOR,
        "n": N,
        "energy": 1.0,
        "nll": 2.0,
        "null": None,
        **changes,
    }
    listed = {
        name: value if isinstance(value, list) else [value] * len(values)
        for name, value in entry.items()
    }
    return pd.DataFrame({"seed": range(len(values)), "pce": values, **listed})


def table(*parts):
    return pd.concat(parts, ignore_index=True)


RESULTS = table(
    rows("none", "marginal", [0.10, 0.12, 0.14], energy=[1.0, 1.1, 1.2], nll=[5.0, 7.0, 600.0]),
    rows("none", "hdr", [0.05, 0.05, 0.05], energy=[1.0, 1.1, 1.2]),
    rows("marginal", "marginal", [0.03, 0.02, 0.04], energy=[1.1, 1.1, 1.4]),
    rows("marginal", "hdr", [0.07, 0.06, 0.08], energy=[1.1, 1.1, 1.4]),
    rows("hdr", "hdr", [0.05, 0.05, 0.05], strength=0.0, energy=[1.0, 1.1, 1.2]),
    rows("hdr", "marginal", [0.10, 0.12, 0.14], strength=0.0, energy=[1.0, 1.1, 1.2]),
    rows("marginal+hdr", "hdr", [0.02, 0.02, 0.05], strength=30.0),
    # What no table is to look at: validation rows, and strengths that were not chosen.
    rows("none", "marginal", [9.0, 9.0, 9.0], part="validation"),
    rows("marginal", "marginal", [9.0, 9.0, 9.0], part="validation"),
    rows("marginal", "marginal", [9.0, 9.0, 9.0], strength=0.0, selected=False),
    rows("marginal", "marginal", [9.0, 9.0, 9.0], strength=300.0, selected=False),
)


def cell(found, **keys):
    """The one row of a table with these keys."""
    for name, value in keys.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


# Before and after


def test_before_has_means_and_standard_errors_of_the_unpenalised_runs():
    found = before(RESULTS)
    assert found[["dataset", "prerank"]].to_numpy().tolist() == [
        ["air", "marginal"],
        ["air", "hdr"],
    ]
    row = cell(found, prerank="marginal")
    # Standard deviation 0.02, three runs.
    assert row["mean"] == pytest.approx(0.12)
    assert row.se == pytest.approx(0.02 / 3**0.5)
    assert row.runs == 3
    assert row.excess == pytest.approx(0.11)
    assert row.excess_se == pytest.approx(0.02 / 3**0.5)
    assert row.energy == pytest.approx(1.1)
    assert row.nll == 7.0  # the median: one run has gone astray


def test_after_compares_runs_of_the_same_seed():
    found = after(RESULTS)
    assert set(zip(found.prerank, found.strength, strict=True)) == {
        ("marginal", 10.0),
        ("hdr", 0.0),
    }
    row = cell(found, prerank="marginal")
    assert row["mean"] == pytest.approx(0.03)
    assert row.energy_ratio == pytest.approx(1.2 / 1.1)  # of the means, not the mean of ratios
    # Gains 0.07, 0.10, 0.10: mean 0.09, standard deviation 0.03 / sqrt(3), three runs.
    assert row.gain == pytest.approx(0.09)
    assert row.gain_se == pytest.approx(0.03 / 3)
    unchanged = cell(found, prerank="hdr")
    assert (unchanged.gain, unchanged.gain_se, unchanged.energy_ratio) == (0, 0, 1)


def test_order_of_the_rows_does_not_matter():
    shuffled = RESULTS.sample(frac=1, random_state=0)
    for make in (before, after):
        one, other = (
            make(results).sort_values("prerank").reset_index(drop=True)
            for results in (RESULTS, shuffled)
        )
        pd.testing.assert_frame_equal(one, other)


def test_a_single_run_has_no_standard_error():
    found = before(rows("none", "hdr", [0.05]))
    assert found.runs.tolist() == [1]
    assert found.se.isna().all()


def test_results_without_penalised_runs_have_an_empty_table_after():
    found = after(rows("none", "hdr", [0.05, 0.06]))
    assert len(found) == 0
    assert {"dataset", "prerank", "mean", "gain", "energy_ratio", "paper"} <= set(found.columns)


def test_datasets_are_kept_apart():
    other = RESULTS.assign(dataset="bio", pce=RESULTS.pce + 1)
    found = before(table(RESULTS, other))
    assert cell(found, dataset="air", prerank="hdr")["mean"] == pytest.approx(0.05)
    assert cell(found, dataset="bio", prerank="hdr")["mean"] == pytest.approx(1.05)
    assert len(after(table(RESULTS, other))) == 4


def test_the_published_protocol_shows_the_published_error_beside_the_exact_excess():
    scores = {"published_energy": [3.0, 5.0], "published_nll": [7.0, 9.0]}
    results = table(
        rows("none", "hdr", [0.05, 0.07], published_pce=[0.20, 0.30], **scores),
        rows("hdr", "hdr", [0.02, 0.04], published_pce=[0.10, 0.12], **scores),
        rows("none", "dependency", [np.nan] * 2, published_pce=[0.4, 0.6], floor=np.nan, **scores),
    )
    found = before(results)
    assert cell(found, prerank="hdr")["mean"] == pytest.approx(0.25)
    assert cell(found, prerank="hdr").excess == pytest.approx(0.05)
    # The dependency of two targets exists in the published form only.
    only = cell(found, prerank="dependency")
    assert only["mean"] == pytest.approx(0.5)
    assert only.runs == 2
    assert np.isnan(only.excess)
    assert (only.energy, only.nll) == (4.0, 8.0)
    assert cell(after(results), prerank="hdr").gain == pytest.approx(0.03)


# Beside the paper


@pytest.mark.parametrize("which", ["before", "after"])
def test_every_published_cell_stands_beside_its_own(which):
    cells = published("cells")
    variants = ["none"] if which == "before" else LABELS
    results = table(
        *(
            rows(variant, label, [0.2, 0.4], dataset=dataset)
            for dataset in dict.fromkeys(entry["dataset"] for entry in cells)
            for label in LABELS
            for variant in ("none", *variants)
            if variant in ("none", label)
        )
    ).drop_duplicates(["dataset", "variant", "prerank", "seed"])
    found = {"before": before, "after": after}[which](results)
    assert len(found) == len(cells) == 126
    for entry in cells:
        row = cell(found, dataset=entry["dataset"], prerank=entry["prerank"])
        if which == "after":
            assert row.paper_strength == float(entry["strength"])
        if entry[which] == "":
            assert np.isnan(row.paper)
            continue
        assert row.paper == float(entry[which])
        assert row.paper_se == float(entry[f"{which}_se"])


def test_cells_that_the_paper_does_not_have_are_empty():
    found = before(rows("none", "hdr", [0.05, 0.06], dataset="mine"))
    assert found[["paper", "paper_se"]].isna().all().all()
    results = table(*(rows(name, "hdr", [0.05, 0.06], dataset="mine") for name in ("none", "hdr")))
    assert after(results)[["paper", "paper_se", "paper_strength"]].isna().all().all()


def test_cross_has_every_variant_by_every_prerank():
    found = cross(RESULTS, "air")
    assert len(found) == 7
    row = cell(found, variant="marginal", prerank="hdr")
    assert row["mean"] == pytest.approx(0.07)
    assert row.strength == 10.0
    assert row.energy == pytest.approx(1.2)
    assert cell(found, variant="marginal+hdr", prerank="hdr").strength == 30.0
    assert len(cross(RESULTS, "bio")) == 0


@pytest.mark.parametrize("dataset", ["households", "wq"])
def test_cross_tables_stand_beside_those_of_the_paper(dataset):
    entries = [entry for entry in published("cross") if entry["dataset"] == dataset]
    assert len(entries) == 18 * 7
    results = table(
        *(
            rows(entry["variant"], entry["prerank"], [0.1, 0.2], dataset=dataset)
            for entry in reversed(entries)
        )
    )
    found = cross(results, dataset)
    assert len(found) == len(entries)
    for entry in entries:
        row = cell(found, variant=entry["variant"], prerank=entry["prerank"])
        assert row.paper == float(entry["pce"])


def test_published_tables_can_be_changed_without_harm():
    cells, entries = published_cells(), published_cross()
    cells["before"] = 0.0
    entries["pce"] = 0.0
    assert published_cells().before.max() > 0
    assert published_cross().pce.max() > 0


def test_published_cells_agree_with_the_paper_in_the_text():
    found = published_cells().set_index(["dataset", "prerank"])
    assert found.loc[("households", "marginal"), ["before", "after"]].tolist() == [0.095, 0.030]
    assert found.loc[("births2", "hdr"), ["before", "after"]].tolist() == [0.418, 0.428]
    assert found.loc[("air", "scale"), ["before", "after"]].tolist() == [0.198, 0.027]


@pytest.mark.parametrize(
    ("dataset", "variant", "strength"),
    [
        ("households", "dependency", 5.0),
        ("households", "marginal+dependency", 10.0),  # not reported
        ("births2", "pca(0.8)+hdr", 10.0),
        ("scm20d", "copula", 10.0),  # printed as 0.01, run at 10
        ("scm20d", "marginal+copula", 10.0),
        ("mine", "hdr", 10.0),
    ],
)
def test_published_strengths(dataset, variant, strength):
    assert published_strength(dataset, variant) == strength


def test_published_strengths_are_those_of_the_file():
    for entry in published("cells"):
        key = entry["dataset"], entry["prerank"]
        if key != ("scm20d", "copula"):
            assert published_strength(*key) == float(entry["strength"])
    with pytest.raises(InputError):
        published_strength("air", "hdrr")


# Combined penalties, several studies


def test_combined_penalties_are_set_against_the_pre_rank_alone():
    results = table(
        rows("none", "hdr", [0.9], seconds=1.0),
        rows("hdr", "hdr", [0.02, 0.04], energy=1.0, seconds=10.0),
        rows("marginal+hdr", "hdr", [0.03, 0.06], energy=1.1, seconds=15.0),
        rows("marginal+hdr", "marginal", [0.5, 0.5], energy=1.1, seconds=15.0),
        rows("pca(0.8)+hdr", "hdr", [0.03, 0.03], energy=0.9, seconds=40.0),
        rows("marginal+scale", "scale", [0.03, 0.03], seconds=40.0),  # scale alone is not done
    )
    found = combined(results)
    assert len(found) == 2
    row = cell(found, prerank="hdr", **{"with": "marginal"})
    assert (row.alone, row.together) == pytest.approx((0.03, 0.045))
    assert row.increase == pytest.approx(0.5)
    assert row.energy_ratio == pytest.approx(1.1)
    assert row.seconds_ratio == pytest.approx(1.5)
    other = cell(found, prerank="hdr", **{"with": "pca(0.8)"})
    assert (other.increase, other.energy_ratio, other.seconds_ratio) == pytest.approx((0, 0.9, 4))


def test_without_combined_penalties_their_table_is_empty():
    assert len(combined(rows("none", "hdr", [0.9], seconds=1.0))) == 0


def test_studies_are_compared_side_by_side():
    other = RESULTS.assign(pce=RESULTS.pce + 0.01)
    found = compared({"one": RESULTS, "other": other})
    numbers = [
        "before", "before_se", "after", "after_se",
        "strength", "excess_before", "excess_after", "energy_ratio",
    ]  # fmt: skip
    assert found.columns.tolist() == [
        *("dataset", "prerank", "paper_before", "paper_after"),
        *(f"{study} {number}" for study in ("one", "other") for number in numbers),
    ]
    assert found.prerank.tolist() == ["marginal", "hdr"]
    row = cell(found, prerank="marginal")
    # PCEs 0.10, 0.12, 0.14 and 0.03, 0.02, 0.04, and a floor of 0.01.
    errors = [0.12, 0.02 / 3**0.5, 0.03, 0.01 / 3**0.5]
    told = [*errors, 10, 0.11, 0.02, 1.2 / 1.1]
    assert row[[f"one {number}" for number in numbers]].tolist() == pytest.approx(told)
    moved = [0.13, errors[1], 0.04, errors[3], 10, 0.12, 0.03, 1.2 / 1.1]
    assert row[[f"other {number}" for number in numbers]].tolist() == pytest.approx(moved)
    entry = next(e for e in published("cells") if (e["dataset"], e["prerank"]) == ("air", "hdr"))
    row = cell(found, prerank="hdr")
    assert (row.paper_before, row.paper_after) == (float(entry["before"]), float(entry["after"]))


def test_cells_that_not_every_study_has_are_compared_too():
    first = table(
        rows("none", "scale", [0.2, 0.4], dataset="wq"), rows("hdr", "hdr", [0.1], dataset="mine")
    )
    second = table(
        rows("none", "copula", [0.3], dataset="air"), rows("none", "scale", [0.5], dataset="wq")
    )
    found = compared({"first": first, "second": second})
    # In the order in which they appear, not in that of the alphabet.
    places = [["wq", "scale"], ["mine", "hdr"], ["air", "copula"]]
    assert found[["dataset", "prerank"]].to_numpy().tolist() == places
    nan = float("nan")
    for name, values in {
        "first before": [0.3, nan, nan],
        "first after": [nan, 0.1, nan],
        "second before": [0.5, nan, 0.3],
        "second after": [nan, nan, nan],
    }.items():
        assert found[name].tolist() == pytest.approx(values, nan_ok=True)
    assert found.paper_before.isna().tolist() == [False, True, False]


def test_protocols_are_compared_by_what_each_reports():
    parts = [rows(name, "hdr", [0.04, 0.06]) for name in ("none", "hdr")]
    scores = {"published_energy": 3.0, "published_nll": 7.0}
    relaxed = table(*(part.assign(published_pce=part.pce + 0.2, **scores) for part in parts))
    row = cell(compared({"exact": table(*parts), "published": relaxed}), prerank="hdr")
    assert (row["exact before"], row["published before"]) == pytest.approx((0.05, 0.25))
    assert row["exact excess_before"] == row["published excess_before"] == pytest.approx(0.04)


def test_scores_are_told_relative_to_the_unpenalised_runs():
    results = table(
        rows("none", "hdr", [0.1, 0.1], energy=[1.0, 3.0], nll=[-1.0, -3.0]),
        rows("hdr", "hdr", [0.1, 0.1], energy=[2.0, 3.0], nll=[-1.0, -2.0]),
        rows("hdr", "scale", [0.1, 0.1], energy=[2.0, 3.0], nll=[-1.0, -2.0]),
        rows("hdr", "hdr", [0.1, 0.1], energy=9.0, nll=9.0, selected=False, strength=3.0),
        rows("hdr", "hdr", [0.1], dataset="bio"),  # whose unpenalised runs are not done
    )
    found = relative_scores(results)
    assert len(found) == 3
    row = cell(found, dataset="air", variant="hdr")
    assert (row.nll, row.energy) == pytest.approx((0.5, 0.25))
    row = cell(found, variant="none")
    assert (row.nll, row.energy) == (0, 0)
    assert cell(found, dataset="bio")[["nll", "energy"]].isna().all()
    scores = {"published_energy": 4.0, "published_nll": 5.0, "published_pce": 0.1}
    changed = results.assign(**scores).query("selected and dataset == 'air'")
    assert relative_scores(changed)[["nll", "energy"]].eq(0).all().all()


# Frontier


def test_the_frontier_has_every_strength_of_both_parts():
    parts = []
    for part, scale in (("validation", 1.0), ("test", 2.0)):
        for strength, shift, energy in ((0.0, 0.05, 1.0), (3.0, 0.02, 1.1), (30.0, 0.01, 1.4)):
            options = {
                "strength": strength,
                "part": part,
                "energy": scale * energy,
                "selected": strength == 3.0,
            }
            for label, more in (("marginal", 0.0), ("hdr", 0.02), ("scale", 5.0)):
                values = [FLOOR + scale * shift + more] * 2
                parts.append(rows("marginal+hdr", label, values, **options))
    found = frontier(table(*parts, rows("hdr", "hdr", [9.0])), "air", "marginal+hdr")
    assert len(found) == 6
    row = cell(found, part="test", strength=3.0)
    assert row.excess == pytest.approx(0.04 + 0.01)  # the mean of its own two pre-ranks
    assert row.energy_ratio == pytest.approx(1.1)
    assert row.selected
    assert not cell(found, part="validation", strength=30.0).selected
    assert (found[found.strength == 0].energy_ratio == 1).all()


@pytest.mark.parametrize("variant", ["pca(0.8)+hdr", "pca(0.5)+hdr", "pca(2)+hdr"])
def test_the_frontier_finds_the_preranks_of_a_variant(variant):
    results = table(
        rows(variant, "pca", [FLOOR + 0.02], strength=0.0),
        rows(variant, "hdr", [FLOOR + 0.04], strength=0.0),
    )
    assert frontier(results, "air", variant).excess.tolist() == pytest.approx([0.03])


# Evidence


def drawn(seed, runs=5):
    """PCEs of right predictors."""
    rng = np.random.default_rng(seed)
    return rng.choice(null_pce(N), runs).tolist()


def test_evidence_is_strong_against_miscalibrated_runs_and_weak_against_others():
    results = table(
        rows("none", "hdr", drawn(0)),
        rows("none", "scale", [0.05, 0.06, 0.05, 0.07, 0.06]),
        rows("scale", "scale", drawn(1), strength=3.0),
        rows("hdr", "hdr", [0.05, 0.06, 0.05, 0.07, 0.06]),
    )
    found = evidence(results, "none")
    assert cell(found, prerank="hdr").p_value > 0.05
    assert cell(found, prerank="scale").p_value == pytest.approx(1 / 50_001)
    assert cell(found, prerank="scale").p_holm == pytest.approx(2 / 50_001)
    assert cell(found, prerank="hdr").null_mean == pytest.approx(pce_floor(N), rel=0.01)
    own = evidence(results)
    assert cell(own, prerank="hdr").p_value == pytest.approx(1 / 50_001)
    assert cell(own, prerank="scale").p_value > 0.05


def test_p_values_of_right_runs_are_uniform():
    results = table(
        *(rows("none", "hdr", drawn(number), dataset=f"d{number}") for number in range(120))
    )
    found = evidence(results, "none")
    assert len(found) == 120
    assert (found.p_holm == found.p_value).all()  # one pre-rank in each dataset
    assert stats.kstest(found.p_value, "uniform").pvalue > 0.01


def test_the_correction_is_made_within_each_dataset():
    results = table(
        *(
            rows("none", label, [0.2] * 3, dataset=dataset)
            for dataset in ("air", "bio")
            for label in ("hdr", "scale", "location")
        )
    )
    found = evidence(results, "none")
    assert found.p_holm.tolist() == pytest.approx([3 / 50_001] * 6)


def test_nulls_of_several_components_are_averaged_over_the_runs():
    nulls = [[0.01, 0.02, 0.03], [0.03, 0.02, 0.01]]
    results = rows("none", "marginal", [0.02, 0.02])
    results["null"] = [np.array(null) for null in nulls]
    assert mean_null(results).tolist() == pytest.approx([0.02] * 3)
    found = evidence(results, "none")
    assert found.p_value.tolist() == [1.0]  # ties count
    assert evidence(results.assign(pce=0.021), "none").p_value.tolist() == [0.25]


def test_the_null_of_a_mean_is_as_narrow_as_a_mean():
    single = null_pce(N)
    found = mean_null(rows("none", "hdr", [0.1] * 5))
    assert len(found) == len(single)
    assert found.mean() == pytest.approx(single.mean(), rel=0.01)
    # Relative standard error of a standard deviation of 50,000 values: about 0.4 %.
    assert found.std() == pytest.approx(single.std() / 5**0.5, rel=0.02)


def test_cells_without_an_exact_error_have_no_evidence():
    results = table(
        rows("none", "dependency", [np.nan, np.nan]),
        rows("none", "hdr", [0.05, 0.06]),
    )
    assert evidence(results, "none").prerank.tolist() == ["hdr"]


def test_nothing_is_evidence_of_nothing():
    found = evidence(rows("none", "hdr", [0.05]))
    assert len(found) == 0
    assert list(found.columns) == [
        "dataset", "prerank", "observed", "null_mean", "p_value", "p_holm",
    ]  # fmt: skip
