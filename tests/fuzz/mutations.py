"""Bytes made from sound files by small damage, as a fuzzer's cases are."""

import random
import re

NUMBERS = (
    b"0 -1 1e999 -1e999 nan NaN inf -Infinity 1e-400 99999999999999999999 4294967296 -2147483649 "
    b"0x10 1_000 1e9 2147483648 1,5 007 1e308 5e-324 9007199254740993"
).split()
WORDS = [
    *(
        b"../../../etc/passwd",
        b"/etc/passwd",
        b"..\\..\\x",
        b"file:///etc/passwd",
        b"~root",
        b"$HOME",
    ),
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc3",
        b"\xe2\x80\xae",
        b"\r",
        b"\r\n",
        b"\n\n",
        b'"',
    ),
    *(b"'", b",", b";", b"\t", b"{", b"}", b"[", b"]", b"@attribute", b"@data", b"?", b"%", b"NA"),
    *(
        b"true",
        b"null",
        b"None",
        b"__import__('os').system('true')",
        b"{{7*7}}",
        b"%s%n",
        b"sample",
    ),
    *(b"y0", b"y1", b"x0", b"row", b"a" * 300, b"\xf0\x9f\x8c\xa7", b"PAR1", b"PK\x03\x04", b"-0"),
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def mutate(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Damage a file in one to eight places.

    Args:
        data: a sound file.
        rng: decides everything.
        others: sound files of the same kind, parts of which may be taken.
    """
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 8))):
        data = rng.choice(_WAYS)(data, rng, others)
    return data


def _place(data: bytes, rng: random.Random) -> int:
    # Heads and tails hold what readers trust: names, sizes, offsets.
    if rng.random() < 0.3:
        near = min(len(data), 64)
        return rng.choice((rng.randint(0, near), len(data) - rng.randint(0, near)))
    return rng.randint(0, len(data))


def _flip(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[min(_place(data, rng), len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    at, new = (
        _place(data, rng),
        rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80")) * rng.choice((1, 4, 8)),
    )
    return data[:at] + new + data[at + len(new) :]


def _delete(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.choice((1, 2, 8, 64, 512)) :]


def _repeat(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    at, length = _place(data, rng), rng.choice((1, 8, 64, 512))
    return data[:at] + data[at : at + length] * rng.choice((2, 3, 20)) + data[at + length :]


def _insert(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice((*NUMBERS, *WORDS)) + data[at:]


def _cut(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    return data[: _place(data, rng)]


def _splice(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: _place(data, rng)] + other[_place(other, rng) :]


def _renumber(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(NUMBERS) + data[match.end() :]


def _swap_lines(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


_WAYS = (_flip, _overwrite, _delete, _repeat, _insert, _cut, _splice, _renumber, _swap_lines)
