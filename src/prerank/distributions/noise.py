r"""Noise: from torch's generators, or as a pure function of seed, step and position.

Noise for PITs and scores has shape `(n, *stack, N, ...)`: fresh for each of n draws and N rows. In
memory the draws come last, so that sums over targets or components run along contiguous draws. A
torch generator gives one set that the whole stack shares (common random numbers).
`RunNoise` gives each run of a stack its own, which depends on nothing but the run's seed and the
step: not on the run's place in the stack, on the size of the stack, on the device, or on what was
drawn before an interruption.
"""

import math

import torch
from torch import Tensor

from prerank.errors import ShapeError
from prerank.inputs import as_generator
from prerank.kernels import compilable

__all__ = ["Noise", "RunNoise", "as_noise", "row_normal", "row_uniform"]


class RunNoise:
    r"""Counter-based noise for a stack of M runs.

    Value c of stream t of a run is a hash of (seed, step, t, c): two rounds of xor-shift-multiply
    on 32-bit integers,

    .. math:: h \mapsto (h \oplus h_{\gg a}) \cdot p, \quad h \mapsto (h \oplus h_{\gg b}) \cdot q,
              \quad h \mapsto h \oplus h_{\gg 16},

    keyed before each round with half of a 64-bit hash of (seed, step, t). Integer arithmetic wraps
    alike on every device. Normals come from pairs of uniforms by the Box-Muller transform.

    Args:
        seeds: `(M,)`, int64. Runs with equal seeds get equal noise.
        step: number of the step, an int or an int64 tensor `()` (which may change in place).

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
        self._base: Tensor | None = None

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
        return int(self._key()) & (2**62 - 1)

    def _key(self) -> Tensor:
        stream, self._streams = self._streams, self._streams + 1
        if self._base is None:
            self._base = _hash64(_hash64(self.seeds) + self.step)
        return _hash64(self._base + stream)

    def _values(self, count: int, dtype: torch.dtype | None, *, normal: bool) -> Tensor:
        kind = torch.get_default_dtype() if dtype is None else dtype
        if compilable(self.seeds):
            from prerank.kernels.noise import run_noise

            stream, self._streams = self._streams, self._streams + 1
            return run_noise(self.seeds, self.step, stream, count, kind, normal=normal)
        if not normal:
            return self._uniforms(count, kind)
        half = (count + 1) // 2
        uniform = self._uniforms(2 * half, kind)
        radius = uniform[:, :half].log().mul_(-2).sqrt_()
        angle = uniform[:, half:].mul_(2 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]

    def _uniforms(self, count: int, kind: torch.dtype) -> Tensor:
        key = self._key().unsqueeze(1)  # (M, 1)
        counter = torch.arange(count, dtype=torch.int32, device=self.seeds.device)
        bits = _round32(counter ^ (key >> 32).to(torch.int32), 13, -0x7A143595, -0x3D4D51CB)
        bits ^= (key & 0x7FFFFFFF).to(torch.int32)
        bits = _round32(bits, 15, 0x7FEB352D, -0x7B935975)
        # Centred on the 2^32 cells of (0, 1); rounding to float32 must reach neither 0 nor 1.
        return bits.to(kind).mul_(2.0**-32).add_(0.5 + 2.0**-33).clamp_(2.0**-33, 1 - 2.0**-24)


Noise = torch.Generator | RunNoise | None


def as_noise(generator: object) -> Noise:
    """Turn a seed into a generator; pass other sources of noise through."""
    return generator if isinstance(generator, RunNoise) else as_generator(generator, "draw")


def row_normal(
    n: int, batch: torch.Size, tail: tuple[int, ...], *, like: Tensor, noise: Noise
) -> Tensor:
    """Standard normals `(n, *stack, N, *tail)`, broadcastable over the stack of `batch`."""
    shape = (batch[-1], *tail, n)
    if isinstance(noise, RunNoise):
        _check_stack(noise, batch)
        values = noise.normal(shape, like.dtype).reshape(*batch, *tail, n)
    else:
        stack = [1] * (len(batch) - 1)
        values = standard_normal((*stack, *shape), like=like, generator=noise)
    return values.movedim(-1, 0)


def row_uniform(
    n: int, batch: torch.Size, tail: tuple[int, ...] = (), *, like: Tensor, noise: Noise
) -> Tensor:
    """Uniforms on [0, 1), laid out as by `row_normal`."""
    shape = (batch[-1], *tail, n)
    if isinstance(noise, RunNoise):
        _check_stack(noise, batch)
        values = noise.uniform(shape, like.dtype).reshape(*batch, *tail, n)
    else:
        stack = [1] * (len(batch) - 1)
        values = standard_uniform((*stack, *shape), like=like, generator=noise)
    return values.movedim(-1, 0)


def standard_normal(
    shape: tuple[int, ...], *, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draw independent N(0, 1) values on the generator's device, then move them to `like`'s."""
    device = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def standard_uniform(
    shape: tuple[int, ...], *, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draw independent uniforms on [0, 1) on the generator's device, then move them."""
    device = like.device if generator is None else generator.device
    return torch.rand(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def _check_stack(noise: RunNoise, batch: torch.Size) -> None:
    runs = len(noise.seeds)
    if batch[:-1].numel() != runs:
        raise ShapeError(f"noise for {runs} runs does not fit batch_shape {tuple(batch)}")


def _hash64(z: Tensor) -> Tensor:
    """SplitMix64. Shifts keep the sign in torch, so the bits shifted in are masked off."""
    z = z * -0x61C8864680B583EB + 0x14057B7EF767814F
    z = (z ^ ((z >> 30) & (2**34 - 1))) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & (2**37 - 1))) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & (2**33 - 1))


def _round32(h: Tensor, shift: int, first: int, second: int) -> Tensor:
    """One round of xor-shift-multiply, in place: this is the hot path."""
    h ^= (h >> 16).bitwise_and_(0xFFFF)
    h *= first
    h ^= (h >> shift).bitwise_and_(2 ** (32 - shift) - 1)
    h *= second
    h ^= (h >> 16).bitwise_and_(0xFFFF)
    return h
