"""The omnibus check of forecasts: distributions and ensembles in, a p-value out."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import Ensemble
from prerank.diagnosis import check_omnibus
from prerank.errors import NotApplicableError, ShapeError

ROWS = 300


def observed(correlation, seed=0):
    covariance = torch.tensor([[1.0, correlation], [correlation, 1.0]])
    draw = MultivariateNormal(torch.zeros(2), covariance)
    torch.manual_seed(seed)
    return draw.sample(torch.Size((ROWS,)))


@pytest.mark.parametrize("kind", ["density", "ensemble"])
@pytest.mark.parametrize(("correlation", "wrong"), [(0.0, False), (0.7, True)])
def test_correlation_is_seen(kind, correlation, wrong):
    y = observed(correlation)
    dist = MultivariateNormal(torch.zeros(ROWS, 2), torch.eye(2))
    if kind == "ensemble":
        dist = Ensemble(dist.sample(torch.Size((30,))))
    assert (check_omnibus(dist, y, n_null=199).p_value < 0.02) is wrong


def test_what_does_not_apply_is_refused():
    y, members = torch.randn(20, 2), torch.randn(5, 20, 2)
    with pytest.raises(NotApplicableError, match="two targets"):
        check_omnibus(Ensemble(members[..., :1]), y[:, :1])
    with pytest.raises(NotApplicableError, match="weight"):
        check_omnibus(Ensemble(members, torch.rand(5, 20)), y)
    with pytest.raises(ShapeError, match="one predictor"):
        check_omnibus(Ensemble(members.unsqueeze(1)), y.unsqueeze(0))
