r"""The PCE of a calibrated forecast, p-values from it, and their correction for many tests.

Randomised PITs of a calibrated forecast are exactly uniform, whatever the number of samples and
however many ties, so one component has a universal null: the PCE of n uniforms. Only the numbers of
PITs between neighbouring levels matter, and these are multinomial.

The components of one pre-rank are dependent in a way that the predictor fixes, so their mean has no
universal null. But each row comes with a pool of points that are exchangeable with the observation
if the predictor is right: the samples it was ranked among, or fresh draws where a closed form was
used. Letting a random member of the pool take the observation's place, in every row independently,
gives replicates that are exchangeable with the observed statistic, so

.. math:: p = \frac{1 + \#\{\text{null} \ge \text{observed}\}}{B + 1}

is valid for every n, S and B, ties and dependence included, where the whole forecast is right:
targets that are right one by one and vary together otherwise than predicted can make it small,
which they cannot do to the p-value of a single component. Rows are assumed independent of each
other; serial or spatial dependence between rows makes p too small.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prerank.calibration.curves import level_index, pce_of_curve
from prerank.defaults import LEVELS, NULL_REPLICATES
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_count, as_generator

__all__ = ["component_null", "holm", "null_pce", "p_value", "sequential_p_value"]

_CHUNK_VALUES = 2**22
_ROUNDING = 1e-12  # sums in another order must not turn a tie into a rejection


def null_pce(
    n: int, *, levels: int = LEVELS, n_null: int = NULL_REPLICATES
) -> npt.NDArray[np.float64]:
    """Draw the PCE of n independent uniforms `n_null` times; sorted, cached, read-only.

    Args:
        n: number of PITs.
        levels: as in `pce`.
        n_null: number of replicates, B.

    Example:
        >>> null = null_pce(300)
        >>> null.shape, round(float(null.mean()), 4)
        ((50000,), 0.0178)
    """
    return _null(
        as_count(n, "n", minimum=1),
        as_count(levels, "levels", minimum=2),
        as_count(n_null, "n_null", minimum=1),
    )


@lru_cache(maxsize=64)
def _null(n: int, levels: int, n_null: int) -> npt.NDArray[np.float64]:
    bins = levels - 1
    rng = np.random.default_rng([n, levels, n_null])
    counts = rng.multinomial(n, np.full(bins, 1 / bins), n_null)
    curve = counts.cumsum(1) / n
    # Levels 0 and 1 never deviate but count in the mean.
    values = np.abs(curve - np.linspace(0, 1, levels)[1:]).sum(1) / levels
    values.sort()
    values.setflags(write=False)
    return values


def component_null(
    z: Tensor,
    null_pits: Tensor,
    *,
    levels: int = LEVELS,
    n_null: int = 1000,
    generator: torch.Generator | int | None = None,
) -> Tensor:
    """Replicates of the mean PCE over dependent components, given each row's pool.

    Args:
        z: PITs of the observations, `(N, J)`.
        null_pits: PITs of the other members of each pool, `(R, N, J)`.
        levels: as in `pce`.
        n_null: number of replicates, B.
        generator: source of the choices.

    Returns:
        `(n_null,)`, in float64.
    """
    if z.dim() != 2 or null_pits.shape[1:] != z.shape:
        raise ShapeError(
            f"z must be (N, J) and null_pits (R, N, J), got {tuple(z.shape)} and "
            f"{tuple(null_pits.shape)}"
        )
    cells = torch.cat([level_index(z.unsqueeze(0), levels), level_index(null_pits, levels)])
    drawn = stand_in_keys(cells, n_cells=levels, n_null=n_null, generator=generator)
    curves = (key_counts(keys, levels).double().cumsum(-1).mT / len(z) for keys in drawn)
    return torch.cat([pce_of_curve(curve).mean(-1) for curve in curves])


def stand_in_keys(
    cells: Tensor, *, n_cells: int, n_null: int, generator: torch.Generator | int | None
) -> Iterator[Tensor]:
    """Let a random member of each pool take the observation's place, n_null times.

    Args:
        cells: which of `n_cells` cells each PIT of each member lies in, `(1 + R, N, J)`.
        n_cells: their number, L.
        n_null: number of replicates.
        generator: source of the choices.

    Yields:
        Keys `j L + cell` of the chosen members, `(b, N, J)`, some replicates at a time.
    """
    source = as_generator(generator, "null")
    device = "cpu" if source is None else source.device
    members, n, components = cells.shape
    # One range of keys for each component, as small as they come: the table is read at random.
    small = components * n_cells <= torch.iinfo(torch.int16).max
    offset = torch.arange(components, device=cells.device) * n_cells
    table = (cells + offset).to(torch.int16 if small else torch.int32).reshape(-1, components)
    rows = torch.arange(n, device=cells.device)
    step = max(1, _CHUNK_VALUES // (max(n, n_cells) * components))
    for start in range(0, as_count(n_null, "n_null", minimum=1), step):
        b = min(step, n_null - start)
        choice = torch.randint(members, (b, n), generator=source, device=device).to(cells.device)
        chosen = table.index_select(0, (choice * n + rows).flatten())
        yield chosen.to(torch.int32).reshape(b, n, components)


def key_counts(keys: Tensor, n_cells: int) -> Tensor:
    """Number of PITs in each cell, `(b, J, L)`, from keys `(b, N, J)` of `stand_in_keys`."""
    b, _, components = keys.shape
    replicate = torch.arange(b, device=keys.device, dtype=torch.int32).reshape(b, 1, 1)
    keys = keys + components * n_cells * replicate
    counts = torch.bincount(keys.flatten(), minlength=b * components * n_cells)
    return counts.reshape(b, components, n_cells)


def p_value(observed: float, null: npt.ArrayLike) -> float:
    """One-sided Monte Carlo p-value, `(1 + #{null >= observed}) / (B + 1)`.

    Example:
        >>> p_value(0.5, [0.1, 0.2, 0.3])
        0.25
    """
    values = np.asarray(null, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or bool(np.isnan(values).any()):
        raise InputError("null must be a vector of replicates without NaN")
    if np.isnan(observed):
        return float("nan")
    return float((1 + np.count_nonzero(values >= observed - _ROUNDING)) / (len(values) + 1))


def sequential_p_value(
    observed: float, replicates: Iterable[Tensor], *, most: int, enough: int = 100
) -> float:
    r"""Monte Carlo p-value from no more replicates than it needs (Besag and Clifford, 1991).

    .. math:: p = \begin{cases} h / \ell & \text{if replicate } \ell \le B \text{ is the } h
              \text{-th that is} \ge \text{the observed number}, \\
              (1 + g) / (B + 1) & \text{if only } g < h \text{ of B are.} \end{cases}

    Both are valid, :math:`P(p \le a) \le a`, if the observed number and the replicates are
    exchangeable: p is a function of their order alone. Its relative standard error is about
    :math:`1 / \sqrt h`.

    Args:
        observed: statistic, large where extreme.
        replicates: of the statistic, some at a time, `(b,)`; as many as are asked for.
        most: B, number of replicates after which to stop.
        enough: h, number of replicates that are at least as large after which to stop.

    Example:
        >>> sequential_p_value(0.5, [torch.tensor([0.1, 0.7, 0.2, 0.9])], most=9, enough=2)
        0.5
        >>> sequential_p_value(0.5, [torch.linspace(0, 0.4, 9)], most=9)
        0.1
    """
    larger = drawn = 0
    for values in replicates:
        exceeds = values[: most - drawn] >= observed - _ROUNDING * abs(observed)
        at = exceeds.nonzero().flatten()
        if larger + len(at) >= enough:
            return enough / (drawn + int(at[enough - larger - 1]) + 1)
        larger, drawn = larger + len(at), drawn + len(exceeds)
        if drawn >= most:
            break
    return (1 + larger) / (drawn + 1)


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
