import pytest
import torch

from prerank.numerics import symmetric_eigen


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
