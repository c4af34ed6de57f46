"""The tables of the study done again, and what the page claims of them."""

import dataclasses
import re
from pathlib import Path

import pandas as pd
import pytest

import paper
from prerank.study import Store, run_study
from study.tiny import tiny

RESULTS = Path(__file__).parents[2] / "docs" / "results"
KEYS = ["study", "variant", "prerank"]


def rows(study, variant, mean):
    labels = ["marginal", "hdr"]
    return pd.DataFrame({"study": study, "variant": variant, "prerank": labels, "mean": mean})


def test_rows_that_a_table_holds_stay(tmp_path):
    path = tmp_path / "cross.csv"
    paper.add(rows("exact", "hdr", 0.25), path, KEYS)
    first = path.read_text()
    paper.add(rows("exact", "hdr", 0.5), path, KEYS)
    assert path.read_text() == first
    # Others are put where they belong: studies and variants have an order, pre-ranks keep theirs.
    paper.add(pd.concat([rows("exact", "none", 1), rows("published", "pca", 2)]), path, KEYS)
    found = pd.read_csv(path)
    assert found["mean"].tolist() == [2, 2, 1, 1, 0.25, 0.25]
    assert found.prerank.tolist() == ["marginal", "hdr"] * 3


def test_only_parts_of_a_preset_are_taken_and_each_unit_once(tmp_path):
    preset = tiny(datasets=("ar1", "outliers"), variants=("none", "marginal"), max_epochs=1)
    both = dataclasses.replace(preset, datasets=("ar1",))
    for name in ("first", "second"):
        run_study(both, tmp_path / name)
    found = paper.read([tmp_path / "first", tmp_path / "second"], preset)
    assert len(found) == len(Store(tmp_path / "first").results())
    with pytest.raises(SystemExit, match=r"second is no part of tiny"):
        paper.read([tmp_path / "second"], dataclasses.replace(preset, n_samples=30))


def test_claims_are_read_off_the_tables(tmp_path):
    for path in (RESULTS / "tables").glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    paper.combine(tmp_path)
    list(map(list, paper.claims(tmp_path)))
    for path in tmp_path.iterdir():  # those that follow from others, too
        assert path.read_bytes() == (RESULTS / "tables" / path.name).read_bytes()
    assert list(paper.claims(tmp_path / "none")) == []


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for path in (RESULTS / "tables").glob("*.csv"):
        (folder / path.name).write_bytes(path.read_bytes())
    return ["\n".join(lines) for lines in paper.claims(folder)]


def test_the_page_shows_the_tables(told):
    text = (RESULTS / "paper.md").read_text()
    for part in told[:2]:
        shown = [line for line in part.splitlines() if line.startswith("| ")]
        assert len(shown) > 10
        assert [line for line in shown if "---" not in line and line not in text] == []


# What the tables say, and what the page does.
CLAIMS = {
    r"as published, before: (\d+) of (\d+)": r"Before training with a penalty: (\d+) of (\d+)",
    r"as published, after: (\d+) of (\d+)": r"After it: (\d+) of (\d+)",
    r"worse than before in (\d+) of (\d+) cells": r"Worse in (\d+) of (\d+) cells",
    r"standard errors, better in (\d+);": r"standard errors, better in (\d+)\.",
    r"above .02 with .* \((\d+) cells\)": r"1,000 test rows or more: (\d+) cells",
    r"by (\d+)% in the median, (\d+)% to (\d+)%": r"by (\d+) % in the median, (\d+) to (\d+) %",
    r"exact: no harm .* in \d+ of (\d+) cells": r"in none of the (\d+) cells",
    r"cross tables, as published: (\d+) of (\d+)": r"cross tables: (\d+) of (\d+)",
    r"units of .0001" + r"\n\w+ (\d+ → \d+)" * 5: r"exact, mean excess" + r" \| (\d+ → \d+)" * 5,
}


@pytest.mark.parametrize(("claim", "pattern"), CLAIMS.items())
def test_the_page_says_what_the_tables_say(told, claim, pattern):
    text = " ".join((RESULTS / "paper.md").read_text().split())
    (said,) = re.findall(pattern, text)
    (found,) = re.findall(claim, "\n".join(told))
    assert said == found


def test_no_cell_is_harmed(told):
    (found,) = re.findall(r"no harm .* in (\d+) of (\d+) cells", "\n".join(told))
    assert found[0] == found[1]
