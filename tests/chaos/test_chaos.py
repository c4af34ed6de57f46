"""The reliability run notices what is lost, and knows the moments that it strikes at."""

import os
import random
import shutil
import signal
import subprocess
import sys

import pandas as pd
import pytest

from chaos.moments import MOMENTS, Lives, Place, Watch, stopped
from chaos.rounds import Round, Strike, counts_table
from chaos.scenarios import SCENARIOS, wishes
from chaos.studies import Ground, differences
from prerank.files import write_json
from prerank.study import Store, run_study
from study.engines.jobs import wait_until
from study.tiny import tiny

PLAN = tiny(datasets=("ar1",), variants=("none", "marginal"), max_epochs=1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder of a finished study."""
    folder = tmp_path_factory.mktemp("whole")
    assert run_study(PLAN, folder).left == ()
    return folder


def change_a_number(folder):
    store = Store(folder)
    unit = store.units[1]
    frame = pd.read_parquet(store._result(unit))
    frame.loc[0, "pce"] += 1e-16
    store.write(unit, frame, {"seconds": "1", "content": ""})


def change_parameters(folder):
    store = Store(folder)
    theta = store.read_base("ar1", "cpu")
    theta[0, 0] += 1e-6
    store.write_base("ar1", theta)


CHANGES = {
    "nothing": (lambda _: None, ""),
    "a number": (change_a_number, "tables"),
    "parameters": (change_parameters, "parameters of ar1 differ"),
    "a unit": (lambda f: (f / "results" / "ar1--none.parquet").unlink(), "not done: ar1--none"),
    "a byte": (lambda f: (f / "base" / "ar1.safetensors").write_bytes(b"x"), "cannot read"),
    "rubbish": (lambda f: (f / "results" / ".ar1--none.parquet.00").touch(), "left behind"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_lost_is_listed(whole, tmp_path, name):
    folder = shutil.copytree(whole, tmp_path / "study")
    change, words = CHANGES[name]
    change(folder)
    found = differences(folder, whole)
    assert bool(found) == bool(words)
    assert words in " ".join(found)


def test_units_that_lose_steps_are_listed():
    lives = Lives()
    struck = Place("training", "ar1--hdr", "penalised", 40)
    for steps in (40, 10):
        lives.struck(struck)
        lives.seen(Place("training", "ar1--hdr", "other", 0))  # of another part: no word on it
        lives.seen(Place("training", "ar1--hdr", "penalised", steps))
    assert lives.resumed == {"training": 1}
    assert lives.lost == ["ar1--hdr was at step 40, then at 10"]


def test_a_seed_decides_when_to_strike():
    def drawn(seed):
        return wishes(random.Random(seed), 40)

    assert drawn("0") == drawn("0") != drawn("1")
    moments = [wish.moment for wish in drawn("0")]
    assert set(moments[:4]) == set(MOMENTS) - {"judging"}
    assert moments.count("training") > 15


BUSY = """
import sys, time
from prerank.files import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_moment_of_a_stopped_process_follows_from_its_files(tmp_path):
    store = Store(tmp_path / "study", PLAN)
    watch = Watch(store.folder, f"PRERANK_MARK={tmp_path}", "local", 1, Lives())
    lock = store.folder / "locks" / "ar1--none.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(lock), "-m", "prerank", "study", "run"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PRERANK_MARK": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert wait_until(lambda: watch.workers() == [process.pid])
        assert process.stdout.readline() == "held\n"
        with stopped(process.pid) as there:
            assert there
            assert watch.place(process.pid) == Place("start-up", "ar1--none")
            for half, moment in [
                ("checkpoints/.ar1--none.all-00.00", "checkpoint"),
                ("results/.ar1--none.parquet.00", "writing"),
                ("base/.ar1.safetensors.00", "writing"),
            ]:
                (store.folder / half).touch()
                assert watch.announced(moment, 10).startswith("ar1")
                assert watch.holder("ar1") == process.pid
                assert watch.place(process.pid).moment == moment
                (store.folder / half).unlink()
            write_json(store.folder / "checkpoints" / "ar1--none.seconds", 1.0)
            assert watch.place(process.pid).moment == "start-up"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        watch.close()


def test_the_counts():
    strikes = [Strike("SIGKILL", Place(moment)) for moment in ("training", "training", "writing")]
    rounds = [Round("a", "local", "exact", strikes, faults=["lost"]), Round("a", "ray", "exact")]
    table = counts_table(rounds).set_index(["scenario", "engine"])
    assert table.loc[("a", "local"), "training"] == 2
    assert table.loc[("a", "ray"), "writing"] == 0
    assert table.loc[("all", ""), ["training", "writing", "faults"]].tolist() == [2, 1, 1]


@pytest.mark.slow
def test_a_round(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", "")  # restored afterwards
    ground = Ground(tmp_path, 1.0)
    found = SCENARIOS[0].play(ground, "0", 0, 2)
    assert found.faults == []
    assert 1 <= len(found.strikes) <= 2  # a fast machine ends the study before the second moment
    assert str(found).endswith("equal")
