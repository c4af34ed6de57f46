"""The tables of evidence: blocks of data sets, what is resumed, pages and criteria."""

import json

import pandas as pd
import pytest

from evidence import Blocks, blocks, main, part_named, summary
from evidence_criteria import Evidence, excess_p_values, verdicts
from evidence_page import CONTENTS, DOCS, PAGES, TABLES, page_tables
from marked_pages import MARKED, filled


def test_blocks_that_are_done_are_not_computed_again():
    done = pd.DataFrame([{"cell": 1, "seed": seed} for seed in range(1000, 1020)])
    todo = blocks([25, 40], 1000, done)
    assert todo == [
        (0, range(1000, 1020)),
        (0, range(1020, 1025)),
        (1, range(1020, 1040)),
    ]


def test_outcomes_are_kept_and_gone_on_with(tmp_path, monkeypatch):
    def run(count: int) -> pd.DataFrame:
        command = ["evidence", "power", "--data-sets", str(count), "--workers", "1"]
        folders = ["--out", str(tmp_path), "--keep", str(tmp_path / "kept")]
        monkeypatch.setattr("sys.argv", [*command, *folders])
        main()
        return pd.read_csv(tmp_path / "power.csv")

    first = run(20)
    kept = tmp_path / "kept" / "power.jsonl"
    text = kept.read_text()
    assert run(20).equals(first)
    assert kept.read_text() == text
    cells = len(part_named("power").CELLS)
    assert len(text.splitlines()) == 20 * cells
    run(40)
    again = [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(again) == 40 * cells
    assert kept.read_text().startswith(text)


def test_sums_of_blocks_are_kept_and_gone_on_with(tmp_path):
    def found(cell, seeds):
        return [{"cell": cell, "seed": s, "a": float(s % 2), "b": 1.0} for s in seeds]

    path = tmp_path / "missing_blocks.csv"
    kept = Blocks("missing", path)
    assert kept.left(blocks([25], 1000, kept.done)) == [
        (0, range(1000, 1020)),
        (0, range(1020, 1025)),
    ]
    kept.add(found(0, range(1000, 1020)))
    kept.add(found(1, range(1000, 1004)))
    text = path.read_text()
    assert len(text.splitlines()) == 3
    again = Blocks("missing", path)
    assert again.table().equals(kept.table())
    assert again.table().rate.tolist() == [0.5, 1, 0.5, 1]
    assert again.table().data_sets.tolist() == [20, 20, 4, 4]
    # Of a block that was cut short, the rest alone is computed.
    assert again.left(blocks([20, 25], 1000, again.done)) == [
        (1, range(1004, 1020)),
        (1, range(1020, 1025)),
    ]
    again.add(found(1, range(1004, 1020)))
    assert path.read_text().startswith(text)
    assert again.table().data_sets.tolist() == [20] * 4


def test_outcomes_that_a_data_set_does_not_have_are_not_counted():
    table = pd.DataFrame({"cell": 0, "seed": [1, 2], "a": [1.0, 0.0], "b": [1.0, None]})
    found = summary("sizes", table)
    assert found.event.tolist() == ["a", "b"]
    assert found.rate.tolist() == [0.5, 1.0]
    assert found.data_sets.tolist() == [2, 1]


def test_a_rate_above_its_level_by_chance_is_no_evidence():
    table = pd.DataFrame({"rate": [0.056, 0.05, 0.07], "data_sets": 4000})
    p = excess_p_values(table)
    assert p.iloc[0] > 0.05
    assert p.iloc[1] > 0.5
    assert p.iloc[2] < 1e-5


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_show_the_tables(name):
    text = (DOCS / name).read_text()
    assert {marker for _, marker, _ in MARKED.findall(text)} <= set(CONTENTS)
    assert filled(text, page_tables(Evidence(TABLES))) == text


def test_every_table_is_on_a_page():
    texts = [(DOCS / name).read_text() for name in PAGES]
    assert {marker for text in texts for _, marker, _ in MARKED.findall(text)} == set(CONTENTS)


def test_every_criterion_names_what_was_found():
    found = list(verdicts(Evidence(TABLES)))
    assert len(found) >= 10
    assert all(one.found for one in found)


def test_a_page_without_markers_is_an_error():
    with pytest.raises(ValueError, match="without markers"):
        filled("A page.\n", page_tables(Evidence(TABLES)))
