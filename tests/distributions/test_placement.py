import pytest
import torch

from prerank import numerics
from prerank.distributions.reparameterisation import place_columns


def _inputs(rows=6, components=3, dim=2, size=7, dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    loc = torch.randn(rows, components, dim, generator=g, dtype=dtype)
    factor = torch.randn(rows, components, dim, dim, generator=g, dtype=dtype).tril()
    ratio = torch.rand(rows, components, generator=g, dtype=dtype)
    component = torch.randint(components, (rows, size), generator=g)
    normal = torch.randn(rows, dim, size, generator=g, dtype=dtype)
    return loc, factor, ratio, component, normal


@pytest.mark.parametrize("limit", [1, 100, 2**18])
def test_every_draw_has_the_map_of_its_component(monkeypatch, limit):
    monkeypatch.setattr(numerics, "_CPU_VALUES", limit)
    loc, factor, ratio, component, normal = _inputs()
    points, weights = place_columns(loc, factor, ratio, component, normal)
    for row in range(len(loc)):
        for s in range(normal.shape[-1]):
            k = component[row, s]
            expected = loc[row, k] + factor[row, k] @ normal[row, :, s]
            torch.testing.assert_close(points[row, :, s], expected)
            assert weights[row, s] == ratio[row, k]


@pytest.mark.parametrize("limit", [1, 2**18])
def test_gradients(monkeypatch, limit):
    monkeypatch.setattr(numerics, "_CPU_VALUES", limit)
    *parameters, component, normal = _inputs(rows=3)
    parameters = [p.requires_grad_() for p in parameters]
    assert torch.autograd.gradcheck(lambda *p: place_columns(*p, component, normal), parameters)


def test_a_component_that_overflows_leaves_the_draws_of_the_others_alone():
    loc, factor, ratio, component, normal = _inputs(dtype=torch.float32)
    factor[:, 0] = 2e38
    component = component.clamp_min(1)
    points, _ = place_columns(loc, factor, ratio, component, normal)
    assert points.isfinite().all()
