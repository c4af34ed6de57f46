"""Diagnosers of parts of the rows, added up; rows that depend on each other; PITs of some rows."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from prerank import Diagnoser, Ensemble, diagnose
from prerank.distributions import rows_of
from prerank.errors import InputError
from truths import gaussian_mixture

N = 900
SIZES = [[N], [300, 1, 599]]


def ensemble(spread=1.0, n=N, members=20, dim=3, seed=0):
    source = torch.Generator().manual_seed(seed)
    noise = torch.randn(members + 1, n, dim, generator=source)
    return Ensemble(noise[1:]), spread * noise[0]


def added_up(dist, y, sizes, *, stated=True, **options):
    """In parts of the rows, each of which has been to another process."""
    whole, start = Diagnoser(**{"n_null": 200} | options), 0
    parts = []
    for size in sizes:
        stop = start + size
        if stated:
            part = whole.part(start, stop, len(y))
        else:
            part = Diagnoser(**{"n_null": 200} | options | {"generator": start})
        part.update(rows_of(dist, slice(start, stop)), y[start:stop])
        parts.append(pickle.loads(pickle.dumps(part)))
        start = stop
    for part in parts:
        whole.merge(part)
    return whole


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("sizes", SIZES, ids=len)
def test_closed_forms_add_up_to_those_of_all_rows(sizes, stated):
    dist = gaussian_mixture(N)
    y = dist.sample(generator=1)
    found = added_up(dist, y, sizes, stated=stated, preranks="marginal+location").result()
    whole = diagnose(dist, y, preranks="marginal+location", n_null=200)
    for label, z in whole.pits.items():
        torch.testing.assert_close(found.pits[label], z, rtol=1e-13, atol=1e-13)
    for one, other in zip(found.findings, whole.findings, strict=True):
        if one.component != "all":  # whose p-values need no stand-ins
            assert one.p_value == pytest.approx(other.p_value, rel=1e-12)
        assert one.lower == pytest.approx(other.lower, rel=1e-10)
        assert one.upper == pytest.approx(other.upper, rel=1e-10)


def test_parts_of_ensembles_have_the_same_ranks_and_verdict():
    for spread, status in ((1.0, "good"), (2.0, "bad")):
        dist, y = ensemble(spread)
        found = added_up(dist, y, SIZES[1]).result()
        whole = diagnose(dist, y, n_null=200)
        for label in ("marginal", "location", "scale"):
            ranks = [(21 * one.pits[label]).floor() for one in (found, whole)]
            assert (ranks[0] != ranks[1]).float().mean() < 0.01, label
        assert found.verdict().status == whole.verdict().status == status
        assert found.verdict().headline == whole.verdict().headline
        assert found.remarks == whole.remarks


def test_parts_have_noise_of_their_own():
    dist, y = ensemble()
    same = Ensemble(dist.samples[:, :300].repeat(1, 2, 1)), y[:300].repeat(2, 1)
    z = added_up(*same, [300, 300]).result().pits["marginal"]
    assert not torch.equal(z[:300], z[300:])


def thinned(dist, y, keep=64, **options):
    whole = Diagnoser(n_null=200, keep=keep, **options)
    whole.update(dist, y)
    return whole.result()


def test_tables_and_pictures_are_of_all_rows_where_some_pits_are_kept():
    dist, y = ensemble(1.5)
    found, whole = thinned(dist, y), thinned(dist, y, keep=None)
    assert (found.n, whole.n) == (N, N)
    assert 32 <= len(found.kept) == len(found.pits["marginal"]) <= 64
    assert torch.equal(found.pits["marginal"], whole.pits["marginal"][found.kept])
    assert whole.kept is None
    for one, other in zip(found.findings, whole.findings, strict=True):
        for name in ("pce", "floor", "lower", "upper", "ties"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-6), name
        # Levels of the tests are those of 65,536 rows, where PITs are counted.
        assert (one.p_value < 0.001) == (other.p_value < 0.001)
    assert found.verdict().status == whole.verdict().status == "bad"
    for mine, theirs in zip(found.displays(), whole.displays(), strict=True):
        torch.testing.assert_close(mine.curve.observed.float(), theirs.curve.observed)
        torch.testing.assert_close(mine.band.upper, theirs.band.upper)
    for mine, theirs in zip(found.histograms(), whole.histograms(), strict=True):
        torch.testing.assert_close(mine.histogram.density.float(), theirs.histogram.density)
    timeline = found.over_time(np.arange(N), every=300)
    assert timeline.means.counts.sum() == len(found.kept)
    assert added_up(dist, y, SIZES[1], keep=64).result().n == N


def test_pits_with_gaps_are_counted():
    dist, y = ensemble()
    y[::3, 1] = torch.nan
    y[:40] = torch.nan
    found = thinned(dist, y, missing="available")
    whole = diagnose(dist, y, n_null=200, missing="available")
    for one, other in zip(found.findings, whole.findings, strict=True):
        assert one.n == other.n
        assert one.floor == pytest.approx(other.floor)
        assert abs(one.pce - other.pce) < 1 / 21


LABELS = {"time": np.arange(N) // 9, "cluster": np.arange(N) % 30}


@pytest.mark.parametrize("keep", [64, None])
@pytest.mark.parametrize("kind", LABELS)
def test_rows_of_a_unit_are_added_up_in_all_blocks(kind, keep):
    """Closed forms have no noise: all that is said is the same."""
    dist = gaussian_mixture(N)
    y = 1.5 * dist.sample(generator=1)
    options = {"preranks": "marginal+location", "keep": keep, kind: LABELS[kind]}
    whole = diagnose(dist, y, preranks="marginal+location", **{kind: LABELS[kind]})
    for sizes in SIZES:
        diagnoser = added_up(dist, y, sizes, n_null=2000, **options)
        found = diagnoser.result()
        assert found.dependence.assumption == whole.dependence.assumption
        for one, other in zip(found.findings, whole.findings, strict=True):
            assert one.method == other.method
            assert one.p_value == pytest.approx(other.p_value, abs=0.02)  # other rotations
            for name in ("pce", "floor", "lower", "upper"):
                assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6), name
        assert found.verdict().status == whole.verdict().status


def test_rows_and_their_times_must_be_as_many():
    dist, y = ensemble()
    short = Diagnoser(time=range(100))
    with pytest.raises(InputError, match="has 100 values, and 900 rows came"):
        short.update(dist, y)
    early = Diagnoser(time=range(N + 1))
    early.update(dist, y)
    with pytest.raises(InputError, match="has 901 values, and 900 rows came"):
        early.result()
    with pytest.raises(InputError, match="has 901 values, and there are 900 rows"):
        early.part(0, 10, N)
    y[0] = torch.nan
    gaps = Diagnoser(time=range(N), missing="available")
    with pytest.raises(InputError, match="diagnose all of them at once"):
        gaps.update(dist, y)


def test_what_does_not_fit_is_not_added():
    dist, y = ensemble()
    whole = Diagnoser(preranks="marginal")
    whole.update(dist, y)
    other = {
        "targets": (ensemble(dim=2), {}),
        "pre-ranks": (ensemble(), {"preranks": "scale"}),
        "levels": (ensemble(), {"levels": 7}),
        "numbers of samples": (ensemble(members=9), {}),
        "numbers of rows to keep": (ensemble(), {"keep": None}),
        "times or clusters": (ensemble(), {"time": range(N)}),
    }
    for words, (forecast, options) in other.items():
        part = Diagnoser(**{"preranks": "marginal"} | options)
        part.update(*forecast)
        with pytest.raises(InputError, match=f"the other rows have other {words}"):
            whole.merge(part)
    late = whole.part(5, 905, 1800)
    late.update(dist, y)
    with pytest.raises(InputError, match="the other rows start at 5, and 900 are here"):
        whole.merge(late)
    whole.merge(Diagnoser())  # without rows
    assert whole.rows == whole.result().n == N


def test_an_executor_is_refused_where_nothing_is_read_in_blocks():
    dist, y = ensemble()
    with ThreadPoolExecutor(1) as pool, pytest.raises(InputError, match="engine is for arrays"):
        diagnose(dist, y, engine=pool)


def test_refused_rows_leave_nothing_behind():
    other, whole = Diagnoser(levels=50, n_null=200), Diagnoser(n_null=200)
    other.update(*ensemble(members=30))
    with pytest.raises(InputError, match="other levels"):
        whole.merge(other)
    whole.update(*ensemble())
    assert whole.rows == N
    with pytest.raises(InputError, match="is this one"):
        whole.merge(whole)
    assert whole.result().n == N
