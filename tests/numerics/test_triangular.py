import pytest
import torch

from prerank.numerics import triangular_inverse


@pytest.mark.parametrize("dim", [1, 3, 12])
def test_inverse_and_gradients(dim):
    factor = torch.randn(5, dim, dim, dtype=torch.float64).tril() * 0.3 + 2 * torch.eye(dim)
    eye = torch.eye(dim, dtype=torch.float64).expand(5, -1, -1)
    torch.testing.assert_close(triangular_inverse(factor) @ factor, eye)
    factor.requires_grad_()
    assert torch.autograd.gradcheck(lambda f: triangular_inverse(f.tril()), factor)
    assert torch.autograd.gradgradcheck(lambda f: triangular_inverse(f.tril()), factor)
