"""The course of a command: one estimate of the whole, whose share never falls."""

import time

import pytest

from cli.commands import NONE, fit, without_progress
from prerank.cli.course import Course, duration
from prerank.estimators import MixtureRegressor
from prerank.estimators.durations import measured_slowness, parts_of_fit

WORDS = {"one": "first", "two": "second", "three": "third"}


def test_the_share_grows_and_what_is_left_follows_the_pace(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    course = Course({"one": 10.0, "two": 20.0, "three": 10.0}, WORDS, pace=2.0, shown=False)
    assert (course.left, course.done) == (80.0, 0.0)
    now[0] = 10.0  # half of the first part, for which 20 seconds were expected
    course.move(0.5, work=5.0)
    assert (course.left, course.done) == (10.0 + 60.0, 10.0 / 80.0)
    now[0] = 40.0  # it took twice as long: the rest goes by the mean of 2 and 4
    course.move(1.0, work=10.0)
    assert course.left == pytest.approx(30.0 * 8**0.5)
    shares = [course.done]
    course.enter("three")
    course.enter("two")  # not back
    for now[0] in (50.0, 200.0, 1000.0):  # much longer than expected
        shares.append(course.done)
        assert course.left > 0
    assert shares == sorted(shares)
    assert shares[-1] < 1


def test_lines_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("prerank.cli.course._TICK", 0.01)
    with Course({"one": 0.1, "two": 0.1}, WORDS) as course:
        time.sleep(0.1)
        course.enter("two")
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "About 1 s in all: first, second."
    assert "second; about 1 s left" in lines[-1]
    assert without_progress("\n".join(lines)) == ""


def test_fit_says_how_long_it_takes_but_not_to_scripts_and_never_in_quiet(rivers, write, undrawn):
    table = write(rivers)
    assert fit(table, *NONE).stderr.startswith("About ")
    for word in ("--quiet", "--json"):
        assert fit(table, *NONE, word, "--force").stderr == ""


def test_the_parts_follow_the_method():
    head, network, plain, search = (
        parts_of_fit(MixtureRegressor(method=method, **more), 2000, 3, 500)
        for method, more in (
            ("head", {}),
            ("network", {"strength": 10.0}),
            ("none", {}),
            ("network", {"strength": "auto"}),
        )
    )
    assert list(head) == ["training", "head", "judging", "drawing"]
    assert list(network) == list(search) == ["training", "penalty", "judging", "drawing"]
    assert list(plain) == ["training", "judging", "drawing"]
    more = parts_of_fit(MixtureRegressor(members=5), 20000, 8, 5000)
    assert all(more[name] > head[name] for name in head)
    assert 0.1 < measured_slowness() < 1000


@pytest.mark.parametrize("seconds", [0.0, 3.2, 12.0, 89.9, 90.0, 5000.0, 5401.0, 1e6])
def test_durations_are_not_rounded_down_by_much(seconds):
    number, unit = duration(seconds).split()
    said = float(number) * {"s": 1, "min": 60, "h": 3600}[unit]
    assert 0.97 * seconds <= said <= 1.1 * seconds + 60 * (seconds >= 90) + 5
