"""`prerank study`, as a user runs it."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pandas as pd
import pytest

from cli.commands import COMMAND, SETTINGS, call, refused, run, said
from prerank.study import PRESETS, Plan, Store
from study.tiny import contents, rows_of, tiny

PLAN = tiny(datasets=("ar1",), variants=("none", "marginal"), max_epochs=2)


def study(*arguments, **options):
    return call("study", *arguments, **options)


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")


def write(path, plan):
    path.write_text(plan.to_toml(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study that was run to its end, and what was said."""
    folder = tmp_path_factory.mktemp("cli")
    write(folder / "plan.toml", PLAN)
    words = ("plan.toml", "--out", "study", "--device", "cpu", "--engine", "local")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return study("run", *words), folder


@pytest.fixture
def copy(whole, tmp_path):
    """A copy of its folder, to be harmed."""
    shutil.copytree(whole[1] / "study", tmp_path / "study")
    return tmp_path / "study"


def failed(done, *words):
    """Exit code 1, and one line that says why."""
    line = refused(done)
    assert all(word in line for word in words)


# run


def test_a_study_is_run_to_its_end(whole):
    done, folder = whole
    assert done.exit_code == 0, done.stderr
    estimate, *lines = done.stderr.splitlines()  # outside a terminal
    assert re.fullmatch(r"About \d+ s for 2 units on 1 process here \(CPU\)\.", estimate)
    assert re.fullmatch(r" *\d+% ar1, none: epoch 1; 0 of 2 units; about [\d.]+ \w+ left", lines[0])
    assert re.fullmatch(r"100% ar1, marginal: done; 2 of 2 units; about 1 s left", lines[-1])
    shares = [int(line.split("%")[0]) for line in lines]
    assert shares == sorted(shares)
    assert "All 2 units are done, 2 of them by this call" in done.stdout
    assert "prerank study report study\n" in done.stdout
    store = Store(folder / "study")
    assert store.plan == PLAN
    assert all(map(store.done, store.units))


def test_run_again_it_does_nothing(whole):
    _, folder = whole
    before = contents(folder)
    plan, out = folder / "plan.toml", folder / "study"
    done = study("run", plan, "--out", out, "--time-limit", "0")
    assert done.exit_code == 0
    assert "All 2 units are done, 0 of them by this call" in done.stdout
    assert contents(folder) == before


def test_time_that_is_up_gives_exit_code_3_and_the_study_goes_on(whole, tmp_path):
    _, folder = whole
    plan = write(tmp_path / "plan.toml", PLAN)
    words = ("run", plan, "--out", tmp_path / "study", "--device", "cpu", "--engine", "local")
    done = study(*words, "--time-limit", "0.02")
    assert done.exit_code == 3, done.stderr
    assert "Error" not in done.stderr
    assert re.search(r"(1 unit is|2 units are) left, [01] done by this call", done.stdout)
    later = study(*words, "--quiet")
    assert later.exit_code == 0
    assert later.stderr == ""
    one, two = (rows_of(Store(path / "study").results()) for path in (folder, tmp_path))
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_a_terminal_sees_units_epochs_and_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    plan = write(tmp_path / "plan.toml", PLAN)
    done = study("run", plan, "--out", tmp_path / "study", "--device", "cpu", "--engine", "local")
    assert done.exit_code == 0
    for unit, runs in [("ar1, none", 2), ("ar1, marginal", 4)]:
        words = rf"{unit} .* 50% epoch 1, {runs} of {runs} runs, [0-9.]+ steps/s"
        assert re.search(words, done.stderr)
    assert re.search(r"study .*1 of 2 units; about \d+ s left", done.stderr)


def test_presets_can_be_run_by_name(tmp_path):
    done = study("run", "quick", "--out", tmp_path, "--time-limit", "0")
    assert done.exit_code == 3
    assert "12 units are left" in done.stdout
    assert Store(tmp_path).plan == Plan.preset("quick")


def test_entries_of_the_plan_can_be_changed(tmp_path):
    options = ["--time-limit", 0, "--set", "tau=50.0", "--set", "training.lr = 0.5"]
    assert study("run", "quick", "--out", tmp_path, *options).exit_code == 3
    plan = Store(tmp_path).plan
    assert (plan.tau, plan.training.lr) == (50.0, 0.5)
    failed(study("run", "quick", "--out", tmp_path, "--time-limit", 0), "another study")


BAD_PLANS = {
    "no TOML": ("name = ", "TOML"),
    "an unknown entry": (PLAN.to_toml().replace("tau", "tua"), "tua"),
    "a wrong type": (PLAN.to_toml().replace("tau = 100.0", 'tau = "high"'), "tau"),
    "a prerank that there is not": (PLAN.to_toml().replace('"marginal"', '"margin"'), "margin"),
}


@pytest.mark.parametrize("what", BAD_PLANS)
def test_a_bad_plan_is_told_in_one_line(tmp_path, what):
    text, word = BAD_PLANS[what]
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    failed(study("run", tmp_path / "plan.toml", "--out", tmp_path / "study"), word)
    assert not (tmp_path / "study").exists()
    failed(study("plan", tmp_path / "plan.toml"), word)


def test_a_plan_that_cannot_be_read_is_named_and_presets_are_listed(tmp_path):
    failed(study("run", "quik", "--out", tmp_path / "study"), "quik", *PRESETS)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("change", ["tau", "tua=3.0", "tau=high", "training.mass=1"])
def test_changes_that_cannot_be_made_are_told_in_one_line(tmp_path, change):
    failed(study("run", "quick", "--out", tmp_path / "study", "--set", change), change[:3])
    assert not (tmp_path / "study").exists()


def test_another_study_in_the_folder_is_told_in_one_line(whole):
    _, folder = whole
    before = contents(folder)
    failed(study("run", "quick", "--out", folder / "study"), "another study", "folder")
    assert contents(folder) == before


def test_a_dataset_that_is_missing_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    plan = write(tmp_path / "plan.toml", tiny(datasets=("air",)))
    failed(study("run", plan, "--out", tmp_path / "study"), "no table of air", "datasets list")


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "", "cuda;0"])
def test_a_device_that_there_is_not_is_told_in_one_line(tmp_path, device):
    plan = write(tmp_path / "plan.toml", PLAN)
    failed(study("run", plan, "--out", tmp_path / "study", "--device", device), "device")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("run", "quick"), "--out"),
        (("run",), "plan"),
        (("run", "quick", "--out", __file__), "--out"),
        (("run", "quick", "--out", "x", "--workers", "0"), "--workers"),
        (("run", "quick", "--out", "x", "--engine", "threads"), "--engine"),
        (("run", "quick", "--out", "x", "--time-limit", "-1"), "--time-limit"),
        (("run", "quick", "--out", "x", "--time-limit", "nan"), "--time-limit"),
        (("run", "quick", "--out", "x", "--time-limit", "soon"), "--time-limit"),
        (("report", __file__), "folder"),
        (("compare", "x"), "--out"),
        (("walk",), "walk"),
    ],
    ids=lambda value: " ".join(value)[-30:] if isinstance(value, tuple) else "",
)
def test_bad_arguments_exit_with_2(place, arguments, word):
    done = study(*arguments)
    assert done.exit_code == 2
    assert word in done.output.lower()
    assert list(place.iterdir()) == []


def test_a_narrow_terminal_breaks_no_path(tmp_path):
    folder = tmp_path / "a folder with a rather long name, as they often have"
    failed(study("status", folder, columns=40), str(folder))


def test_a_folder_may_have_brackets_in_its_name(copy, tmp_path):
    copy.rename(tmp_path / "[bold]study")
    done = study("compare", tmp_path / "[bold]study", "--out", tmp_path / "[red].csv")
    assert done.exit_code == 0
    assert str(tmp_path / "[red].csv") in done.stdout


# report, compare


def test_a_report_is_written_and_its_place_is_told(whole, tmp_path, unpainted):
    _, folder = whole
    done = study("report", folder / "study", "--out", tmp_path)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert str(tmp_path / "report.html") in done.stdout
    assert "2 of 2 units are done" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "bars.png").read_bytes() == b"drawn"
    assert len(pd.read_csv(tmp_path / "before.csv")) == 7


@pytest.mark.parametrize("command", ["report", "status"])
def test_a_folder_without_a_study_is_named(tmp_path, command):
    failed(study(command, tmp_path), "no study", str(tmp_path))
    failed(study(command, tmp_path / "absent"), "absent")
    assert list(tmp_path.iterdir()) == []


def test_a_study_without_results_cannot_be_reported(tmp_path):
    Store(tmp_path / "study", PLAN)
    failed(study("report", tmp_path / "study"), "no results yet")
    failed(study("compare", tmp_path / "study", "--out", tmp_path / "x.csv"), "no results yet")
    assert not (tmp_path / "x.csv").exists()


def test_a_broken_result_is_named(copy):
    (copy / "results" / "ar1--marginal.parquet").write_bytes(b"PAR1")
    failed(study("report", copy), "ar1--marginal.parquet", "Remove it")


def test_status_names_broken_results_where_that_is_asked_for(copy):
    assert "broken" not in study("status", copy, "--verify").stdout
    path = copy / "results" / "ar1--marginal.parquet"
    path.write_bytes(b"PAR1")
    assert "broken" not in study("status", copy).stdout
    assert f"broken: cannot read {path}" in study("status", copy, "--verify").stdout
    told = json.loads(study("status", copy, "--verify", "--json").stdout)
    assert list(told["broken"]) == [str(path)]


def test_results_of_an_edited_plan_are_not_removed(copy):
    plan = copy / "plan.toml"
    plan.write_text(Plan.read(plan).changed({"n_samples": "77"}).to_toml())
    before = contents(copy)
    done = study("run", plan, "--out", copy, "--device", "cpu", "--verify")
    failed(done, "ar1--none.parquet", "another plan", "Put plan.toml back")
    assert contents(copy) == before


def test_datasets_that_are_not_there_are_refused_before_anything_is_written(tmp_path):
    out = tmp_path / "study"
    done = study("run", "quick", "--out", out, "--set", 'datasets=["ar1", "nonesuch"]')
    failed(done, "no table of nonesuch", "prerank datasets list", "import")
    assert not out.exists()


def test_the_next_command_can_be_copied(whole, place):
    write(place / "plan.toml", PLAN)
    for out, next_one in (("a b", "'a b'"), ("-dash", "./-dash")):
        shutil.copytree(whole[1] / "study", place / out)
        done = study("run", "plan.toml", f"--out={out}", "--device", "cpu", "--quiet")
        assert done.stdout.rstrip().endswith(f"Next: prerank study report {next_one}")


def test_a_broken_result_is_made_again_where_that_is_asked_for(whole, copy):
    _, folder = whole
    (copy / "results" / "ar1--marginal.parquet").write_bytes(b"PAR1")
    options = ["--out", copy, "--device", "cpu", "--quiet"]
    done = study("run", folder / "plan.toml", *options, "--verify")
    assert done.exit_code == 0
    assert "ar1--marginal.parquet is removed, and made again" in done.stderr
    assert "All 2 units are done, 1 of them by this call" in done.stdout
    one, two = (rows_of(Store(path).results()) for path in (folder / "study", copy))
    pd.testing.assert_frame_equal(one, two, check_exact=True)
    assert study("run", folder / "plan.toml", *options, "--verify").stderr == ""


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--engine", "local", "--workers", 2], "workers"),
        (["--engine", "processes", "--address", "auto"], "address"),
        (["--address", "auto"], "address"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
    ids=str,
)
def test_engines_that_cannot_be_had_are_told_in_one_line(tmp_path, options, word):
    plan = write(tmp_path / "plan.toml", PLAN)
    failed(study("run", plan, "--out", tmp_path / "study", *options), word)


def test_a_place_that_cannot_be_written_is_named(whole, tmp_path, unpainted):
    _, folder = whole
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "x"
    plan = write(tmp_path / "plan.toml", PLAN)
    failed(study("run", plan, "--out", out), f"cannot write {out / 'plan.toml'}")
    failed(study("report", folder / "study", "--out", out), f"cannot write {out}")
    failed(study("compare", folder / "study", "--out", out), f"cannot write {out}")


def test_a_study_is_not_overwritten_by_a_comparison_nor_compared_with_itself(whole, tmp_path):
    _, folder = whole
    before = contents(folder / "study")
    done = study("compare", folder / "study", "--out", folder / "study" / "plan.toml")
    failed(done, "--out", "lies in the study")
    done = study("compare", folder / "study", folder / "study", "--out", tmp_path / "x.csv")
    failed(done, "is given twice")
    assert contents(folder / "study") == before


def test_studies_are_compared_in_one_table(whole, tmp_path):
    _, folder = whole
    shutil.copytree(folder / "study", tmp_path / "other")
    out = tmp_path / "new" / "both.csv"
    done = study("compare", folder / "study", tmp_path / "other", "--out", out)
    assert done.exit_code == 0
    assert "7 rows" in done.stdout
    found = pd.read_csv(out)
    assert found.dataset.tolist() == ["ar1"] * 7
    one, other = (found[f"{path} after"] for path in (folder / "study", tmp_path / "other"))
    assert one.notna().tolist() == [label == "marginal" for label in found.prerank]
    pd.testing.assert_series_equal(one, other, check_names=False)


def test_studies_side_by_side_are_named_by_the_last_part_of_their_paths(whole, tmp_path):
    _, folder = whole
    for name in ("exact", "published"):
        shutil.copytree(folder / "study", tmp_path / name)
    out = tmp_path / "both.csv"
    assert study("compare", tmp_path / "exact", tmp_path / "published", "--out", out).exit_code == 0
    columns = pd.read_csv(out).columns
    assert [name for name in columns if name.endswith(" strength")] == [
        "exact strength", "published strength",
    ]  # fmt: skip


def test_a_comparison_says_which_study_is_unfinished(whole, copy, tmp_path):
    _, folder = whole
    (copy / "results" / "ar1--marginal.parquet").unlink()
    done = study("compare", folder / "study", copy, "--out", tmp_path / "both.csv")
    assert done.exit_code == 0
    assert done.stderr == f"{copy} is not finished: 1 unit is left\n"


# status, plan


def test_status_of_a_folder_that_is_none_is_told_in_one_line(tmp_path):
    write(tmp_path / "plan.toml", PLAN)
    (tmp_path / "results").touch()
    failed(study("status", tmp_path), "results")


def test_status_says_what_is_left(whole, copy):
    _, folder = whole
    assert study("status", folder / "study").stdout == "tiny: 2 of 2 units done\n"
    (copy / "results" / "ar1--marginal.parquet").unlink()
    done = study("status", copy)
    assert done.exit_code == 0
    assert done.stdout == "tiny: 1 of 2 units done\nleft: ar1, marginal\n"
    found = json.loads(study("status", copy, "--json").stdout)
    left = [{"dataset": "ar1", "variant": "marginal"}]
    assert found == {"plan": "tiny", "units": 2, "left": left}


@pytest.mark.parametrize("name", PRESETS)
def test_a_plan_is_printed_to_be_changed_and_run(tmp_path, name):
    done = study("plan", name)
    assert done.exit_code == 0
    assert Plan.from_toml(done.stdout) == Plan.preset(name)
    (tmp_path / "mine.toml").write_text(done.stdout, encoding="utf-8")
    assert study("plan", tmp_path / "mine.toml").stdout == done.stdout


def test_a_plan_says_how_long_it_will_take_where_its_datasets_are_here(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))
    plan = write(tmp_path / "plan.toml", PLAN)
    (line,) = study("plan", plan).stderr.splitlines()
    assert re.fullmatch(r"About \d+ s for 2 units on (1 process|2 processes) here \(CPU\)\.", line)
    (line,) = study("plan", "paper-head").stderr.splitlines()
    assert line.startswith("No estimate of the time: datasets: there is no table of ansur2, scpf")


# Processes


@pytest.mark.slow
def test_a_process_reports_on_the_study_of_another(copy):
    line = said(run("study", "report", "study", cwd=copy.parent))
    assert "study/report/report.html" in line.replace(os.sep, "/")
    assert (copy / "report" / "bars.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_study_can_be_stopped_by_hand(tmp_path):
    plan = write(tmp_path / "plan.toml", tiny(datasets=("ar1",), max_epochs=10_000))
    words = ["study", "run", plan, "--out", tmp_path / "study", "--device", "cpu"]
    running = subprocess.Popen(
        [*COMMAND, *words, "--engine", "local"],
        env=os.environ | SETTINGS,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "study" / "locks").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert running.returncode in (1, 130)
    assert "Traceback" not in errors
    # The lock is free: what is left can be done.
    assert call(*words, "--time-limit", "0.1").exit_code == 3
