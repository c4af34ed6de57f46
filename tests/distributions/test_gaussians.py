import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from prerank import numerics
from prerank.distributions.densities import _log_sum_exp, mixture_log_density


def _inputs(rows=2, components=3, dim=2, size=7):
    g = torch.Generator().manual_seed(0)
    options = {"generator": g, "dtype": torch.float64}
    logits = torch.randn(rows, components, **options).log_softmax(-1)
    loc = torch.randn(rows, components, dim, **options)
    below = torch.randn(rows, components, dim, dim, **options).tril(-1)
    factor = below + torch.diag_embed(torch.rand(rows, components, dim, **options) + 0.5)
    return logits, loc, factor, torch.randn(rows, dim, size, **options)


@pytest.mark.parametrize("limit", [1, 2**18])
@pytest.mark.parametrize("size", [1, 7])  # solves for few points, inverses for many
def test_density_and_gradients(monkeypatch, limit, size):
    monkeypatch.setattr(numerics, "_CPU_VALUES", limit)
    logits, loc, factor, columns = _inputs(size=size)
    torch_own = MixtureSameFamily(
        Categorical(logits=logits), MultivariateNormal(loc, scale_tril=factor)
    )
    expected = torch_own.log_prob(columns.movedim(-1, 0)).movedim(0, -1)
    torch.testing.assert_close(mixture_log_density(logits, loc, factor, columns), expected)
    tensors = [t.requires_grad_() for t in (logits, loc, factor, columns)]

    def function(logits, loc, factor, columns):
        return mixture_log_density(logits, loc, factor.tril(), columns)

    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


@pytest.mark.parametrize(
    "values",
    [
        [0.0, 1.0],
        [-torch.inf, -torch.inf],
        [-torch.inf, 2.0],
        [torch.inf, 2.0],
        [torch.inf, -torch.inf],
        [torch.nan, 2.0],
        [1e30, -1e30],
    ],
)
def test_sum_of_exponentials_at_the_edges(values):
    values = torch.tensor(values).reshape(1, 2, 1)
    expected = values.logsumexp(1)
    torch.testing.assert_close(_log_sum_exp(values), expected, equal_nan=True)
