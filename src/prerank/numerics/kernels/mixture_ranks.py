"""Smooth ranks of observations among stratified draws of Gaussian mixtures, row by row, in numba.

What `GaussianMixture.stratify`, the pre-rank and `smooth_rank` do one after another for all rows is
done here for one row after another: its draws stay in the cache of the processor, and each rank is
differentiated on the spot. Arithmetic is in float32, sums of squares in float64. A draw lies at its
place in the systematic sweep, so that each component has a range of them; the observation comes
last. Points are `(D, S + 1)`, values `(S + 1,)`, ranges `(K + 1,)`.
"""

import numpy as np

from prerank.numerics.kernels.mixture_preranks import (
    copula,
    density,
    density_gradient,
    dependency,
    scale,
)
from prerank.numerics.kernels.vectors import TINY, ZERO, kernel, multiply, rank

__all__ = ["COPULA", "DEPENDENCY", "HDR", "SCALE", "rank_rows"]

SCALE, DEPENDENCY, HDR, COPULA = range(4)


@kernel()
def rank_rows(
    kind, lag, tau, logits, loc, tril, observed, noise, normal, ties, ranks, gradients, to_tril
):
    """Write ranks `(rows,)`, and their gradients unless `gradients` has no rows.

    Args:
        kind: of the pre-rank.
        lag: of the dependency.
        tau: sharpness.
        logits: `(rows, K)`, normalised.
        loc: `(rows, K, D)`.
        tril: `(rows, K, D, D)`.
        observed: `(rows, D)`.
        noise: offset and start of the sweep, `(2, N)`; row r takes the noise of row r mod N.
        normal: `(N, D, S)`.
        ties: uniforms of the copula, `(N, points)`, else `(1, 1)`.
        ranks: written.
        gradients: of logits and of locations, `(rows, K, D + 1)`; written.
        to_tril: gradients of the factors, `(rows, K, D, D)`; written.
    """
    rows, components, dim = loc.shape
    period, _, size = normal.shape
    points = np.empty((dim, size + 1), np.float32)
    slopes = np.empty((dim, size + 1), np.float32)  # of T, then of the rank
    columns = np.empty((dim, size), np.float32)
    values, to_values = np.empty(size + 1, np.float32), np.empty(size + 1, np.float32)
    weights, to_weights = np.empty(size, np.float32), np.empty(size, np.float32)
    ratio, first = np.empty(components, np.float32), np.empty(components + 1, np.uint64)
    dense = components if kind == HDR else 0
    white = np.empty((dense, dim, size + 1), np.float32)
    shares = np.empty((dense, size + 1), np.float32)
    for row in range(rows):
        source = row % period
        turn = _allocate(logits[row], noise[0, source], noise[1, source], ratio, first, weights)
        _turned(normal[source], turn, columns)
        _place(loc[row], tril[row], columns, first, points)
        points[:, size] = observed[row]
        if kind == COPULA:
            tie = ties[source % len(ties)]
            ranks[row] = copula(points, weights, tie, turn, tau, slopes, to_weights)
        else:
            if kind == SCALE:
                scale(points, values, slopes)
            elif kind == DEPENDENCY:
                dependency(points, lag, values, slopes)
            else:
                density(points, logits[row], loc[row], tril[row], values, white, shares)
            ranks[row] = rank(values, weights, tau, to_values, to_weights)
        if len(gradients):
            to_logits, to_loc = gradients[row, :, 0], gradients[row, :, 1:]
            gradients[row], to_tril[row] = ZERO, ZERO
            if kind == HDR:
                density_gradient(
                    tril[row], white, shares, to_values, slopes, to_logits, to_loc, to_tril[row]
                )
            elif kind != COPULA:
                _chain(slopes, to_values)
            _pull_back(slopes, columns, first, to_loc, to_tril[row])
            _weigh(to_weights, ratio, first, to_logits)


@kernel()
def _chain(slopes, to_values):
    for d in range(len(slopes)):
        for s in range(len(to_values)):
            slopes[d, s] *= to_values[s]


@kernel()
def _weigh(to_weights, ratio, first, to_logits):
    """Add the gradients of the logits through the weights of the draws."""
    for k in range(len(ratio)):
        total = ZERO
        for s in range(first[k], first[k + 1]):
            total += to_weights[s]
        to_logits[k] += ratio[k] * total


@kernel()
def _allocate(logits, offset, start, ratio, first, weights):
    """Ranges and weights of the components, and how far the sweep is turned."""
    components, size = len(logits), len(weights)
    n = np.float32(size)
    first[:] = size
    first[0] = 0
    k, edge = 0, np.exp(logits[0])
    for s in range(size):
        while k < components - 1 and (np.float32(s) + offset) / n >= edge:
            k += 1
            first[k] = s
            edge += np.exp(logits[k])
    for k in range(components):
        share = np.exp(logits[k])
        ratio[k] = share / (n * max(share, TINY))
        weights[first[k] : first[k + 1]] = ratio[k]
    return int(np.floor(n * start)) % size


@kernel()
def _turned(normal, turn, columns):
    """Normals at the places of their draws in the sweep."""
    size = columns.shape[1]
    for d in range(len(columns)):
        for s in range(turn):
            columns[d, s] = normal[d, size - turn + s]
        for s in range(size - turn):
            columns[d, turn + s] = normal[d, s]


@kernel()
def _place(loc, tril, columns, first, points):
    components, dim = loc.shape
    for k in range(components):
        start, stop = first[k], first[k + 1]
        for d in range(dim):
            for s in range(start, stop):
                points[d, s] = loc[k, d]
            whole = (d + 1) // 4 * 4
            for e in range(0, whole, 4):
                f, g = tril[k, d, e], tril[k, d, e + 1]
                h, i = tril[k, d, e + 2], tril[k, d, e + 3]
                for s in range(start, stop):
                    points[d, s] += (f * columns[e, s] + g * columns[e + 1, s]) + (
                        h * columns[e + 2, s] + i * columns[e + 3, s]
                    )
            for e in range(whole, d + 1):
                f = tril[k, d, e]
                for s in range(start, stop):
                    points[d, s] += f * columns[e, s]


@kernel()
def _pull_back(slopes, columns, first, to_loc, to_tril):
    """Add the gradients of locations and factors, given those of the points."""
    components, dim = to_loc.shape
    for k in range(components):
        to_factor = to_tril[k]
        for d in range(dim):
            total = ZERO
            for s in range(first[k], first[k + 1]):
                total += slopes[d, s]
            to_loc[k, d] += total
            multiply(to_factor, slopes, d, columns, first[k], first[k + 1])
