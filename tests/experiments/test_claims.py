"""What the pages claim is what the tables say."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from claims import CLAIMS, ROOT, TABLES, page
from headline_page import CONTINUOUS, NAMES, means
from inference import adjusted, dataset_interval, judged_gains, overlap_p, split_ratio
from marked_pages import MARKED

SEEDS = 5


@pytest.mark.parametrize("name", CLAIMS)
def test_a_page_says_what_its_tables_say(name):
    text = (ROOT / name).read_text()
    assert page(name) == text, f"{name} is not made of its tables: experiments/claims.py --fill"
    assert {found[2] for found in MARKED.finditer(text)} == set(CLAIMS[name])


@pytest.mark.parametrize("study", ["published", "exact"])
def test_tables_of_means_follow_from_the_lines_of_their_seeds(study):
    lines = pd.read_csv(TABLES / f"{study}_seeds.csv")
    assert (lines.groupby(["dataset", "variant", "prerank"]).seed.nunique() == SEEDS).all()
    own = lines[lines.variant == lines.prerank].set_index(["dataset", "prerank", "seed"])
    plain = lines[lines.variant == "none"].set_index(["dataset", "prerank", "seed"])
    gain = (plain.pce - own.pce).dropna().groupby(["dataset", "prerank"])
    after = pd.read_csv(TABLES / f"{study}_after.csv").set_index(["dataset", "prerank"])
    found = after.loc[gain.mean().index]
    assert len(found) > 70
    np.testing.assert_allclose(found.gain, gain.mean(), atol=2e-5)
    np.testing.assert_allclose(found.gain_se, gain.std() / SEEDS**0.5, atol=2e-5)


def test_no_cell_of_the_exact_penalty_is_worse_beyond_chance():
    cells = judged_gains(pd.read_csv(TABLES / "exact_after.csv"))
    assert not ((cells.p_value < 0.05) & (cells.gain < 0)).any()


def test_the_test_of_overlapping_splits_has_its_size():
    """With correlation r the variance is right for a ratio of r / (1 - r), so that t is exact."""
    ratio, draw, tries = 0.4, np.random.default_rng(0), 4_000
    own, common = draw.normal(size=(tries, SEEDS)), draw.normal(size=(tries, 1))
    found = own + ratio**0.5 * common
    p = overlap_p(found.mean(1), found.std(1, ddof=1) / SEEDS**0.5, SEEDS, ratio)
    assert abs((p < 0.05).mean() - 0.05) < 4 * (0.05 * 0.95 / tries) ** 0.5
    assert split_ratio("wq") == pytest.approx(212 / 530)


def test_the_false_discovery_rate_by_hand():
    # Benjamini and Hochberg (1995): p times the number of tests over its rank, made monotone.
    np.testing.assert_allclose(adjusted([0.01, 0.04, 0.03, 0.5]), [0.04, 0.16 / 3, 0.16 / 3, 0.5])


def test_the_interval_over_datasets_covers():
    """Cells of one dataset share an effect: an interval that draws cells would be too narrow."""
    draw, hits, tries = np.random.default_rng(0), 0, 60
    index = pd.Index(np.repeat([f"d{k}" for k in range(30)], 5), name="dataset")
    for _ in range(tries):
        effects = np.repeat(draw.normal(size=30), 5) + 0.1 * draw.normal(size=150)
        low, high = dataset_interval(pd.Series(effects, index), "mean")
        hits += low < 0 < high
    # Of 60 intervals of 95 %, 50 or fewer cover once in 10,000 tries; of cells alone, about 38 do.
    assert hits > 50


def test_the_first_table_is_the_mean_of_its_datasets():
    shown = re.search(
        r"\| calibration head \| (\d+) \(\d+\) \| (\d+) ", (ROOT / "README.md").read_text()
    )
    found = means(TABLES, CONTINUOUS).loc["calibration head"]
    assert [int(text) for text in shown.groups()] == [
        round(1e4 * found.excess.mean()),
        round(1e4 * found.unseen.mean()),
    ]


def test_every_line_of_the_rivals_is_there():
    runs = ["dataset", "seed", "forecast", "method", "judged"]
    for path in sorted(Path(TABLES / "headline").glob("*.csv")):
        lines = pd.read_csv(path)
        lines = lines[pd.MultiIndex.from_frame(lines[["forecast", "method"]]).isin(list(NAMES))]
        forms = lines.judged.nunique()
        assert len(lines[runs].drop_duplicates()) == SEEDS * len(NAMES) * forms
