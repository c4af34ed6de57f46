import pytest
import torch

from prerank import energy_score
from prerank.distributions import Ensemble
from prerank.numerics.norms import by_coordinate, pair_distances


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
