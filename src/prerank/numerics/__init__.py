"""Arithmetic that knows nothing of distributions: small matrices, blocks of rows, gradients."""

from prerank.numerics.blocks import join, row_blocks
from prerank.numerics.eigen import symmetric_eigen
from prerank.numerics.functions import QuickFunction
from prerank.numerics.norms import pair_distances, row_norms
from prerank.numerics.triangular import triangular_inverse

__all__ = [
    "QuickFunction",
    "join",
    "pair_distances",
    "row_blocks",
    "row_norms",
    "symmetric_eigen",
    "triangular_inverse",
]
