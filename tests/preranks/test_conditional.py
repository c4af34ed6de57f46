"""Pre-ranks that see the inputs: calibrated forecasts pass, and those that ignore them fail."""

import pandas as pd
import pytest
import torch

from prerank import CalibrationHead, Diagnoser, Ensemble, Monitor, diagnose, pit
from prerank.diagnosis import diagnose_by
from prerank.errors import InputError, ShapeError
from prerank.preranks import Conditional, Location, Projection, ReferenceDistance

N, S, D = 1000, 30, 2


def along(y, x):
    return (y * x).sum(-1)


def case(seed=0):
    """Inputs, observations, a calibrated ensemble and a climatology, which ignores the inputs."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=g, dtype=torch.float64)
    noise = torch.randn(S + 1, N, D, generator=g, dtype=torch.float64)
    other = torch.randn(S, N, D, generator=g, dtype=torch.float64)
    y = x + noise[0]
    return x, y, Ensemble(x + noise[1:]), Ensemble(2**0.5 * other)


X, Y, KNOWING, CLIMATOLOGY = case()
# A point on the side to which the inputs lead.
TARP = ReferenceDistance(points=3 * X)


@pytest.mark.parametrize("prerank", [Conditional(along, X), TARP], ids=["conditional", "tarp"])
def test_a_forecast_that_ignores_the_inputs_is_found_out(prerank):
    blind = diagnose(CLIMATOLOGY, Y, preranks=[Location(), ReferenceDistance()])
    assert all(finding.p_holm > 0.05 for finding in blind.findings)
    assert diagnose(CLIMATOLOGY, Y, preranks=prerank).findings[0].p_value < 1e-4
    assert diagnose(KNOWING, Y, preranks=prerank).findings[0].p_value > 0.05


@pytest.mark.parametrize(
    "made", [lambda x: Conditional(along, x), lambda x: ReferenceDistance(0, x)]
)
def test_it_rejects_at_its_level(made):
    p = []
    for seed in range(100):
        x, y, knowing, _ = case(seed + 1)
        rows = slice(0, 50)
        few = Ensemble(knowing.samples[:, rows])
        p.append(diagnose(few, y[rows], preranks=made(x[rows])).findings[0].p_value)
    # 100 tests at 10 %: a standard error of 3, of which four.
    assert abs(sum(value < 0.1 for value in p) - 10) < 12


def test_random_points_are_not_the_noise_of_a_simulation_with_their_seed():
    for seed in range(3):
        y = torch.randn(N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found = diagnose(
            Ensemble(CLIMATOLOGY.samples / 2**0.5), y, preranks=ReferenceDistance(seed)
        )
        assert found.findings[0].p_value > 0.01


def test_values_are_those_of_the_function():
    prerank = Conditional(lambda y, x: torch.stack([y[..., 0] * x[..., 0], y[..., 1]], -1), X)
    found = prerank.project(KNOWING.samples, KNOWING)
    torch.testing.assert_close(found[..., 0], KNOWING.samples[..., 0] * X[:, 0])
    torch.testing.assert_close(found[..., 1], KNOWING.samples[..., 1])
    stack = Ensemble(KNOWING.samples.unsqueeze(1).expand(-1, 3, -1, -1))
    several = pit(stack, Y.expand(3, -1, -1), prerank, generator=0)
    torch.testing.assert_close(several[2], pit(KNOWING, Y, prerank, generator=0))
    table = pd.DataFrame(X.numpy(), columns=["a", "b"])
    again = pit(KNOWING, Y, Conditional(along, table), generator=0)
    torch.testing.assert_close(again, pit(KNOWING, Y, Conditional(along, X), generator=0))


def test_two_of_one_function_are_two():
    there, back = Conditional(along, X, title="there"), Conditional(along, -X, title="back")
    found = diagnose(KNOWING, Y, preranks=[there, back], scale=[2.0, 2.0], generator=0)
    torch.testing.assert_close(
        found.pits["there"].mean(), 1 - found.pits["back"].mean(), atol=0.02, rtol=0
    )
    assert Conditional(along, X) == Conditional(along, X)
    assert hash(Conditional(along, X)) == hash(Conditional(along, X))
    assert there != back


def test_groups_see_their_own_inputs():
    side = ["left", "right"] * (N // 2)
    found = diagnose_by(CLIMATOLOGY, Y, side, preranks=Conditional(along, X))
    assert all(one.findings[0].p_value < 1e-3 for one in found.groups.values())


def test_many_rows_are_not_cut_into_blocks(monkeypatch):
    monkeypatch.setattr("prerank.diagnosis.measurement.MANY_ROWS", 100)
    for prerank in (Conditional(along, X), TARP, Projection(X.unsqueeze(-2))):
        assert diagnose(KNOWING, Y, preranks=prerank).findings[0].p_value > 0.05


@pytest.mark.parametrize("made", [Diagnoser, Monitor])
def test_batches_are_refused(made):
    for prerank in (Conditional(along, X), TARP, Projection(X.unsqueeze(-2))):
        with pytest.raises(InputError, match="holds values for given rows"):
            made(preranks=prerank).update(KNOWING, Y)


BAD = {
    "rows": (lambda: pit(KNOWING, Y, Conditional(along, X[:5])), ShapeError, "inputs of shape"),
    "vector": (lambda: Conditional(along, X[:, 0]), ShapeError, "inputs must have shape"),
    "missing": (lambda: Conditional(along, X / 0), InputError, "inputs holds"),
    "answer": (lambda: pit(KNOWING, Y, Conditional(lambda y, x: y.sum(), X)), ShapeError, "return"),
    "head": (lambda: CalibrationHead([TARP]).fit(KNOWING, Y), InputError, "fitted to batches"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_named(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()
