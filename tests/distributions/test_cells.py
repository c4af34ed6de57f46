"""Cells: maps that round, their preimages, spread targets, and which targets get them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prerank.distributions import Atoms, Cells, Levels, find_cells
from prerank.errors import InputError

F64 = torch.float64
N = 20_000


def tensor(*values):
    return torch.tensor(values, dtype=F64)


MAPS = {
    "nearest": Cells.nearest([0.0, 1.0, 5.0]),
    "levels": Levels.at([0.0, 1.0, 5.0], [-0.5, 0.25]),
    "least atom": Atoms.at([0.0], [2.0], least=True, largest=False),
    "atoms inside": Atoms.at([-1.0, 1.0], [0.5, 3.0], least=False, largest=False),
    "largest atom": Atoms.at([1.0, 4.0], [0.5, 3.0], least=False, largest=True),
}


@pytest.mark.parametrize("cells", MAPS.values(), ids=MAPS)
def test_a_map_does_not_decrease_and_preimages_are_where_it_passes_a_value(cells):
    z = torch.linspace(-8, 12, 4001, dtype=F64)
    y = cells.snap(z)
    assert bool((y.diff() >= 0).all())
    targets = torch.cat([cells.values, tensor(-3.0, 0.3, 2.0, 7.0)])
    for target, low, high in zip(targets, *cells.preimage(targets), strict=True):
        # Strict, but for the ends of cells, which rounding puts on either side.
        assert bool((y[z < low - 1e-9] < target).all())
        assert bool((y[z > high + 1e-9] > target).all())
        assert bool((y[(z > low + 1e-9) & (z < high - 1e-9)] == target).all())


@pytest.mark.parametrize("name", ["levels", "least atom", "atoms inside", "largest atom"])
def test_spread_targets_are_rounded_back(name):
    cells = MAPS[name]
    g = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(N, generator=g, dtype=F64)
    y = cells.snap(z)
    spread = cells.spread(y, torch.rand(N, generator=g, dtype=F64))
    torch.testing.assert_close(cells.snap(spread), y, rtol=0, atol=1e-12)
    known = torch.isin(y, cells.values)
    assert torch.equal(cells.snap(spread)[known], y[known])


def test_levels_are_standard_normal_over_the_rows():
    g = torch.Generator().manual_seed(0)
    y = torch.rand(N, generator=g, dtype=F64).mul(4).square().floor()  # 16 values, unequal shares
    cells = find_cells(y)
    spread = cells.spread(y, torch.rand(N, generator=g, dtype=F64)).sort().values
    ideal = torch.special.ndtri((torch.arange(N, dtype=F64) + 0.5) / N)
    # The cells hold exactly the shares of the rows; within them it is a matter of chance.
    inner = slice(N // 100, -N // 100)
    assert float((spread - ideal)[inner].abs().max()) < 5 * 3.7 / N**0.5  # 3.7: sd at 1 %


def test_values_that_are_not_known_count_as_the_nearest():
    cells = Levels.at([0.0, 1.0, 5.0], [-0.5, 0.25])
    spread = cells.spread(tensor(-7.0, 1.4, 99.0), tensor(0.5, 0.5, 0.5))
    assert torch.equal(cells.snap(spread), tensor(0.0, 1.0, 5.0))
    atom = MAPS["least atom"]
    assert torch.equal(atom.snap(atom.spread(tensor(-7.0), tensor(0.5))), tensor(0.0))
    last = MAPS["largest atom"]
    assert torch.equal(last.snap(last.spread(tensor(99.0), tensor(0.5))), tensor(4.0))


def normal(n=400):
    return torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=F64)


def counts(n=400):
    rate = torch.full((n,), 40.0, dtype=F64)
    many = torch.poisson(rate, generator=torch.Generator().manual_seed(0))
    return torch.where(torch.arange(n) % 2 == 0, 0, many)


FOUND = [
    ("normal", normal(), None),
    ("finely rounded", (normal(4000) * 10).round(), None),
    ("coarsely rounded, no value in a third of the rows", (normal(4000) * 4).round(), None),
    ("ties in less than a tenth", torch.cat([normal(), torch.zeros(40)]), None),
    ("an atom inside", torch.cat([normal(), torch.zeros(150)]), "atoms at 0"),
    ("constant", torch.full((100,), 2.5), "always 2.5"),
    ("few rows, all different", torch.arange(15.0), None),
    ("few rows for each value", torch.arange(40.0).remainder(10), None),
    ("grades", normal().round(), "7 values"),
    ("two values", (normal() > 2).double(), "2 values"),
    ("counts with many zeros", counts(), "28 values"),
    ("rain", normal().clamp(min=0), "atoms at 0"),
    ("clipped on both sides", normal(4000).clamp(-0.4, 0.8), "atoms at -0.4, 0.8"),
]


@pytest.mark.parametrize(("y", "words"), [f[1:] for f in FOUND], ids=[f[0] for f in FOUND])
def test_what_is_found(y, words):
    found = find_cells(y)
    assert (found.words() if found else None) == words


def test_atoms_at_the_ends_of_the_range_have_cells_without_an_end():
    found = find_cells(normal(4000).clamp(-0.4, 0.8))
    assert found.snap(tensor(-1e9, 1e9)).tolist() == [-0.4, 0.8]
    inside = find_cells(torch.where(normal(4000).abs() < 1, 0.0, normal(4000)))
    assert inside.snap(tensor(-10.0)) == -10


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.integers(0, 100))
def test_cells_of_any_shares_keep_the_order_of_values(values, seed):
    y = torch.tensor(values, dtype=F64)
    found = find_cells(y)
    if found is not None:
        g = torch.Generator().manual_seed(seed)
        spread = found.spread(y, torch.rand(len(y), generator=g, dtype=F64))
        assert bool((spread[:, None] < spread)[y[:, None] < y].all())


BAD = [
    (lambda: Cells.nearest([]), "values"),
    (lambda: Cells.nearest([1.0, 0.0]), "values"),
    (lambda: Cells.nearest([0.0, float("nan")]), "values"),
    (lambda: Levels.at([0.0, 1.0], [0.0, 1.0]), "edges"),
    (lambda: Levels.at([0.0, 1.0, 2.0], [1.0, 0.0]), "edges"),
    (lambda: Levels.at([0.0, 1.0], [float("nan")]), "edges"),
    (lambda: Atoms.at([0.0], [float("inf")], least=True, largest=False), "widths"),
    (lambda: Atoms.at([0.0], [0.0], least=True, largest=False), "widths"),
]


@pytest.mark.parametrize(("call", "word"), BAD)
def test_bad_cells_are_refused(call, word):
    with pytest.raises(InputError, match=word):
        call()
