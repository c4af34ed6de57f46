"""Flows and mixtures of zuko."""

import numpy as np
import pytest
import torch

from adapters.judging import judge, load
from prerank import GaussianMixture
from prerank.adapters import from_zuko
from prerank.errors import PrerankError

zuko = load("zuko")
DIM, CONTEXT = 2, 3

FLOWS = {
    "spline": lambda c, d=DIM: zuko.flows.NSF(d, c, transforms=1, hidden_features=(16,)),
    "affine": lambda c, d=DIM: zuko.flows.MAF(d, c, transforms=2, hidden_features=(16,)),
    "mixture": lambda c, d=DIM: zuko.mixtures.GMM(d, c, components=3),
    "diagonal mixture": lambda c, d=DIM: zuko.mixtures.GMM(
        d, c, components=3, covariance_type="diagonal"
    ),
}
by_flow = pytest.mark.parametrize("name", FLOWS)


def test_the_law_is_that_of_evaluation_whatever_mode_the_flow_is_in():
    class Dropping(torch.nn.Sequential):
        def __init__(self):
            super().__init__(torch.nn.ReLU(), torch.nn.Dropout(0.5))

    flow = zuko.flows.MAF(DIM, CONTEXT, hidden_features=(16,), activation=Dropping).train()
    x, y = torch.randn(50, CONTEXT), torch.randn(50, DIM)
    dist = from_zuko(flow, x)
    assert flow.training
    assert torch.equal(dist.log_prob(y), dist.log_prob(y))
    torch.testing.assert_close(dist.log_prob(y), flow.eval()(x).log_prob(y))


@by_flow
def test_the_density_is_that_of_zuko(name):
    flow, x = FLOWS[name](CONTEXT), torch.randn(50, CONTEXT)
    dist = from_zuko(flow, x)
    assert (dist.batch_shape, dist.event_shape) == ((50,), (DIM,))
    assert isinstance(dist, GaussianMixture) == ("mixture" in name)
    y = torch.randn(50, DIM)
    torch.testing.assert_close(dist.log_prob(y), flow(x).log_prob(y), rtol=1e-4, atol=1e-4)
    from_array = from_zuko(flow, x.numpy().astype(np.float64))
    torch.testing.assert_close(from_array.log_prob(y), dist.log_prob(y))


@by_flow
def test_without_context(name):
    flow = FLOWS[name](0)
    dist = from_zuko(flow, rows=50)
    assert (dist.batch_shape, dist.event_shape) == ((50,), (DIM,))
    y = torch.randn(50, DIM)
    torch.testing.assert_close(dist.log_prob(y), flow().log_prob(y), rtol=1e-4, atol=1e-4)


@by_flow
def test_a_right_flow_is_cleared_and_a_wide_one_blamed(name):
    flow, x = FLOWS[name](CONTEXT), torch.randn(1000, CONTEXT)
    dist = from_zuko(flow, x)
    y = flow(x).sample()  # drawn by zuko
    judge(dist, y)
    centre = flow(x).sample((200,)).mean(0)
    judge(dist, centre + 0.5 * (y - centre), blamed="marginal hdr")


CONTEXTS = {  # and what is said to them, for a flow with contexts of three numbers and one without
    "none": ({"rows": 5}, "flow needs contexts: give x", None),
    "too wide": ({"x": np.zeros((5, 4))}, r"no contexts x of shape \(5, 4\)", "only rows where it"),
    "too narrow": ({"x": torch.zeros(5, 1)}, r"no contexts x of shape \(5, 1\)", "only rows where"),
    "right": ({"x": torch.zeros(5, 3)}, None, "or only rows where it was made without contexts"),
    "float64": ({"x": torch.zeros(5, 3).double()}, "torch.float64", "only rows where it was made"),
    "a vector": ({"x": torch.zeros(3)}, r"x\[:, None\] for contexts of one", r"x\[None\] for a"),
    "both": ({"x": torch.zeros(5, 3), "rows": 5}, "leave one out", "leave one out"),
}


# Every flow and every case with one target or with several, in turn.
@pytest.mark.parametrize(
    ("name", "features", "case"),
    [
        (name, (1, DIM)[(row + column) % 2], case)
        for row, name in enumerate(FLOWS)
        for column, case in enumerate(CONTEXTS)
    ],
)
def test_contexts_that_a_flow_does_not_take_are_told_at_the_call(name, features, case):
    given, with_contexts, without = CONTEXTS[case]
    state = torch.get_rng_state()
    for contexts, message in ((CONTEXT, with_contexts), (0, without)):
        with torch.random.fork_rng():
            flow = FLOWS[name](contexts, features)
        if message is None:
            assert from_zuko(flow, **given).sample().shape == (5, features)
            torch.set_rng_state(state)
        else:
            with pytest.raises(PrerankError, match=message):
                from_zuko(flow, **given)
        assert torch.equal(torch.get_rng_state(), state)  # the check leaves no trace


BAD = {
    "a distribution": (lambda: from_zuko(torch.distributions.Normal(0.0, 1.0)), "flow must be"),
    "no context": (lambda: from_zuko(FLOWS["affine"](CONTEXT)), "x is missing"),
    "no rows": (lambda: from_zuko(FLOWS["affine"](0), rows=0), "rows must be at least 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()
