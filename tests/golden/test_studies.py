"""Folders of studies: finished ones stay as they are, interrupted ones are resumed."""

import shutil

import pytest

from golden.commands import command
from golden.compare import EXACT, check_same
from golden.studies import (
    PLANS,
    STUDIES,
    make_comparison,
    make_contents,
    make_report,
    make_rows,
    make_study,
    make_table,
)
from pictures import leave_blank
from prerank.study import Plan, Store, run_study

FINISHED = [*PLANS]


@pytest.fixture
def copy(tmp_path):
    """Copy a golden study, which a test may change."""
    return lambda name: shutil.copytree(STUDIES / name, tmp_path / name)


@pytest.mark.parametrize("name", FINISHED)
def test_the_plan_is_read_and_written_as_before(name):
    text = (STUDIES / name / "plan.toml").read_text(encoding="utf-8")
    assert Plan.from_toml(text) == PLANS[name]
    assert Plan.from_toml(PLANS[name].to_toml()) == PLANS[name]


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_study_is_left_as_it_is(name, copy):
    folder = copy(name)
    before = make_contents(folder)
    assert Store(folder).left() == []
    assert Store(folder).broken() == {}
    words = ("study", "run", "plan.toml", "--out", ".", "--device", "cpu", "--verify")
    done = command(*words, cwd=folder)
    assert (done.code, done.error) == (0, "")
    assert make_contents(folder) == before


@pytest.mark.parametrize("name", FINISHED)
def test_running_a_study_again_gives_the_same_rows(name, tmp_path):
    make_study(name, tmp_path)
    check_same(make_rows(tmp_path), make_rows(STUDIES / name), trained=True)
    files = {path for path in make_contents(STUDIES / name) if path.startswith("results/")}
    assert files <= set(make_contents(tmp_path))


def test_an_interrupted_study_is_resumed_from_its_checkpoint(copy):
    folder, seen = copy("interrupted"), []
    left = {(unit.dataset, unit.variant) for unit in Store(folder).left()}
    assert left == {("ar1", "marginal"), ("outliers", "none"), ("outliers", "marginal")}
    outcome = run_study(PLANS["finished"], folder, on_progress=seen.append)
    assert outcome.left == ()
    assert {(unit.dataset, unit.variant) for unit in outcome.finished} == left
    first = next(progress for progress in seen if progress.training is not None)
    assert (first.unit.dataset, first.unit.variant, first.training.epoch) == ("ar1", "marginal", 2)
    check_same(make_rows(folder), make_rows(STUDIES / "finished"), trained=True)


@pytest.mark.parametrize("name", FINISHED)
def test_tables_of_the_report(name, tmp_path, monkeypatch):
    leave_blank(monkeypatch)
    found = make_report(STUDIES / name, tmp_path / "report")
    stored = STUDIES / "reports" / name
    assert [path.name for path in found] == sorted(path.name for path in stored.iterdir())
    for path in found:
        _check_table(path, stored / path.name)
    assert (tmp_path / "report" / "report.html").is_file()


def test_the_table_that_compares_studies(tmp_path):
    _check_table(make_comparison(tmp_path / "compared.csv"), STUDIES / "reports" / "compared.csv")


def _check_table(found, stored):
    check_same(make_table(found), make_table(stored))
    if EXACT:
        assert found.read_bytes() == stored.read_bytes()
