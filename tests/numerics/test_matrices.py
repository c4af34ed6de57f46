"""Norms, distances, eigenvectors and inverses of small matrices."""

import pytest
import torch

from prerank import energy_score
from prerank.distributions import Ensemble
from prerank.numerics.matrices import (
    by_coordinate,
    pair_distances,
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
