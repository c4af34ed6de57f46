"""Pre-ranks of the draws of one row and their gradients, in numba.

Points are `(D, S + 1)`, the observation last; values `(S + 1,)`. See `prerank.preranks` for what is
computed.
"""

import numpy as np

from prerank.numerics.kernels.vectors import (
    HALF,
    ONE,
    TINY,
    TWO,
    ZERO,
    add,
    exp,
    kernel,
    multiply,
    rank,
    spread,
)

__all__ = ["copula", "density", "density_gradient", "dependency", "scale"]

_LOG_2PI = np.float32(np.log(2 * np.pi))
_REFERENCE_EVERY = 4


@kernel()
def _centre(points, centred, variance):
    """Subtract the mean over the targets, and compute their variance."""
    dim, size = points.shape
    mean = np.zeros(size, np.float32)
    variance[:] = ZERO
    for d in range(dim):
        for s in range(size):
            mean[s] += points[d, s]
    for s in range(size):
        mean[s] /= np.float32(dim)
    for d in range(dim):
        for s in range(size):
            centred[d, s] = points[d, s] - mean[s]
            variance[s] += centred[d, s] * centred[d, s]
    for s in range(size):
        variance[s] /= np.float32(dim)


@kernel()
def scale(points, values, slopes):
    """Standard deviations over the targets, and their gradients."""
    dim, size = points.shape
    _centre(points, slopes, values)
    for s in range(size):
        values[s] = np.sqrt(TINY if values[s] < TINY else values[s])  # NaN stays NaN
    for d in range(dim):
        for s in range(size):
            slopes[d, s] /= np.float32(dim) * values[s]


@kernel()
def dependency(points, lag, values, slopes):
    """Minus the variogram over the variance, and its gradients."""
    dim, size = points.shape
    variance = np.empty(size, np.float32)
    _centre(points, slopes, variance)
    values[:] = ZERO
    pairs = np.float32(dim - lag)
    for d in range(dim - lag):
        for s in range(size):
            step = points[d + lag, s] - points[d, s]
            values[s] -= HALF * step * step / pairs
    for s in range(size):
        values[s] /= TINY if variance[s] < TINY else variance[s]
    for d in range(dim):
        for s in range(size):
            slopes[d, s] *= TWO / np.float32(dim) * values[s]
    for d in range(dim - lag):
        for s in range(size):
            step = (points[d + lag, s] - points[d, s]) / pairs
            slopes[d + lag, s] += step
            slopes[d, s] -= step
    for d in range(dim):
        for s in range(size):
            slopes[d, s] = ZERO if variance[s] == ZERO else -slopes[d, s] / variance[s]


@kernel()
def density(points, logits, loc, tril, values, white, shares):
    """Log-densities; whitened points and shares of the components are kept for the gradient."""
    components, dim = loc.shape
    size = points.shape[1]
    for k in range(components):
        constant = logits[k] - HALF * np.float32(dim) * _LOG_2PI
        share = shares[k]
        share[:] = ZERO
        for d in range(dim):
            z = white[k, d]
            for s in range(size):
                z[s] = points[d, s] - loc[k, d]
            add(white[k], d, -ONE, tril[k, d], white[k], 0, d)
            diagonal = tril[k, d, d]
            constant -= np.log(diagonal)
            for s in range(size):
                z[s] /= diagonal
                share[s] += z[s] * z[s]
        for s in range(size):
            share[s] = constant - HALF * share[s]
    highest = shares[0].copy()
    for k in range(1, components):
        for s in range(size):
            highest[s] = max(highest[s], shares[k, s])
    total = np.zeros(size, np.float32)
    for s in range(size):
        highest[s] = highest[s] if abs(highest[s]) < np.inf else ZERO
    for k in range(components):
        for s in range(size):
            shares[k, s] = exp(shares[k, s] - highest[s])
            total[s] += shares[k, s]
    for k in range(components):
        for s in range(size):
            shares[k, s] /= total[s]
    for s in range(size):
        values[s] = np.log(total[s]) + highest[s]


@kernel()
def density_gradient(tril, white, shares, to_values, slopes, to_logits, to_loc, to_tril):
    """Gradients of the points, and what the density itself adds to those of the parameters."""
    components, dim, size = white.shape
    solved = np.empty((dim, size), np.float32)
    slopes[:] = ZERO
    for k in range(components):
        share = shares[k]
        total = ZERO
        for s in range(size):
            share[s] *= to_values[s]
            total += share[s]
        to_logits[k] += total
        for d in range(dim - 1, -1, -1):
            u = solved[d]
            for s in range(size):
                u[s] = share[s] * white[k, d, s]
            add(solved, d, -ONE, tril[k, :, d], solved, d + 1, dim)
            diagonal = tril[k, d, d]
            along = ZERO
            for s in range(size):
                u[s] /= diagonal
                along += u[s]
                slopes[d, s] -= u[s]
            to_loc[k, d] += along
            to_tril[k, d, d] -= total / diagonal
            multiply(to_tril[k], solved, d, white[k], 0, size)


@kernel()
def copula(points, weights, ties, turn, tau, slopes, to_weights):
    """Rank of the smooth number of references below, with gradients of points and weights.

    Every fourth draw is a reference. The other points come in the order of their ties: the
    observation, then the draws as `prerank.pits.smooth` puts them side by side.
    """
    dim, size = len(points), len(weights)
    held = 1 + (size - 1) // _REFERENCE_EVERY
    ranked = size - held
    place = _parted(size, turn)
    scaled = np.empty((dim, size + 1), np.float32)
    widths, share = np.empty(dim, np.float32), np.empty(size, np.float32)
    for d in range(dim):
        widths[d] = spread(points[d], weights) / tau
        for i in range(size + 1):
            scaled[d, i] = points[d, place[i]] / widths[d]
    for i in range(size):
        share[i] = weights[place[i]]
    part = share[:held], share[held:]
    totals = _normalise(part[0]), _normalise(part[1])
    # Exponentials of minus the differences, target by target, and products of the sigmoids.
    apart = np.empty((dim, held, ranked + 1), np.float32)
    product = np.ones((held, ranked + 1), np.float32)
    counts = np.zeros(ranked + 1, np.float32)
    number = np.float32(held)
    for r in range(held):
        below, weight = product[r], number * share[r]
        for d in range(dim):
            reference, own, above = scaled[d, r], scaled[d, held:], apart[d, r]
            for i in range(ranked + 1):
                sigmoid = ONE / (ONE + exp(reference - own[i]))
                above[i] = ONE - sigmoid
                below[i] *= sigmoid
        for i in range(ranked + 1):
            counts[i] += weight * below[i]
    values, to_values = np.empty(ranked + 1, np.float32), np.empty(ranked + 1, np.float32)
    for i in range(ranked + 1):
        counts[i] += ONE + ties[(i + 1) % (ranked + 1)]
        values[i] = np.log(counts[i])
    to_share = np.empty(size, np.float32)
    ranks = rank(values, part[1], tau, to_values, to_share[held:])
    scaled[:] = ZERO  # from here on gradients
    for i in range(ranked + 1):
        to_values[i] /= counts[i]
    for r in range(held):
        below, weight, total = product[r], number * share[r], ZERO
        for i in range(ranked + 1):
            below[i] *= to_values[i]
            total += below[i]
        to_share[r] = number * total
        for d in range(dim):
            to_own, above, along = scaled[d, held:], apart[d, r], ZERO
            for i in range(ranked + 1):
                slope = weight * below[i] * above[i]
                to_own[i] += slope
                along += slope
            scaled[d, r] = -along
    _through_normalising(part[0], totals[0], to_share[:held])
    _through_normalising(part[1], totals[1], to_share[held:])
    for i in range(size):
        to_weights[place[i]] = to_share[i]
    for d in range(dim):
        for i in range(size):
            slopes[d, place[i]] = scaled[d, i] / widths[d]
    return ranks


@kernel()
def _parted(size, turn):
    """Places of the references, of the other draws, and of the observation."""
    place = np.empty(size + 1, np.int64)
    i = 0
    for start in range(_REFERENCE_EVERY):
        for s in range(start, size, _REFERENCE_EVERY):
            place[i] = (s + turn) % size
            i += 1
    place[size] = size
    return place


@kernel()
def _normalise(weights):
    """Divide by the sum, which is returned; weights that are all zero stay so."""
    total = ZERO
    for s in range(len(weights)):
        total += weights[s]
    total = total if total > ZERO else ONE
    for s in range(len(weights)):
        weights[s] /= total
    return total


@kernel()
def _through_normalising(weights, total, gradient):
    """Turn gradients of normalised weights into those of the weights before."""
    common = ZERO
    for s in range(len(weights)):
        common += weights[s] * gradient[s]
    for s in range(len(weights)):
        gradient[s] = (gradient[s] - common) / total
