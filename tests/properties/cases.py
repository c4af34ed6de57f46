"""What the tests under stress have in common: sizes, units, and laws in both."""

import torch
from torch import Tensor

from prerank import GaussianMixture
from truths import gaussian_mixture

DTYPES = [torch.float32, torch.float64]

# Powers of two near 1e-12, 1e-6, 1e6 and 1e12: they change no digit of any number, so what does not
# depend on units stays the same to the last bit unless something underflows or overflows.
UNITS = [2.0**-40, 2.0**-20, 2.0**20, 2.0**40]

# Targets and components.
SIZES = [(1, 1), (2, 3), (3, 50), (16, 5), (64, 2)]


def mixture(
    rows: int, size: tuple[int, int], dtype: torch.dtype = torch.float64, unit: float = 1.0
) -> GaussianMixture:
    """The same law in other units and another precision."""
    law = gaussian_mixture(rows, dim=size[0], components=size[1], seed=1)
    loc, factor = unit * law.loc.to(dtype), unit * law.scale_tril.to(dtype)
    return GaussianMixture(law.logits.to(dtype), loc, factor)


def observations(rows: int, size: tuple[int, int], dtype: torch.dtype = torch.float64) -> Tensor:
    """Drawn from that law, with the digits of float32 alone."""
    return mixture(rows, size).sample(generator=2).float().to(dtype)


def same(found: Tensor, expected: Tensor, error: float) -> None:
    """Equal up to an error relative to the largest value; 0 asks for the same normal numbers."""
    assert bool(torch.isfinite(found).all())
    # What is below the smallest normal number in some units has few digits or none there.
    smallest = max(UNITS) * torch.finfo(found.dtype).tiny
    bound = smallest + error * float(expected.double().abs().max())
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=bound)
