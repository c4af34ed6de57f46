"""Arithmetic that knows nothing of distributions: small matrices, blocks of rows, gradients."""

from prerank.numerics.matrices import pair_distances, row_norms, symmetric_eigen, triangular_inverse
from prerank.numerics.operations import QuickFunction, join, row_blocks

__all__ = [
    "QuickFunction",
    "join",
    "pair_distances",
    "row_blocks",
    "row_norms",
    "symmetric_eigen",
    "triangular_inverse",
]
