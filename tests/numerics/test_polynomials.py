"""Legendre polynomials."""

import torch

from prerank.numerics.polynomials import legendre


def test_legendre_polynomials_are_orthonormal():
    x = 2 * (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000 - 1
    values = legendre(x, 5)
    gram = values.T @ values / len(x)
    torch.testing.assert_close(gram, torch.eye(5).double(), atol=1e-8, rtol=0)
    assert values.mean(0).abs().max() < 1e-8
