"""Norms, distances, eigenvectors and inverses of small matrices."""

import pytest
import torch

from prerank import energy_score
from prerank.distributions import Ensemble
from prerank.numerics.matrices import (
    by_coordinate,
    pair_distances,
    powers_of_two,
    row_norms,
    symmetric_eigen,
    triangular_inverse,
)


@pytest.mark.parametrize("distances", [pair_distances, by_coordinate])
@pytest.mark.parametrize("dim", [1, 2, 5, 70])
def test_distances_are_norms_of_differences(distances, dim):
    a, b = torch.randn(3, 4, 6, dim), torch.randn(3, 4, 5, dim)
    kept = a.clone(), b.clone()
    naive = torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), dim=-1)
    torch.testing.assert_close(distances(a, b), naive)
    assert torch.equal(a, kept[0])
    assert torch.equal(b, kept[1])


@pytest.mark.parametrize("distances", [pair_distances, by_coordinate])
def test_close_points_keep_their_digits(distances):
    # Products would give 0 here: the squares of the points have 14 digits, float32 has 7.
    a = torch.tensor([[4096.0, 4096.0], [4096.0, 4096.5]])
    assert distances(a, a).tolist() == [[0, 0.5], [0.5, 0]]


def test_points_that_meet_have_no_gradient():
    points = torch.tensor([[1.0, 2.0], [1.0, 2.0], [4.0, 6.0]], requires_grad=True)
    pair_distances(points, points).sum().backward()
    torch.testing.assert_close(points.grad, torch.tensor([[-1.2, -1.6], [-1.2, -1.6], [2.4, 3.2]]))


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [1, 3, 70])
def test_energy_score_on_a_gpu(dim):
    members, y = torch.randn(40, 500, dim), torch.randn(500, dim)
    found = energy_score(Ensemble(members.cuda()), y.cuda()).cpu()
    torch.testing.assert_close(found, energy_score(Ensemble(members), y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_of_numbers_of_any_size(dtype):
    info = torch.finfo(dtype)
    plain = torch.tensor([[3.0, 4.0, 0.0], [-1.0, 2.0, 2.0], [0.0, 0.0, 0.0]], dtype=dtype)
    for size in (1.0, 4 * info.tiny, info.max / 16, info.max**0.75):
        unit = float(powers_of_two(torch.tensor(size, dtype=dtype)))
        matrix = (unit * plain).requires_grad_()
        norms = row_norms(matrix)
        assert torch.equal(norms / unit, torch.tensor([5.0, 3.0, 0.0], dtype=dtype))
        (slope,) = torch.autograd.grad(norms.sum(), matrix)
        torch.testing.assert_close(slope, plain / norms.detach().clamp_min(unit)[:, None] * unit)


def test_slopes_of_norms():
    matrix = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(row_norms, matrix)
    assert torch.autograd.gradgradcheck(row_norms, matrix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_powers_of_two_are_exact(dtype):
    exponents = torch.arange(-149 if dtype == torch.float32 else -1074, 128, 7)
    powers = torch.ldexp(torch.ones(len(exponents), dtype=torch.float64), exponents).to(dtype)
    assert torch.equal(powers_of_two(powers), powers)
    assert torch.equal(powers_of_two(1.999 * powers[9:]), powers[9:])


def _matrices(*batch, dim=4):
    factor = torch.randn(*batch, dim, dim, dtype=torch.float64)
    return factor @ factor.mT


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_vectors_are_rows_in_descending_order(dim):
    matrices = _matrices(7, dim=dim)
    values, vectors = symmetric_eigen(matrices)
    assert (values[:, 1:] <= values[:, :-1]).all()
    torch.testing.assert_close(vectors @ matrices @ vectors.mT, torch.diag_embed(values))


def test_a_matrix_with_nan_does_not_spoil_the_others():
    matrices = _matrices(3)
    whole = symmetric_eigen(matrices)
    matrices[1, 0, 0] = torch.nan
    values, vectors = symmetric_eigen(matrices)
    assert values[1].isnan().all()
    assert vectors[1].isnan().all()
    for part in (0, 2):
        torch.testing.assert_close(values[part], whole[0][part])


def test_entries_whose_sum_overflows():
    values, _ = symmetric_eigen(torch.diag(torch.tensor([3e38, 2e38])))
    torch.testing.assert_close(values, torch.tensor([3e38, 2e38]))


def test_vmap():
    matrices = _matrices(3, 2)
    mapped = torch.func.vmap(symmetric_eigen)(matrices)
    torch.testing.assert_close(mapped, symmetric_eigen(matrices))


@pytest.mark.parametrize("dim", [1, 3, 12])
def test_inverse_and_gradients(dim):
    factor = torch.randn(5, dim, dim, dtype=torch.float64).tril() * 0.3 + 2 * torch.eye(dim)
    eye = torch.eye(dim, dtype=torch.float64).expand(5, -1, -1)
    torch.testing.assert_close(triangular_inverse(factor) @ factor, eye)
    factor.requires_grad_()
    assert torch.autograd.gradcheck(lambda f: triangular_inverse(f.tril()), factor)
    assert torch.autograd.gradgradcheck(lambda f: triangular_inverse(f.tril()), factor)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_inverse_of_rows_of_any_size(device):
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(5, 3, 3, generator=generator).tril() * 0.3 + 2 * torch.eye(3)
    gradient = torch.randn(5, 3, 3, generator=generator)
    units = torch.tensor([2.0**-100, 1.0, 2.0**100])

    def measured(units):
        factor = (plain * units[:, None]).to(device).requires_grad_()
        inverse = triangular_inverse(factor)
        (slope,) = torch.autograd.grad(inverse, factor, (gradient * units).to(device))
        return inverse.detach().cpu() * units, slope.cpu() * units[:, None]

    for found, expected in zip(measured(units), measured(torch.ones(3)), strict=True):
        torch.testing.assert_close(found, expected)
