"""Units with a calibration head behind the unpenalised runs: what is fitted, judged and resumed."""

import math

import pandas as pd
import pytest
import torch

from prerank import CalibrationHead
from prerank.datasets import published_split
from prerank.errors import InputError
from prerank.files import CheckpointFile
from prerank.study import HEAD, NONE, Plan, Store, Unit, run_study, tables
from prerank.study.engines import open_engine
from prerank.study.headed_runs import HeadedNetwork
from prerank.study.page_tables import page_table
from prerank.study.protocols import Problem, run_variant
from prerank.study.report_files import study_page, write_comparison, write_report
from prerank.study.runner import unit_cost
from prerank.training import Checkpoint, Interrupted, evaluate
from prerank.training.cross_fitting import forecast_unseen
from study.tiny import rows_of, tiny

PLAN = tiny(datasets=("triple",), variants=(NONE, HEAD), max_epochs=40, n_null=20)


@pytest.fixture(scope="module")
def headed(data, tmp_path_factory):
    """Folder of a finished study of one dataset."""
    folder = tmp_path_factory.mktemp("headed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRERANK_DATA", str(data))
        assert run_study(PLAN, folder).left == ()
    return folder


@pytest.fixture
def problem(data, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(data))
    return Problem("triple", PLAN)


def test_every_run_is_judged_on_test_rows_by_every_prerank(headed):
    rows = Store(headed).results()
    own = rows[rows.variant == HEAD]
    assert set(own.part) == {"test"}  # the head is fitted to validation rows
    assert own.selected.all()
    assert (own.strength == 0).all()
    assert len(own) == len(PLAN.seeds) * 7
    base = rows[(rows.variant == NONE) & (rows.part == "test")]
    keys = ["seed", "prerank", "n", "floor"]
    both = [rows[keys].sort_values(keys).reset_index(drop=True) for rows in (own, base)]
    pd.testing.assert_frame_equal(*both)


def test_heads_are_fitted_to_validation_and_calibration_rows_and_judged_as_networks_are(
    headed, problem
):
    store = Store(headed)
    rows, base = store.results(), store.read_base("triple", "cpu")
    for m, run in enumerate(problem.runs((0.0,))):
        split = published_split(len(problem.data.x[0]), run.seed)
        unseen = torch.cat([split.validation, split.calibration])
        theta = base[m : m + 1]
        dist, y = forecast_unseen(problem.network, problem.data, theta, [run], [unseen])
        head = CalibrationHead(seed=run.seed).fit(dist, y)
        network = HeadedNetwork(problem.network, head.change_)
        x, y = (part[m : m + 1] for part in problem.part("test", problem.runs((0.0,))))
        found = evaluate(network, theta, x, y, problem.preranks, n_samples=PLAN.n_samples)
        own = rows[(rows.variant == HEAD) & (rows.seed == run.seed)].set_index("prerank")
        for label, value in found.pce.items():
            # The same numbers in the same order: only threads may round differently.
            assert own.pce[label] == pytest.approx(float(value), abs=1e-6)
        assert own.nll.iloc[0] == pytest.approx(float(found.nll), rel=1e-6)


@pytest.mark.slow
def test_a_head_calibrates_a_misspecified_forecast():
    plan = tiny(datasets=("outliers",), seeds=(0,), n_null=5)
    outliers = Problem("outliers", plan)
    before, base = run_variant(outliers, NONE)
    after, theta = run_variant(outliers, HEAD, base=base)
    assert torch.equal(theta, base)
    old, new = (
        t[(t.part == "test") & t.selected].set_index("prerank").pce - t.floor.iloc[0]
        for t in (before, after)
    )
    # One Gaussian for data with outliers: an excess of .18 of the scale. 600 test rows: the PCE of
    # a calibrated forecast has a standard deviation of .006.
    assert old["scale"] > 0.1
    assert new["scale"] < 0.03
    assert new.mean() < old.mean() / 2


def test_a_head_needs_unpenalised_parameters(problem):
    with pytest.raises(InputError, match=r"base: the variant 'head' starts"):
        run_variant(problem, HEAD)


def test_the_published_protocol_has_no_head():
    with pytest.raises(InputError, match="published protocol has no head"):
        tiny(variants=(NONE, HEAD), protocol="published", strengths="auto")
    with pytest.raises(InputError, match="nothing twice"):
        tiny(variants=(HEAD, HEAD))


def test_the_preset_is_the_exact_study_with_heads_in_the_place_of_penalties():
    plan, exact = Plan.preset("paper-head"), Plan.preset("paper-exact")
    assert plan.variants == (NONE, HEAD)
    assert (
        plan.changed({"name": '"paper-exact"'}).to_toml()
        == exact.changed({"variants": '["none", "head"]'}).to_toml()
    )
    assert unit_cost(plan, HEAD, 3000) == unit_cost(plan, NONE, 3000) > 0


# Interrupted


def test_heads_that_were_fitted_are_kept_when_time_is_up(headed, problem, tmp_path):
    base = Store(headed).read_base("triple", "cpu")
    file = CheckpointFile(tmp_path / "unit")
    passed = Checkpoint(file, until=-math.inf)
    with pytest.raises(Interrupted):
        run_variant(problem, HEAD, base=base, checkpoint=passed)
    assert list(tmp_path.iterdir()) == []
    run, theta, unseen = problem.runs((0.0,))[0], base[:1], problem.rows["unseen"][0]
    arguments = problem.network, problem.data, theta, run, unseen
    first = HeadedNetwork.fit(*arguments, Checkpoint(file))
    (kept,) = tmp_path.iterdir()
    again = HeadedNetwork.fit(*arguments, passed)  # no time is left, and none is needed
    assert all(torch.equal(a, b) for a, b in zip(first.change, again.change, strict=True))
    # Of other parameters, nothing is known; a damaged file is left aside.
    with pytest.raises(Interrupted):
        HeadedNetwork.fit(*arguments[:2], theta + 1, *arguments[3:], passed)
    kept.write_bytes(kept.read_bytes()[:100])
    with pytest.raises(Interrupted):
        HeadedNetwork.fit(*arguments, passed)
    assert list(tmp_path.iterdir()) == []


def test_a_study_without_time_is_resumed_to_the_same_rows(headed, data, tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(data))
    outcome = run_study(PLAN, tmp_path, time_limit=0)
    assert outcome.interrupted
    assert len(outcome.left) == 2
    assert run_study(PLAN, tmp_path).left == ()
    pd.testing.assert_frame_equal(
        rows_of(Store(tmp_path).results()), rows_of(Store(headed).results())
    )
    assert not list((tmp_path / "checkpoints").glob("*"))


@pytest.mark.slow
def test_heads_are_the_same_in_worker_processes(headed, data, tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(data))
    engine = open_engine("processes", workers=2, tasks=2, address=None, environment={})
    assert run_study(PLAN, tmp_path, engine=engine).left == ()
    one, other = (rows_of(Store(folder).results()) for folder in (headed, tmp_path))
    pd.testing.assert_frame_equal(one, other, rtol=1e-4, atol=1e-4)  # other numbers of threads


# Reports


def test_a_report_of_heads_alone_has_them_in_the_place_of_penalties(headed, tmp_path, undrawn):
    page = write_report(Store(headed), tmp_path / "report")
    text = page.read_text(encoding="utf-8")
    assert "calibration head lowered the calibration error in" in text
    assert ">Behind a calibration head</h2>" in text
    table = pd.read_csv(page.parent / "head.csv")
    results = Store(headed).results()
    own = results[results.variant == HEAD].groupby("prerank", sort=False).pce.mean()
    assert table.prerank.tolist() == list(own.index)
    assert table["mean"].tolist() == pytest.approx(own.tolist(), rel=1e-5)
    assert not len(pd.read_csv(page.parent / "after.csv"))
    assert len(pd.read_csv(page.parent / "evidence_head.csv")) == 7
    made = study_page(Store(headed), {"head": table, "before": table, "after": table[:0]}, {})
    shown = page_table(table, Store(headed).plan.n_null)
    assert list(made.sections[0].legend) == list(shown.columns)


def test_a_comparison_has_the_head_after_its_base(headed, exact, tmp_path):
    write_comparison([headed, exact], tmp_path / "both.csv")
    table = pd.read_csv(tmp_path / "both.csv").set_index(["dataset", "prerank"])
    rows = Store(headed).results()
    after = tables.after(rows, HEAD).set_index("prerank")["mean"]
    column = next(name for name in table.columns if name.endswith(f"{headed.name} after"))
    assert table[column]["triple", "hdr"] == pytest.approx(after["hdr"], rel=1e-5)


def test_units_of_heads_have_their_own_files(headed):
    assert Unit("triple", HEAD).stem == "triple--head"
    assert (headed / "results" / "triple--head.parquet").exists()
