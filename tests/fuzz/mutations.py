"""Bytes made from sound files by small damage, as a fuzzer's cases are."""

import io
import json
import random
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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


VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 10**9, 2**63, 10**30, -0.5, 1e308, float("nan")),
    *(float("inf"), "", "x", "1e5", "../x", "$\\frac$", "a" * 5000, [], {}, [1], ["a"], [[]]),
    {"a": 1},
)


def mutate(data: bytes, rng: random.Random, others: list[bytes], suffix: str = "") -> bytes:
    """Damage a file in one to eight places, or change a value and leave the form sound.

    Args:
        data: a sound file.
        rng: decides everything.
        others: sound files of the same kind, parts of which may be taken.
        suffix: of the file; values of some formats can be changed.
    """
    if suffix in _FORMS and rng.random() < 0.5:
        for _ in range(rng.choice((1, 1, 1, 2))):
            data = _FORMS[suffix](data, rng)
        return data
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


def _change_json(data: bytes, rng: random.Random) -> bytes:
    return json.dumps(_changed(json.loads(data), rng)).encode()


def _change_toml(data: bytes, rng: random.Random) -> bytes:
    found = _changed(tomllib.loads(data.decode()), rng)
    return "\n".join(f"{json.dumps(key)} = {_toml(value)}" for key, value in found.items()).encode()


def _changed(tree: Any, rng: random.Random) -> Any:
    """Put one value in another's place, or take one away."""
    holder, key = rng.choice(list(_places(tree)) or [({"": tree}, "")])
    if rng.random() < 0.15:
        del holder[key]
    elif rng.random() < 0.15:
        other, place = rng.choice(list(_places(tree)))
        holder[key] = json.loads(json.dumps(other[place]))
    else:
        holder[key] = rng.choice(VALUES)
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Where values stand: a dictionary or list, and the key."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in pairs:
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps("" if value is None else value)  # TOML has no null


def _change_parquet(data: bytes, rng: random.Random) -> bytes:
    """Give a column other values, another type or another name, or take it or rows away."""
    table = pq.ParquetFile(io.BytesIO(data)).read()
    if not table.num_columns:
        return data
    place = rng.randrange(table.num_columns)
    way = rng.randrange(5)
    if way == 0:
        return _parquet(table.remove_column(place))
    if way == 1:
        new = rng.choice((*table.column_names, "", "x0", "y0", "y²", "x" + "9" * 5000))
        names = [new if i == place else old for i, old in enumerate(table.column_names)]
        return _parquet(table.rename_columns(names))
    if way == 2:
        start = rng.randrange(table.num_rows + 1)
        rows = [table.slice(start), table.slice(0, rng.randrange(start + 1))]
        return _parquet(pa.concat_tables(rows))
    values = [rng.choice(VALUES)] * table.num_rows
    if values and way == 3:
        values = table.column(place).to_pylist()
        values[rng.randrange(len(values))] = rng.choice((None, float("nan"), -1, 0, 10**9, 1e39))
    name = table.column_names[place]
    try:
        return _parquet(table.set_column(place, name, pa.array(values)))
    except (pa.ArrowException, TypeError, OverflowError):  # values that no column holds
        return _parquet(table.set_column(place, name, pa.array(list(map(str, values)))))


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_checksum=True)
    return sink.getvalue()


_FORMS = {".json": _change_json, ".toml": _change_toml, ".parquet": _change_parquet}
