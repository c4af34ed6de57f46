"""The records of the paper's datasets."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prerank.datasets import (
    DATASETS,
    Dataset,
    Origin,
    find_dataset,
)
from prerank.datasets.registry import canonical_name
from prerank.errors import InputError

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
MANIFEST = DATA / "MANIFEST.json"
PAPER = DATA.parent / "paper" / "pce_before.csv"

here = pytest.mark.skipif(not MANIFEST.is_file(), reason=f"{DATA} is not here")


def test_all_eighteen():
    assert len(DATASETS) == len({record.name for record in DATASETS}) == 18
    assert sum(record.fetchable for record in DATASETS) == 10
    spellings = [name for record in DATASETS for name in (record.name, *record.aliases)]
    assert len(spellings) == len(set(spellings))
    assert {record.n_targets for record in DATASETS} <= set(range(2, 17))
    assert max(record.n_inputs or 0 for record in DATASETS) == 279
    assert sum(record.n_targets == 2 for record in DATASETS) == 11


def test_records_tell_all():
    for record in DATASETS:
        assert record.rule
        assert record.licence
        assert record.deviation
        assert len(record.targets) == len(set(record.targets)) == record.n_targets
        assert record.fetchable or len(record.bring) > 20
        if record.origin:
            assert len(record.origin.commit) == 40
            assert record.origin.commit in record.origin.url
            assert record.origin.url.startswith("https://")
        if record.fetchable:
            assert len(record.origin.sha256) == 64
            assert record.origin.size > 0


def test_other_spellings():
    for alias, name in {"blogdata": "blog_data", "meps19": "meps_19", "air": "air"}.items():
        assert find_dataset(alias).name == canonical_name(alias) == name


@pytest.mark.parametrize(
    ("name", "words"),
    [("hous", "did you mean house"), ("BIRTHS1", "births1"), ("", "there are"), ("zzz", "wq, ")],
)
def test_an_unknown_name(name, words):
    with pytest.raises(InputError, match=words):
        find_dataset(name)


def test_a_name_like_no_other_lists_all():
    with pytest.raises(InputError) as caught:
        find_dataset("zzzzzz")
    assert str(caught.value).endswith(", ".join(record.name for record in DATASETS))


@here
def test_facts_of_the_manifest():
    manifest = json.loads(MANIFEST.read_text())
    assert {d["name"] for d in manifest["datasets"] + manifest["missing"]} == {
        record.name for record in DATASETS
    }
    for facts in manifest["datasets"]:
        record = find_dataset(facts["name"])
        assert (record.n_inputs, record.n_targets) == (facts["n_features_L"], facts["n_targets_D"])
        assert list(record.targets) == facts["target_columns"]
        if record.name not in ("calcofi", "taxi"):
            assert record.n_rows == facts["n_rows"]
    originals = {facts["name"]: facts for facts in manifest["raw_files"]["files"]}
    assert set(originals) == {record.name for record in DATASETS if record.fetchable}
    for name, facts in originals.items():
        origin = find_dataset(name).origin
        assert (origin.repository, origin.commit, origin.path, origin.sha256, origin.size) == tuple(
            facts[key] for key in ("repository", "commit", "path", "sha256", "bytes")
        )


@here
def test_names_of_the_paper():
    lines = PAPER.read_text().splitlines()[1:]
    assert {find_dataset(line.split(",")[0]).name for line in lines} == {d.name for d in DATASETS}


# Records

ORIGIN = Origin("someone/tables", "1" * 40, "deep/down/two words.csv", "a" * 64, 10)
RECORD = Dataset("rivers", 20, 3, 1, ("flow",), "by name", "CC0", origin=ORIGIN)


def test_addresses():
    assert ORIGIN.file == "two words.csv"
    assert ORIGIN.url.endswith(f"/someone/tables/{'1' * 40}/deep/down/two%20words.csv")
    assert ORIGIN.at("http://host/") == ORIGIN.at("http://host") == "http://host/two%20words.csv"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"targets": ()}, "1 targets, but 0 names"),
        ({"n_targets": 2}, "2 targets, but 1 names"),
        ({"origin": None}, "bring"),
        ({"origin": replace(ORIGIN, sha256="")}, "bring"),
        ({"origin": replace(ORIGIN, size=0)}, "bring"),
    ],
)
def test_records_that_do_not_fit_together(changes, words):
    with pytest.raises(InputError, match=words):
        replace(RECORD, **changes)
