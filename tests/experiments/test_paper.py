"""The tables of the study done again, and what the page claims of them."""

import dataclasses
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


def test_new_rows_of_a_table_replace_old_ones_of_their_keys(tmp_path):
    path = tmp_path / "cross.csv"
    paper.add(rows("exact", "hdr", 0.25), path, KEYS)
    paper.add(rows("exact", "hdr", 0.5), path, KEYS)
    # Others are put where they belong: studies, variants and pre-ranks have an order.
    paper.add(pd.concat([rows("exact", "none", 1), rows("published", "pca", 2)]), path, KEYS)
    found = pd.read_csv(path)
    assert found["mean"].tolist() == [2, 2, 1, 1, 0.5, 0.5]
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


def test_collecting_again_changes_nothing(tmp_path):
    preset = tiny(datasets=("ar1",), variants=("none", "marginal"), max_epochs=1)
    run_study(preset, tmp_path / "study")
    results = Store(tmp_path / "study").results()
    for _ in range(2):
        paper.collect(results, "exact", tmp_path)
        lines = pd.read_csv(tmp_path / "exact_seeds.csv")
        assert len(lines) == len(results[(results.part == "test") & results.selected])
        found = pd.read_csv(tmp_path / "exact_before.csv").set_index("prerank")["mean"]
        own = lines[lines.variant == "none"].groupby("prerank").pce.mean()
        assert found.to_dict() == pytest.approx(own.to_dict(), rel=1e-4)


def test_combined_tables_follow_from_the_cross_tables(tmp_path):
    for path in (RESULTS / "tables").glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    paper.combine(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (RESULTS / "tables" / path.name).read_bytes()
