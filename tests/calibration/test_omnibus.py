"""The omnibus test: exact size, and power for dependence that no named pre-rank is made for."""

import pytest
import torch

from prerank.calibration.omnibus import omnibus_test
from prerank.errors import ShapeError

ROWS, MEMBERS = 300, 40


def pools(generator, targets):
    return torch.rand(MEMBERS, ROWS, targets, generator=generator)


def equal_sizes(generator):
    """Two of three targets differ in their sign alone, which is random."""
    x = torch.randn(ROWS, 3, generator=generator)
    x[:, 1] = x[:, 0].abs() * x[:, 1].sign()
    return torch.special.ndtr(x)


def parity(generator):
    """Any two of three targets are independent; the sign of one is the product of the others'."""
    x = torch.randn(ROWS, 3, generator=generator)
    x[:, 2] = x[:, 2].abs() * (x[:, 0] * x[:, 1]).sign()
    return torch.special.ndtr(x)


def rejections(draw, data_sets, level=0.05):
    found = []
    for seed in range(data_sets):
        g = torch.Generator().manual_seed(seed)
        z = draw(g)
        found.append(omnibus_test(z, pools(g, z.shape[1]), n_null=99, generator=seed).p_value)
    return sum(p <= level for p in found) / data_sets


@pytest.mark.slow
@pytest.mark.parametrize("ties", [False, True])
def test_size(ties):
    """Calibrated forecasts, also with many ties, which are ordered at random."""

    def draw(generator):
        return torch.rand(ROWS, 2, generator=generator)

    def tied(generator):
        return (10 * draw(generator)).floor() / 10 + 0.1 * draw(generator)

    n = 200
    # 4 standard errors of a share of n data sets, above the exact level.
    assert rejections(tied if ties else draw, n) <= 0.05 + 4 * (0.05 * 0.95 / n) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "power"), [(equal_sizes, 0.8), (parity, 0.5)])
def test_power(draw, power):
    """In 40 data sets; measured: .95 and .80, with standard errors of .03 and .06."""
    assert rejections(draw, 40) >= power


def test_a_seed_reproduces_the_test_and_every_part_has_a_p_value():
    g = torch.Generator().manual_seed(0)
    z, pool = equal_sizes(g), pools(g, 3)
    first, again = (omnibus_test(z, pool, n_null=99, generator=3) for _ in range(2))
    assert first == again
    assert set(first.parts) == {"sliced", "max-sliced", "energy"}
    assert min(first.parts.values()) <= first.p_value <= 1
    assert "300 rows" in str(first)


def test_blocks_of_rows_add_up(monkeypatch):
    """The observed statistics do not depend on the blocks, so a clear fault is one in all."""
    g = torch.Generator().manual_seed(0)
    z, pool = torch.special.ndtr(1.5 * torch.randn(ROWS, 2, generator=g)), pools(g, 2)
    monkeypatch.setattr("prerank.calibration.omnibus._BLOCK_VALUES", 2**16)
    assert omnibus_test(z, pool, n_null=99, generator=0).p_value == 0.01


@pytest.mark.parametrize("shape", [(10,), (10, 1), (9, 2)])
def test_shapes_are_named(shape):
    with pytest.raises(ShapeError, match="null_pits"):
        omnibus_test(torch.rand(shape), torch.rand(5, 10, 2))
