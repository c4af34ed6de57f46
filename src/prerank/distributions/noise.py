r"""Noise: from torch's generators, or as a pure function of seed, step and position.

Noise for PITs and scores has shape `(n, *stack, N, ...)`: fresh for each of n draws and N rows. In
memory the draws come last, so that sums over targets or components run along contiguous draws. A
torch generator gives one set that the whole stack shares (common random numbers).
`RunNoise` gives each run of a stack its own, which depends on nothing but the run's seed and the
step: not on the run's place in the stack, on the size of the stack, on the device, or on what was
drawn before an interruption. `RowNoise` gives each row of one predictor its own, which depends on
nothing but a seed and the number of the row: not on the batch that it comes in.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prerank.errors import ShapeError
from prerank.inputs import as_generator
from prerank.numerics.kernels import compilable, numba_kernels

__all__ = ["Noise", "RowNoise", "RunNoise", "as_noise", "row_normal", "row_uniform"]


class RunNoise:
    r"""Counter-based noise for a stack of M runs.

    Value c of stream t of a run is a hash of (seed, step, t, c): two rounds of xor-shift-multiply
    on 32-bit integers,

    .. math:: h \mapsto (h \oplus h_{\gg a}) \cdot p, \quad h \mapsto (h \oplus h_{\gg b}) \cdot q,
              \quad h \mapsto h \oplus h_{\gg 16},

    keyed before each round with half of a 64-bit hash of (seed, step, t). Integer arithmetic wraps
    alike on every device; on a GPU without Triton the noise is made on the CPU and moved, so that
    steps cannot be recorded as graphs. Normals come from pairs of uniforms by the Box-Muller
    transform.

    Args:
        seeds: `(M,)`, int64. Runs with equal seeds get equal noise.
        step: number of the step, an int or an int64 tensor `()`, which must not change between
            draws. (A graph that was recorded with these draws reads it anew in every replay.)

    Example:
        >>> noise = RunNoise(torch.tensor([7, 8]), step=3)
        >>> alone = RunNoise(torch.tensor([8]), step=3)
        >>> torch.equal(noise.normal((10, 4))[1], alone.normal((10, 4))[0])
        True
    """

    def __init__(self, seeds: Tensor, step: int | Tensor) -> None:
        self.seeds = seeds
        self.step = step
        self._streams = 0
        self._base: NDArray[np.uint64] | None = None

    def normal(self, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """Standard normals `(M, *shape)`."""
        return self._values(math.prod(shape), dtype, normal=True).reshape(-1, *shape)

    def uniform(self, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """Uniforms in (0, 1), `(M, *shape)`."""
        return self._values(math.prod(shape), dtype, normal=False).reshape(-1, *shape)

    def seed(self) -> int:
        """A seed for a generator that is not ours, for one run at a time."""
        if len(self.seeds) != 1:
            raise ShapeError(
                f"a distribution that draws its own noise can only be used for one run at a time, "
                f"not for {len(self.seeds)}"
            )
        return int(self._key()[0]) & (2**62 - 1)

    def _stream(self) -> int:
        stream, self._streams = self._streams, self._streams + 1
        return stream

    def _key(self) -> NDArray[np.uint64]:
        if self._base is None:
            seeds = np.array(self.seeds.tolist(), np.int64).view(np.uint64)
            self._base = _hash64(_hash64(seeds) + np.uint64(int(self.step) % 2**64))
        return _hash64(self._base + np.uint64(self._stream()))

    def _values(self, count: int, dtype: torch.dtype | None, *, normal: bool) -> Tensor:
        kind = torch.get_default_dtype() if dtype is None else dtype
        if compilable(self.seeds):
            from prerank.numerics.kernels.noise_kernel import run_noise

            return run_noise(self.seeds, self.step, self._stream(), count, kind, normal=normal)
        if not normal:
            return self._uniforms(count, kind)
        half = (count + 1) // 2
        uniform = self._uniforms(2 * half, kind)
        radius = uniform[:, :half].log().mul_(-2).sqrt_()
        angle = uniform[:, half:].mul_(2 * math.pi)
        normals = torch.empty_like(uniform)
        torch.mul(radius, angle.cos(), out=normals[:, :half])
        torch.mul(radius, angle.sin(), out=normals[:, half:])
        return normals[:, :count]

    def _uniforms(self, count: int, kind: torch.dtype) -> Tensor:
        kernels = numba_kernels() if kind == torch.float32 else None
        if kernels is not None and self.seeds.device.type == "cpu":
            values = torch.empty(len(self.seeds), count)
            kernels.uniforms(self._key(), values.numpy())
            return values
        key = self._key()[:, np.newaxis]  # (M, 1)
        counter = np.arange(count, dtype=np.uint32)
        bits = _round32(counter ^ (key >> 32).astype(np.uint32), 13, 0x85EBCA6B, 0xC2B2AE35)
        bits ^= (key & 0x7FFFFFFF).astype(np.uint32)
        bits = _round32(bits, 15, 0x7FEB352D, 0x846CA68B)
        signed = torch.from_numpy(bits.view(np.int32)).to(self.seeds.device)
        # Centred on the 2^32 cells of (0, 1); rounding to float32 must reach neither 0 nor 1.
        return signed.to(kind).mul_(2.0**-32).add_(0.5 + 2.0**-33).clamp_(2.0**-33, 1 - 2.0**-24)


class RowNoise(RunNoise):
    """Noise of the rows of one predictor, by their numbers; the same in all batches.

    Args:
        rows: numbers of the N rows, `(N,)`, int64.
        seed: of all rows.

    Example:
        >>> whole, last = RowNoise(torch.arange(5), 7), RowNoise(torch.tensor([4]), 7)
        >>> like, size = torch.zeros(()), torch.Size
        >>> every = row_normal(3, size([5]), (2,), like=like, noise=whole)  # (3, 5, 2)
        >>> torch.equal(every[:, 4:], row_normal(3, size([1]), (2,), like=like, noise=last))
        True
    """

    def __init__(self, rows: Tensor, seed: int) -> None:
        super().__init__(rows, seed)

    def seed(self) -> int:
        """A seed for a generator that is not ours: that of the first row."""
        return int(self._key()[0]) & (2**62 - 1)


Noise = torch.Generator | RunNoise | None


def as_noise(generator: object) -> Noise:
    """Turn a seed into a generator; pass other sources of noise through."""
    return generator if isinstance(generator, RunNoise) else as_generator(generator, "draw")


def row_normal(
    n: int, batch: torch.Size, tail: tuple[int, ...], *, like: Tensor, noise: Noise
) -> Tensor:
    """Standard normals `(n, *stack, N, *tail)`, broadcastable over the stack of `batch`."""
    return _by_row(n, batch, tail, like, noise, normal=True)


def row_uniform(
    n: int, batch: torch.Size, tail: tuple[int, ...] = (), *, like: Tensor, noise: Noise
) -> Tensor:
    """Uniforms on [0, 1), laid out as by `row_normal`."""
    return _by_row(n, batch, tail, like, noise, normal=False)


def _by_row(
    n: int, batch: torch.Size, tail: tuple[int, ...], like: Tensor, noise: Noise, *, normal: bool
) -> Tensor:
    shape = (batch[-1], *tail, n)
    if not isinstance(noise, RunNoise):
        draw, stack = standard_normal if normal else standard_uniform, [1] * (len(batch) - 1)
        return draw((*stack, *shape), like=like, generator=noise).movedim(-1, 0)
    if isinstance(noise, RowNoise):
        values = (noise.normal if normal else noise.uniform)((*tail, n), like.dtype)
        return values.to(like.device).movedim(-1, 0)
    runs = len(noise.seeds)
    if batch[:-1].numel() != runs:
        raise ShapeError(f"noise for {runs} runs does not fit batch_shape {tuple(batch)}")
    values = noise.normal(shape, like.dtype) if normal else noise.uniform(shape, like.dtype)
    return values.reshape(*batch, *tail, n).movedim(-1, 0)


def standard_normal(
    shape: tuple[int, ...], *, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draw independent N(0, 1) values on the generator's device, then move them to `like`'s."""
    device = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def standard_uniform(
    shape: tuple[int, ...], *, like: Tensor, generator: torch.Generator | RowNoise | None
) -> Tensor:
    """Draw independent uniforms on [0, 1) on the generator's device, then move them."""
    if isinstance(generator, RowNoise):
        n, rows, size = shape
        return row_uniform(n, torch.Size([rows]), (size,), like=like, noise=generator)
    device = like.device if generator is None else generator.device
    return torch.rand(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def _hash64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64."""
    z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x14057B7EF767814F)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _round32(h: NDArray[np.uint32], shift: int, first: int, second: int) -> NDArray[np.uint32]:
    """One round of xor-shift-multiply, in place: this is the hot path."""
    h ^= h >> 16
    h *= np.uint32(first)
    h ^= h >> shift
    h *= np.uint32(second)
    h ^= h >> 16
    return h
