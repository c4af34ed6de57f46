"""What the guide to studies says about plans, against the plans of the package."""

import re
import tomllib
from dataclasses import MISSING, fields

import pytest

from pages import ROOT, blocks
from prerank.datasets import DATASETS
from prerank.study import PRESETS, Plan

PAGE = ROOT / "docs" / "guides" / "studies.md"
TEXT = PAGE.read_text()
ENTRIES = re.findall(r"^\| `([\w.]+)` \| (?:`(.*?)`)? ?\| ", TEXT, re.M)


def test_the_table_of_entries_has_all_of_them_with_their_defaults():
    needed = [field.name for field in fields(Plan) if field.default is MISSING]
    plan = Plan(**{name: "air" if name == "name" else ("none",) for name in needed})
    known = tomllib.loads(plan.to_toml())
    known |= {f"training.{name}": value for name, value in known.pop("training").items()}
    assert [name for name, _ in ENTRIES] == list(known)
    for name, default in ENTRIES:
        if name in needed:
            assert default == ""
        else:
            assert default == str(known[name]).lower()


def test_the_plan_of_the_page_can_be_read():
    (text,) = (block.text for block in blocks(PAGE) if block.language == "{code-block} toml")
    assert Plan.from_toml(text).variants == ("none", "marginal", "hdr", "marginal+hdr")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_described(name):
    assert f"| `{name}` |" in TEXT


def test_datasets_that_cannot_be_fetched_are_named():
    missing = [record.name for record in DATASETS if not record.fetchable]
    assert (len(DATASETS) - len(missing), len(missing)) == (10, 8)
    brought = [name for name in missing if not name.startswith("meps")]
    assert len(missing) - len(brought) == 3  # "the three `meps`"
    assert [name for name in brought if f"`{name}`" not in TEXT] == []
    needed = {*Plan.preset("paper-exact").datasets, *Plan.preset("paper-as-published").datasets}
    assert len(needed & {*missing}) == 4
