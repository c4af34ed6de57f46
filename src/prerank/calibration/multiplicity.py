"""Many tests at once."""

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError

__all__ = ["holm"]


def holm(p_values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    r"""Holm's step-down correction: valid whatever the dependence between the tests.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min\{(m - j + 1)\, p_{(j)},\, 1\}.

    Args:
        p_values: `(m,)`; NaN marks tests that were not made, and stays NaN.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64)
    made = ~np.isnan(p)
    if p.ndim != 1 or bool(((p[made] < 0) | (p[made] > 1)).any()):
        raise InputError(f"p_values must be a vector of numbers in [0, 1], got shape {p.shape}")
    order = np.flatnonzero(made)[np.argsort(p[made], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full_like(p, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted
