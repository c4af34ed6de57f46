"""Counter-based noise in one pass: the same numbers as `prerank.distributions.noise.RunNoise`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["run_noise"]

_BLOCK = 1024


def run_noise(
    seeds: Tensor, step: int | Tensor, stream: int, count: int, dtype: torch.dtype, *, normal: bool
) -> Tensor:
    """Uniforms or standard normals of one stream, `(M, count)`."""
    out = torch.empty(len(seeds), count, dtype=dtype, device=seeds.device)
    if not isinstance(step, Tensor):
        step = torch.full((), step, dtype=torch.int64, device=seeds.device)
    with torch.cuda.device(seeds.device):
        _kernel[(triton.cdiv(count, _BLOCK), len(seeds))](
            seeds.contiguous(), step, out, stream, count, normal=normal, block=_BLOCK
        )
    return out


@triton.jit
def _hash64(z):
    z = z * -0x61C8864680B583EB + 0x14057B7EF767814F
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


@triton.jit
def _round32(h, shift: tl.constexpr, first: tl.constexpr, second: tl.constexpr):
    h = h ^ ((h >> 16) & 0xFFFF)
    h = (h * first).to(tl.int32)
    h = h ^ ((h >> shift) & ((1 << (32 - shift)) - 1))
    h = (h * second).to(tl.int32)
    return h ^ ((h >> 16) & 0xFFFF)


@triton.jit
def _uniform(counter, high, low, kind: tl.constexpr):
    bits = _round32(counter ^ high, 13, -0x7A143595, -0x3D4D51CB) ^ low
    bits = _round32(bits, 15, 0x7FEB352D, -0x7B935975)
    value = bits.to(kind) * 2.3283064365386963e-10 + 0.50000000011641532
    return tl.minimum(tl.maximum(value, 1.1641532182693481e-10), 0.99999994039535522)


@triton.jit
def _kernel(seeds, step, out, stream, count, normal: tl.constexpr, block: tl.constexpr):
    run = tl.program_id(1)
    place = tl.program_id(0) * block + tl.arange(0, block)
    key = _hash64(_hash64(_hash64(tl.load(seeds + run)) + tl.load(step)) + stream)
    high = (key >> 32).to(tl.int32)
    low = (key & 0x7FFFFFFF).to(tl.int32)
    kind: tl.constexpr = out.dtype.element_ty
    if normal:
        half = (count + 1) // 2
        counter = tl.where(place < half, place, place - half)
        radius = tl.sqrt(-2 * tl.log(_uniform(counter, high, low, kind)))
        angle = 6.283185307179586 * _uniform(counter + half, high, low, kind)
        value = radius * tl.where(place < half, tl.cos(angle), tl.sin(angle))
    else:
        value = _uniform(place, high, low, kind)
    tl.store(out + run.to(tl.int64) * count + place, value, mask=place < count)
