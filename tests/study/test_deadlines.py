"""A limit of time holds whatever becomes of the machine's clock."""

import dataclasses
import pickle
import time

import pytest

from prerank.study import Store, run_study
from prerank.study.deadlines import Deadline
from study.tiny import tiny

DAY = 86_400.0


@pytest.mark.parametrize(("jump", "seconds"), [(DAY, 3600.0), (-DAY, 0.0)])
def test_a_clock_that_is_set_while_a_study_runs_changes_no_limit(
    jump, seconds, tmp_path, monkeypatch
):
    now = time.time

    def change(_):
        monkeypatch.setattr("time.time", lambda: now() + jump)

    plan = tiny(datasets=("ar1",), variants=("none", "marginal"), max_epochs=1)
    if not seconds:
        change(None)
    outcome = run_study(plan, tmp_path, time_limit=seconds, on_event=change)
    assert outcome.interrupted == (seconds == 0)
    assert bool(Store(tmp_path).left()) == (seconds == 0)


def test_another_machine_goes_by_the_seconds_that_are_left_on_arrival():
    here = Deadline.after(60.0)
    assert pickle.loads(pickle.dumps(here)) == here
    # Its clock began at another time; the times of day agree.
    there = dataclasses.replace(here, boot="another", tick=here.tick - 1e6)
    assert abs(there.until - here.until) < 1
    assert dataclasses.replace(there, wall=time.time() - 1).passed
