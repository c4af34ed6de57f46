"""A study can be broken off at any moment and shared by processes, and ends as if it had not."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import prerank
from prerank.errors import InputError
from prerank.study import Plan, Store, Unit, run_study
from prerank.study.engines import InProcess, Processes, TaskError
from prerank.training import Settings
from study.disturbed import assert_same
from study.tiny import contents, tiny, write_table

SOURCE = Path(prerank.__file__).parents[1]
SMALL = {"datasets": ("triple", "pair"), "variants": ("none", "marginal")}
PATIENT = Settings(lr=1e-2, batch_size=256, max_epochs=35, patience=1000)
WHOLE = [
    "base/pair.safetensors",
    "base/triple.safetensors",
    "plan.toml",
    "results/pair--marginal.parquet",
    "results/pair--none.parquet",
    "results/triple--marginal.parquet",
    "results/triple--none.parquet",
]


def small(**changes):
    return tiny(**(SMALL | changes))


@pytest.fixture(autouse=True)
def _data(data, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(data))


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Folder of an undisturbed study."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRERANK_DATA", str(data))
        assert run_study(small(), folder).left == ()
    return folder


def files(folder):
    """Names of all files but the locks, which stay."""
    return sorted(name for name in contents(folder) if not name.startswith("locks/"))


class Stopped(BaseException):
    """The process is gone."""


def stopped_after(epochs):
    """A callback that ends everything after some epochs."""
    seen = []

    def on_progress(progress):
        if progress.training is not None:
            seen.append(progress)
            if len(seen) > epochs:
                raise Stopped

    return on_progress


# Finished studies


def test_a_finished_study_has_one_file_for_each_unit(whole):
    assert files(whole) == WHOLE


def test_a_finished_study_does_nothing(whole):
    before = contents(whole)
    seen = []
    for limit in (math.inf, 0.0):
        outcome = run_study(small(), whole, time_limit=limit, on_progress=seen.append)
        assert (outcome.finished, outcome.left, outcome.interrupted) == ((), (), False)
    assert seen == []
    assert contents(whole) == before


def test_a_study_does_not_depend_on_where_it_runs(whole, tmp_path):
    outcome = run_study(small(), tmp_path)
    assert list(outcome.finished) == Store(tmp_path).units
    assert not outcome.interrupted
    assert_same(tmp_path, whole)


def test_units_that_others_need_first_are_counted(tmp_path):
    plan = small(datasets=("triple",), variants=("marginal", "none"), max_epochs=1)
    seen = []
    outcome = run_study(plan, tmp_path, on_progress=seen.append)
    assert outcome.left == ()
    assert set(outcome.finished) == {Unit("triple", "marginal"), Unit("triple", "none")}
    assert "none" in {progress.unit.variant for progress in seen if progress.training is None}


def test_another_plan_does_not_touch_the_folder(whole):
    before = contents(whole)
    with pytest.raises(InputError, match="another study"):
        run_study(small(seeds=(5,)), whole)
    assert contents(whole) == before


# Broken off


def test_without_time_nothing_is_done(tmp_path):
    outcome = run_study(small(), tmp_path, time_limit=0.0)
    assert outcome.interrupted
    assert outcome.finished == ()
    assert list(outcome.left) == Store(tmp_path).units
    assert files(tmp_path) == ["plan.toml"]


def test_a_study_that_time_breaks_off_goes_on_and_ends_the_same(whole, tmp_path):
    interrupted, done = 0, []
    for number in range(100):
        # A little more each time, so that a busy machine comes to an end, too.
        outcome = run_study(small(), tmp_path, time_limit=0.06 + 0.01 * number)
        done += outcome.finished
        assert outcome.interrupted == bool(outcome.left)
        if not outcome.interrupted:
            break
        interrupted += 1
    assert interrupted > 1
    assert done == Store(tmp_path).units
    assert_same(tmp_path, whole)
    assert files(tmp_path) == WHOLE


def test_a_study_that_dies_again_and_again_ends_the_same(whole, tmp_path):
    for _ in range(30):
        before = contents(tmp_path)
        try:
            run_study(small(), tmp_path, checkpoint_every=0.0, on_progress=stopped_after(1))
            break
        except Stopped:
            after = contents(tmp_path)
            assert {name: after[name] for name in before if name.startswith("results")} == {
                name: before[name] for name in before if name.startswith("results")
            }
    assert_same(tmp_path, whole)
    assert files(tmp_path) == WHOLE


def test_a_search_beyond_the_grid_comes_to_an_end_in_pieces(tmp_path):
    """Each call lives longer than any one training, and shorter than grid and search together."""
    plan = tiny(
        datasets=("pair",),
        variants=("none", "scale"),
        strengths="auto",
        budget=0.5,
        max_epochs=4,
    )
    whole = tmp_path / "whole"
    run_study(plan, whole)
    tried = set(Store(whole).results().strength)
    assert len(tried) > 6  # there was a search beyond the grid
    for _ in range(7):
        try:
            run_study(plan, tmp_path / "pieces", checkpoint_every=0.0, on_progress=stopped_after(5))
            break
        except Stopped:
            continue
    assert Store(tmp_path / "pieces").done(Unit("pair", "scale"))
    assert_same(tmp_path / "pieces", whole)


@contextmanager
def failing(unit, error):
    """Let a unit raise an error after its first epoch."""

    def fail(message):
        if message[0] == unit:
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prerank.study.work.emit", fail)
        yield


def test_an_error_in_a_unit_leaves_no_result_and_the_study_can_go_on(whole, tmp_path):
    error = RuntimeError("no more memory")
    with failing(Unit("pair", "none"), error), pytest.raises(RuntimeError, match="no more memory"):
        run_study(small(), tmp_path)
    found = contents(tmp_path)
    assert [name for name in found if name.startswith("results")] == [
        "results/triple--marginal.parquet",
        "results/triple--none.parquet",
    ]
    outcome = run_study(small(), tmp_path)
    assert list(outcome.finished) == Store(tmp_path).units[2:]
    after = contents(tmp_path)
    assert all(after[name] == found[name] for name in found if name.startswith("results"))
    assert_same(tmp_path, whole)


def test_a_unit_that_fails_is_named(tmp_path):
    unit = Unit("pair", "marginal")
    words = r"^1 unit failed: pair--marginal \(TaskError: gone, attempt 1\)"
    with failing(unit, TaskError("gone")), pytest.raises(TaskError, match=words):
        run_study(small(datasets=("pair",)), tmp_path)


def test_an_error_of_a_callback_ends_the_study_and_is_no_failure_of_the_unit(tmp_path):
    def fail(progress):
        raise LookupError("the callback is wrong")

    with pytest.raises(LookupError, match="the callback is wrong"):
        run_study(small(), tmp_path, on_progress=fail)
    assert not list(tmp_path.glob("results/*"))
    assert not (tmp_path / "log.jsonl").exists()


def test_a_dataset_that_is_missing_can_be_brought_later(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path / "data"))
    plan = tiny(datasets=("ar1", "late"), variants=("none",))
    with pytest.raises(InputError, match=r"late\.parquet"):
        run_study(plan, tmp_path / "study")
    write_table(tmp_path / "data", "late", 2)
    assert run_study(plan, tmp_path / "study").finished == (Unit("late", "none"),)


def test_a_study_does_not_go_on_with_other_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path / "data"))
    plan = tiny(datasets=("mine",), variants=("none", "marginal"), max_epochs=1, n_null=5)
    folder = tmp_path / "study"
    write_table(tmp_path / "data", "mine", 2)
    run_study(plan, folder)
    (folder / "results" / "mine--marginal.parquet").unlink()
    write_table(tmp_path / "data", "mine", 2, power=3)
    with pytest.raises(InputError, match=r"mine\.safetensors comes from other rows"):
        run_study(plan, folder)
    # Without the base it is trained again, and the results with it.
    (folder / "base" / "mine.safetensors").unlink()
    run_study(plan, folder)
    run_study(plan, tmp_path / "other")
    assert_same(folder, tmp_path / "other")


def test_results_of_rows_that_have_changed_are_not_shown_together(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path / "data"))
    plan = tiny(datasets=("mine",), protocol="published", strengths=(1.0,))
    write_table(tmp_path / "data", "mine", 2)
    run_study(plan, tmp_path / "study")
    (tmp_path / "study" / "results" / "mine--hdr.parquet").unlink()
    write_table(tmp_path / "data", "mine", 2, power=3)
    run_study(plan, tmp_path / "study")
    with pytest.raises(InputError, match="different rows of mine"):
        Store(tmp_path / "study").results()


def test_what_a_killed_process_was_writing_is_cleared_away(tmp_path):
    names = [
        "results/.triple--marginal.parquet.k3x_9aqd",
        "checkpoints/.triple--marginal.penalised-0123456789ab.k3x_9aqd",
        "checkpoints/.triple--none.all-0123456789ab.k3x_9aqd",
        "base/.triple.safetensors.k3x_9aqd",
    ]
    for path in (tmp_path / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    plan = tiny(datasets=("triple",), variants=("none", "marginal"), max_epochs=1)
    assert run_study(plan, tmp_path).left == ()
    assert [name for name in names if (tmp_path / name).exists()] == []


def test_a_checkpoint_that_a_killed_process_left_is_dropped(tmp_path):
    plan = tiny(datasets=("triple",), variants=("none", "marginal"), max_epochs=1)
    run_study(plan, tmp_path)
    left = [tmp_path / "checkpoints" / f"triple--marginal.{end}" for end in ("all-1f", "seconds")]
    other = tmp_path / "checkpoints" / "triple--hdr.all-1f"  # of no unit of this plan
    for path in (*left, other):
        path.write_bytes(b"")
    with Store(tmp_path).claim("triple--marginal"):  # of a process that is about to drop them
        run_study(plan, tmp_path)
        assert all(path.exists() for path in left)
    run_study(plan, tmp_path)
    assert list((tmp_path / "checkpoints").iterdir()) == [other]


# Obstacles


DEPENDENT = {
    "datasets": ("pair",),
    "variants": ("none", "dependency", "marginal+dependency", "marginal"),
}


def test_obstacles_are_passed_over_with_their_reason(tmp_path):
    plan = tiny(**DEPENDENT)
    folder = tmp_path / "study"
    outcome = run_study(plan, folder)
    store = Store(folder)
    assert outcome.left == ()
    assert len(outcome.finished) == 4
    told = {entry["variant"]: entry["reason"] for entry in store.skipped()}
    assert set(told) == {"dependency", "marginal+dependency"}
    assert all("D = 2" in reason for reason in told.values())
    results = store.results()
    assert set(results.variant) == {"none", "marginal"}
    assert "dependency" not in set(results.prerank)
    before = contents(folder)
    assert run_study(plan, folder).finished == ()
    assert contents(folder) == before


def test_the_published_protocol_has_another_dependency(tmp_path):
    plan = tiny(protocol="published", strengths="auto", **DEPENDENT)
    outcome = run_study(plan, tmp_path / "study")
    assert outcome.left == ()
    store = Store(tmp_path / "study")
    assert store.skipped() == []
    assert set(store.results().variant) == set(plan.variants)


def test_a_single_target_has_no_scale_under_either_protocol(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path / "data"))
    write_table(tmp_path / "data", "single", 1)
    plan = tiny(
        protocol="published",
        strengths="auto",
        datasets=("single",),
        variants=("none", "marginal", "scale"),
    )
    assert run_study(plan, tmp_path / "study").left == ()
    assert [entry["variant"] for entry in Store(tmp_path / "study").skipped()] == ["scale"]


# Progress


@pytest.mark.parametrize("engine", [InProcess(), Processes(1)], ids=["here", "worker"])
def test_progress_tells_units_runs_and_time(tmp_path, engine):
    seen = []
    plan = tiny(datasets=("triple",), variants=("none", "marginal"))
    run_study(plan, tmp_path, engine=engine, on_progress=seen.append)
    trained = [progress for progress in seen if progress.training is not None]
    assert [progress.unit.variant for progress in trained] == ["none"] * 3 + ["marginal"] * 3
    assert {progress.units for progress in seen} == {2}
    assert [progress.done for progress in seen] == [0, 0, 0, 1, 1, 1, 1, 2]
    assert all(progress.rate > 0 for progress in trained if progress.training.epoch > 1)
    assert not any(math.isnan(progress.left) for progress in seen)
    assert seen[-1].left == 0
    shares = [progress.share for progress in seen]
    assert shares == sorted(shares)
    assert (0 < shares[0] < 0.2, shares[-1]) == (True, 1)
    # Strength 0 is not trained again.
    assert [progress.training.runs for progress in trained] == [2] * 3 + [4] * 3


def test_steps_of_an_earlier_process_are_not_counted_in_the_rate(tmp_path):
    plan = tiny(datasets=("triple",), variants=("none",), training=PATIENT)
    with pytest.raises(Stopped):
        run_study(plan, tmp_path, checkpoint_every=0.0, on_progress=stopped_after(20))
    seen, times = [], []

    def watch(progress):
        seen.append(progress)
        times.append(time.monotonic())
        time.sleep(0.05)  # longer than what the machine does between a rate and the time noted here
        if len(seen) == 11:
            raise Stopped

    with pytest.raises(Stopped):
        run_study(plan, tmp_path, on_progress=watch)
    # Ten epochs lie between the first time and the last, with as many steps each.
    first, last = seen[0].training, seen[-1].training
    assert last.epoch - first.epoch == 10
    steps = last.steps - first.steps
    assert steps % 10 == 0
    assert seen[-1].rate > 0
    assert seen[-1].rate == pytest.approx(steps / (times[-1] - times[0]), rel=0.5)


def test_seconds_are_counted_over_all_processes(tmp_path):
    plan = tiny(datasets=("triple",), variants=("none",), training=PATIENT)
    seen = []

    def dawdle(progress):
        seen.append(progress)
        time.sleep(0.06)
        if len(seen) == 10:
            raise Stopped

    begun = time.monotonic()
    with pytest.raises(Stopped):
        run_study(plan, tmp_path, checkpoint_every=0.0, on_progress=dawdle)
    time.sleep(0.6)  # does not count
    run_study(plan, tmp_path)
    spent = time.monotonic() - begun
    # Nine pauses lie before the last checkpoint of the first call.
    assert 0.54 <= float(Store(tmp_path).results().seconds.iloc[0]) <= spent - 0.6
    assert list((tmp_path / "checkpoints").iterdir()) == []


# Several processes


def test_a_unit_that_another_process_holds_is_left_to_it(tmp_path):
    plan = tiny(datasets=("triple",), variants=("none", "marginal", "hdr"), max_epochs=1)
    store = Store(tmp_path, plan)
    with store.claim("triple--marginal") as held:
        assert held
        outcome = run_study(plan, tmp_path)
    assert outcome.left == (Unit("triple", "marginal"),)
    assert not outcome.interrupted
    assert run_study(plan, tmp_path).finished == (Unit("triple", "marginal"),)


def test_unpenalised_runs_that_another_process_trains_are_not_trained_again(tmp_path):
    plan = tiny(datasets=("triple",), variants=("none", "marginal"))
    store = Store(tmp_path, plan)
    found = []
    with store.claim("triple--none") as held:
        assert held  # as a process that is at work on them
        thread = threading.Thread(
            target=lambda: found.append(run_study(plan, tmp_path, time_limit=1.0)), daemon=True
        )
        thread.start()
        thread.join(2.0)
        begun = (tmp_path / "base").exists() or store.done(Unit("triple", "marginal"))
    thread.join()
    assert not begun


def test_waiting_for_another_process_ends_with_the_time(tmp_path):
    plan = tiny(datasets=("triple",), variants=("marginal",))
    store = Store(tmp_path, plan)
    found = []
    with store.claim("triple--none") as held:
        assert held
        thread = threading.Thread(
            target=lambda: found.append(run_study(plan, tmp_path, time_limit=0.3)), daemon=True
        )
        thread.start()
        thread.join(1.5)
        waiting = thread.is_alive()
    thread.join()
    assert not waiting
    assert found[0].interrupted


WORKER = """
import json, sys
import pandas, pyarrow.parquet, safetensors.torch  # which are imported late otherwise
from prerank.study import Plan, run_study

print("ready", flush=True)
sys.stdin.readline()
outcome = run_study(Plan.read(sys.argv[1]), sys.argv[2], checkpoint_every=float(sys.argv[3]))
print(json.dumps([unit.stem for unit in outcome.finished]), flush=True)
"""


def start(plan, folder, every=0.0):
    """A process that has made itself ready to work on a study."""
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(plan.to_toml(), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, path, folder, str(every)],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def begin(process):
    process.stdin.write("go\n")
    process.stdin.flush()


def go(process):
    """Let it begin, as soon as it is ready."""
    assert process.stdout.readline() == "ready\n"
    begin(process)


def finish(process):
    """Units that it has done."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
def test_two_processes_share_a_study_and_do_no_unit_twice(whole, tmp_path):
    folder = tmp_path / "study"
    workers = [start(small(), folder) for _ in range(2)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        begin(worker)
    done = [finish(worker) for worker in workers]
    assert sorted(done[0] + done[1]) == sorted(unit.stem for unit in Store(folder).units)
    assert all(done)  # both had something to do
    assert_same(folder, whole)
    assert files(folder) == WHOLE


@pytest.mark.slow
def test_a_study_that_is_killed_four_times_ends_the_same(tmp_path):
    plan = tiny(datasets=("triple", "ar1"), max_epochs=4)
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    process = start(plan, whole)
    go(process)
    begun = time.monotonic()
    finish(process)
    seconds = time.monotonic() - begun

    rng = np.random.default_rng(6)
    results, half_done, trained = {}, 0, 0
    for kill in range(4):
        process = start(plan, folder)
        go(process)
        if kill < 2:  # in the middle of a training, whatever the machine's speed
            end = time.monotonic() + seconds
            while not any(folder.glob("checkpoints/*")) and time.monotonic() < end:
                time.sleep(0.001)
        else:
            time.sleep(rng.uniform(seconds / 16, seconds / 6))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        found = contents(folder)
        now = {
            name: value
            for name, value in found.items()
            if name.startswith("results/") and name.endswith((".parquet", ".json"))
        }
        # What was done before is as it was: neither run nor written again.
        assert {name: now[name] for name in results} == results
        half_done += len(now) < len(Store(whole).units)
        trained += any(name.startswith("checkpoints/") for name in found)
        results = now
    assert half_done == 4  # or there was nothing left to kill
    assert trained > 0

    todo = {unit.stem for unit in Store(folder).units if not Store(folder).done(unit)}
    process = start(plan, folder)
    go(process)
    assert set(finish(process)) == todo
    found = contents(folder)
    assert {name: found[name] for name in results} == results
    assert_same(folder, whole)
    assert [name for name in files(folder) if name.startswith("results/")] == [
        name for name in files(whole) if name.startswith("results/")
    ]
    assert Plan.read(folder / "plan.toml") == plan
