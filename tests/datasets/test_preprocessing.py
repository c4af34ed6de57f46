"""The rule that turns columns into inputs and targets, and the published splits."""

import csv
import datetime
import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prerank.datasets import PUBLISHED_SEEDS, published_split
from prerank.datasets.preprocessing import encode_inputs, encode_table
from prerank.errors import InputError, InputTypeError

N = 100


def cycle(values, n=N):
    return [values[i % len(values)] for i in range(n)]


# Each column alone, just on either side of a limit

KEPT = {
    "10 whole numbers": list(range(10)),
    "1 whole number": [7],
    "11 whole numbers": list(range(11)),
    "10 numbers": [i / 2 for i in range(10)],
    "2 numbers": [0.5, 1.5],
    "2 truths": [True, False],
    "20 texts": [f"level {i:02}" for i in range(20)],
    "1 text": ["same"],
    "some whole numbers missing": [*range(19), None],
    "a fifth missing": [*(i / 2 for i in range(40)), *[None] * 10],
}
REMOVED = {
    "9 numbers": ([i / 2 for i in range(9)], "numeric with 9 distinct values, fewer than 10"),
    "1 number": ([0.5], "numeric with 1 distinct values"),
    "21 texts": ([f"level {i}" for i in range(21)], "categorical with 21 distinct values"),
    "3 whole numbers, some missing": ([*cycle([1, 2, 3], 9), None], "numeric with 3 distinct"),
    "21 of 100 missing": ([*[None] * 21, *range(79)], "21% missing, more than 20%"),
    "all missing": ([None], "100% missing"),
    "not a number": ([float("nan")], "100% missing"),
}


@pytest.mark.parametrize("name", KEPT)
def test_columns_that_stay(name):
    values = cycle(KEPT[name])
    found = encode_inputs(pa.table({"other": [i / 7 for i in range(N)], name: values}))
    assert found.removed == {}
    present = [value for value in values if value is not None]
    assert found.complete.tolist() == [value is not None for value in values]
    if isinstance(values[0], str):
        levels = sorted(set(values))
        assert found.names[1:] == tuple(f"{name}={level}" for level in levels)
        expected = [[value == level for level in levels] for value in present]
    else:
        assert found.names[1:] == (name,)
        expected = [[value] for value in present]
    np.testing.assert_array_equal(found.x[:, 1:], np.array(expected, dtype=np.float32))
    assert found.x.dtype == np.float32


@pytest.mark.parametrize("name", REMOVED)
def test_columns_that_are_removed(name):
    values, reason = REMOVED[name]
    found = encode_inputs(pa.table({"other": [i / 7 for i in range(N)], name: cycle(values)}))
    assert found.names == ("other",)
    assert reason in found.removed[name]
    assert found.complete.all()  # what is missing in a removed column removes no row


def test_exactly_a_fifth_missing_stays():
    column = pa.array([*[None] * 20, *range(80)], type=pa.float64())
    found = encode_inputs(pa.table({"a": column}))
    assert found.x.shape == (80, 1)


def test_levels_that_go_with_their_rows_leave_no_column():
    bed = [*["gone"] * 10, *cycle(["mud", "sand"], 90)]
    depth = pa.array([*[None] * 10, *range(90)], type=pa.float64())
    found = encode_inputs(pa.table({"bed": bed, "depth": depth}))
    assert found.names == ("bed=mud", "bed=sand", "depth")
    assert found.x.shape == (90, 3)


def test_equal_rows_stay_and_so_does_their_order():
    values = cycle([float(i) for i in range(10, 0, -1)])
    found = encode_inputs(pa.table({"a": values}))
    assert found.x[:, 0].tolist() == values


DAY = datetime.date(2020, 2, 29)
KINDS = [
    (pa.array(["a", "b"]).dictionary_encode(), ["c=a", "c=b"]),
    (pa.array(["a", "b"], type=pa.large_string()), ["c=a", "c=b"]),
    (pa.array(["a", "b"], type=pa.string_view()), ["c=a", "c=b"]),
    (pa.array([DAY, DAY]), ["c=2020-02-29"]),
    (pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")]), ["c"]),
    (pa.array([1, 2], type=pa.uint8()), ["c"]),
    (pa.array([1, 2], type=pa.int32()), ["c"]),
    (pa.array([1.5, 2.5], type=pa.float32()), ["c"]),
    (pa.array([np.float16(1.5), np.float16(2)], type=pa.float16()), ["c"]),
    (pa.array([2**63, 2**64 - 1], type=pa.uint64()), ["c"]),
    (pa.array([True, False]).dictionary_encode(), ["c"]),
]


def test_types():
    for array, names in KINDS:
        column = pa.chunked_array([array] * 20)
        assert list(encode_inputs(pa.table({"c": column})).names) == names, array.type


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1], [2]]),
        pa.array([{"a": 1}]),
        pa.array([b"\xff"]),
        pa.array([datetime.timedelta(1)]),
    ],
    ids=lambda array: str(array.type),
)
def test_types_that_are_neither_numbers_nor_text(array):
    with pytest.raises(InputError, match=r"column 'c' holds .* only numbers, truth values"):
        encode_inputs(pa.table({"c": array}))


@pytest.mark.parametrize("value", [float("inf"), -1e39])
def test_numbers_without_a_float32(value):
    rows = [float(i) for i in range(20)]
    with pytest.raises(InputError, match=r"column 'a' has 1 values that are infinite or too"):
        encode_inputs(pa.table({"a": [*rows, value]}))
    with pytest.raises(InputError, match=r"column 'y' has 1 values that are infinite or too"):
        encode_table(pa.table({"a": [*rows, 20.0], "y": [*rows, value]}), "t", ["y"])


# What float32 hides

ROWS = np.arange(40)
NEAR = 2.0**20  # float32 has a number every 0.125 here: eighths stay, others move
HIDDEN = {
    "seconds": (1_700_000_000 + ROWS, "its 40 distinct values become 1, moved by up to 39 "),
    "an offset": (1e8 + 0.5 * ROWS, "its 40 distinct values become 3, moved by up to 4 "),
    "beyond float64": (2**62 + ROWS, "its 40 distinct values become 1, moved by up to 39 "),
    "without a sign": (2**63 + ROWS.astype("u8"), "its 40 distinct values become 1, "),
    "below zero": (-(2**62) - ROWS, "its 40 distinct values become 1, moved by up to 39 "),
    "decimals": (
        [decimal.Decimal(2**62 + int(i)) for i in ROWS],
        "its 40 distinct values become 1, ",
    ),
    "moved alone": (NEAR + 0.125 * ROWS + 0.02, "its 40 distinct values become 40, moved by up"),
    "tiny": (np.where(ROWS % 2, 1e-50, -1e-50), "its 2 distinct values become 1, moved by up to"),
    "tinier": (1e-200 * ROWS, "its 40 distinct values become 1, "),
}
ADVICE = {"tiny": "divide it by a unit, such as 1e-50", "tinier": "divide it by a unit, such as"}
TOLD = {
    "seconds without an offset": ROWS,
    "years of seconds": 1_700_000_000 + 1_000_000 * ROWS,
    "eighths": NEAR + 0.125 * ROWS,
    "tiny in another unit": np.where(ROWS % 2, 1.0, -1.0),
    "many digits": 2**62 + 2**56 * ROWS,
    "tenths": 0.1 * ROWS,
    "the smallest that float32 has": 1e-37 * ROWS,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_numbers_that_float32_hides(name):
    """Of an input, and of a target."""
    values, words = HIDDEN[name]
    advice = ADVICE.get(name, "subtract an offset from it, such as its smallest value")
    for role in ("a", "y"):
        columns = pa.table({"a": 0.5 * ROWS, "y": 0.5 * ROWS} | {role: values})
        with pytest.raises(InputError) as caught:
            encode_table(columns, "t", ["y"])
        assert f"column {role!r} does not fit float32: {words}" in str(caught.value)
        assert advice in str(caught.value)


def test_numbers_that_float32_tells():
    for values in TOLD.values():
        table = encode_table(pa.table({"a": values, "y": values}), "t", ["y"]).table
        np.testing.assert_array_equal(table.y[:, 0], np.float32(values))
        np.testing.assert_array_equal(table.x, table.y)


@pytest.mark.parametrize(("share", "hidden"), [(0.9, False), (1.1, True)])
def test_a_thousandth_of_the_standard_deviation_may_go(share, hidden):
    """Among eighths near 2^20 one value lies beside float32, by a known share of the limit."""
    values = NEAR + 0.125 * np.arange(1000)
    values[500] += share * 1e-3 * values.std()  # 0.036, to be rounded away
    columns = pa.table({"a": 0.5 * np.arange(1000), "y": values})
    if hidden:
        with pytest.raises(InputError, match="its 1000 distinct values become 1000, moved by"):
            encode_table(columns, "t", ["y"])
    else:
        assert encode_table(columns, "t", ["y"]).table.y[500] == NEAR + 62.5


def test_only_rows_that_stay_count():
    """The one large difference goes with its row."""
    seconds = np.append(1_700_000_000 + ROWS, 0)
    depth = pa.array([*0.5 * ROWS, None])
    with pytest.raises(InputError, match="column 'y' does not fit float32: its 40 distinct"):
        encode_table(pa.table({"a": depth, "y": seconds}), "t", ["y"])


def test_an_input_of_one_number_has_nothing_to_hide():
    columns = pa.table({"same": [2**62 + 1] * 40, "a": 0.5 * ROWS, "y": 0.5 * ROWS})
    assert (encode_table(columns, "t", ["y"]).table.x[:, 0] == 2.0**62).all()


# Against the rule as pandas would apply it. All numbers are exact in float32, which hides nothing.

CELLS = [
    st.integers(-3, 8),
    st.integers(-(2**24), 2**24),
    st.integers(-(2**24), 2**24).map(lambda value: value / 8),
    st.sampled_from([0.25, 0.5, 0.75]),
    st.booleans(),
    st.sampled_from(["red", "green", "", "blue é"]),
    st.text(st.characters(codec="utf-8"), max_size=3),
]


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 60))
    columns = {}
    for number in range(draw(st.integers(1, 4))):
        cell = draw(st.sampled_from(CELLS))
        rate = draw(st.sampled_from([0, 0, 0.1, 0.3]))
        chance = st.floats(0, 1, exclude_max=True)
        values = draw(st.lists(st.tuples(cell, chance), min_size=rows, max_size=rows))
        columns[f"c{number}"] = [None if u < rate else value for value, u in values]
    return columns


def by_pandas(columns):
    frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    chosen = []
    for name in frame:
        column, distinct = frame[name], frame[name].nunique()
        text = any(isinstance(value, str) for value in columns[name])
        truth = any(isinstance(value, bool) for value in columns[name])
        categorical = text or truth or (column.dtype == "int64" and distinct <= 10) or distinct == 2
        if column.isna().mean() > 0.2 or (distinct > 20 if categorical else distinct < 10):
            continue
        chosen.append((name, text))
    kept = frame[[name for name, _ in chosen]].dropna()
    parts = [
        pd.get_dummies(kept[name], prefix=name, prefix_sep="=") if text else kept[[name]]
        for name, text in chosen
    ]
    whole = pd.concat(parts, axis=1) if parts else pd.DataFrame(index=frame.index)
    return list(whole.columns), whole.to_numpy(dtype=np.float64).astype(np.float32), kept.index


@settings(max_examples=60)
@given(tables())
def test_the_rule_is_that_of_the_published_runs(columns):
    found = encode_inputs(pa.table(columns))
    names, x, index = by_pandas(columns)
    assert list(found.names) == names
    np.testing.assert_array_equal(found.x, x)
    if names:
        assert np.flatnonzero(found.complete).tolist() == index.tolist()
    assert set(found.removed) == set(columns) - {name.split("=")[0] for name in names}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"c": cycle(["m", "f"]), "c=m": [i / 7 for i in range(N)]},
            "2 inputs would be named 'c=m': level 'm' of column 'c' and column 'c=m'; rename",
        ),
        (
            {"a=b": cycle(["c", "d"]), "a": cycle(["b=c", "e"])},
            "'a=b=c': level 'c' of column 'a=b' and level 'b=c' of column 'a'; rename",
        ),
    ],
)
def test_inputs_of_one_name(columns, words):
    with pytest.raises(InputError, match=words):
        encode_inputs(pa.table(columns))


def test_names_of_columns_that_the_rule_removes_are_free():
    few = cycle([0.1, 0.2, 0.3])
    found = encode_inputs(pa.table({"c": cycle(["m", "f"]), "c=m": few}))
    assert found.names == ("c=f", "c=m")
    assert set(found.removed) == {"c=m"}


# Targets

DEPTH = [i / 4 for i in range(20)]
FLOW = [float(i % 7) for i in range(20)]


def test_targets_stay_as_they_are_in_the_order_asked():
    columns = pa.table({"flow": FLOW, "depth": DEPTH, "flood": cycle([True, False], 20)})
    found = encode_table(columns, "rivers", ["flood", "flow"]).table
    assert (found.name, found.inputs, found.targets) == ("rivers", ("depth",), ("flood", "flow"))
    np.testing.assert_array_equal(found.y, np.float32([cycle([1, 0], 20), FLOW]).T)


def test_rows_without_a_target_are_dropped_and_counted():
    a = [None, *FLOW[1:]]
    b = [*FLOW[:-2], None, float("nan")]
    gap = [*DEPTH[:5], None, *DEPTH[6:]]
    columns = pa.table({"a": a, "b": b, "depth": gap})
    found = encode_table(columns, "rivers", ["a", "b"])
    assert (found.rows_without_target, found.rows_without_input) == (3, 1)
    rows = [i for i in range(1, 18) if i != 5]
    np.testing.assert_array_equal(found.table.x[:, 0], np.float32(DEPTH)[rows])
    np.testing.assert_array_equal(found.table.y[:, 1], np.float32(FLOW)[rows])


def test_the_rule_sees_only_rows_with_targets():
    """A level that only rows without target have is none."""
    bed = ["lost", *cycle(["mud", "sand"], 19)]
    found = encode_table(pa.table({"bed": bed, "flow": [None, *FLOW[1:]]}), "rivers", ["flow"])
    assert found.table.inputs == ("bed=mud", "bed=sand")


def test_row_numbers_are_no_inputs_unless_asked_for():
    columns = pa.table({"": list(range(20)), "depth": DEPTH, "flow": FLOW})
    found = encode_table(columns, "rivers", ["flow"])
    assert found.table.inputs == ("depth",)
    assert found.removed == {"": "a row number"}
    columns = columns.rename_columns(["__index_level_0__", "depth", "flow"])
    assert encode_table(columns, "rivers", ["flow"]).table.inputs == ("depth",)
    chosen = encode_table(columns, "rivers", ["flow"], ["__index_level_0__"])
    assert chosen.table.inputs == ("__index_level_0__",)


GOOD = {"depth": DEPTH, "bed": cycle(["mud", "sand"], 20), "flow": FLOW, "void": [None] * 20}
BAD = [
    (["flwo"], None, "no column 'flwo' for the targets; did you mean flow"),
    (["zzz"], None, "there are depth, bed, flow, void"),
    (["flow", "flow"], None, "targets name flow more than once"),
    ([], None, "at least one target"),
    (["bed"], None, "column 'bed' holds text, such as 'mud'"),
    (["void"], None, "all values of column 'void' are missing"),
    (["flow"], ["depht"], "no column 'depht' for the inputs; did you mean depth"),
    (["flow"], ["void"], "all values of column 'void' are missing"),
    (["flow"], ["depth", "flow"], "flow: named for the targets and for the inputs"),
    (["flow"], [], "no input to learn from"),
]


@pytest.mark.parametrize(("targets", "inputs", "words"), BAD)
def test_columns_that_cannot_be_used(targets, inputs, words):
    with pytest.raises(InputError, match=words):
        encode_table(pa.table(GOOD), "rivers", targets, inputs)


@pytest.mark.parametrize(
    ("flow", "depth"), [([3] * 20, DEPTH), ([*[3] * 19, 4], [*DEPTH[:19], None])]
)
def test_targets_of_one_value(flow, depth):
    """Whatever the rows say that are left out."""
    columns = pa.table({"depth": depth, "good": FLOW, "flow": flow})
    with pytest.raises(InputError, match="target 'flow' is 3 in every row: there is nothing"):
        encode_table(columns, "rivers", ["good", "flow"])


def test_nothing_to_learn_from():
    with pytest.raises(InputError, match="no input to learn from"):
        encode_table(pa.table({"flow": FLOW}), "rivers", ["flow"])
    few = pa.table({"a": cycle([0.1, 0.2, 0.3], 20), "flow": FLOW})
    with pytest.raises(InputError, match=r"no input is left of 1: .*'a' since it is numeric"):
        encode_table(few, "rivers", ["flow"])


def test_too_few_rows():
    for n in (0, 9):
        columns = pa.table({"a": pa.array(range(n), type=pa.int64()), "b": [1.5] * n})
        with pytest.raises(InputError, match=f"{n} rows are left of {n}, and at least 10"):
            encode_table(columns, "rivers", ["b"])


def test_many_names_are_cut_short():
    columns = pa.table({f"column {i}": DEPTH for i in range(50)})
    with pytest.raises(InputError, match=r"column 11 and 38 more$"):
        encode_table(columns, "rivers", ["zzz"])


# The published splits: their sizes, and their permutation

SHARED = Path(__file__).resolve().parents[3] / "shared"
SIZES = SHARED / "paper" / "reference_runs" / "splits_and_floor.csv"
PARTS = ("train", "validation", "calibration", "test")


def sizes(split):
    return [len(getattr(split, part)) for part in PARTS]


@pytest.mark.skipif(not SIZES.is_file(), reason=f"{SIZES} is not here")
def test_sizes_of_the_published_runs():
    with SIZES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 10
    for row in rows:
        expected = [int(row[name]) for name in ("train", "val", "calib", "test")]
        assert sizes(published_split(int(row["rows"]), seed=0)) == expected, row["dataset"]


# Computed by hand from the rule, so that the rule is checked without the file.
def test_sizes():
    for n, expected in {
        10: [4, 1, 3, 2],
        101: [40, 10, 30, 21],
        6826: [2730, 682, 2047, 1367],
        10_000: [4317, 1317, 2048, 2318],
        100_000: [49_317, 19_317, 2048, 29_318],
    }.items():
        assert sizes(published_split(n, seed=3)) == expected


@pytest.mark.parametrize("n", [10, 57, 9999])
def test_the_permutation_is_that_of_random_split(n):
    """So that every row is in one part."""
    for seed in PUBLISHED_SEEDS:
        split = published_split(n, seed)
        generator = torch.Generator().manual_seed(seed)
        expected = torch.utils.data.random_split(range(n), sizes(split), generator=generator)
        for part, subset in zip(PARTS, expected, strict=True):
            assert getattr(split, part).tolist() == list(subset.indices)
            assert getattr(split, part).dtype == torch.int64


def test_seeds_differ_and_repeat():
    one, again, other = (published_split(1000, seed) for seed in (0, 0, 42))
    assert torch.equal(one.train, again.train)
    assert not torch.equal(one.train, other.train)
    assert PUBLISHED_SEEDS == (0, 42, 866, 12, 4)


def test_the_global_state_is_not_used():
    state = torch.get_rng_state()
    published_split(100, 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("n", "error"), [(-5, InputError), (9, InputError), (10.0, InputTypeError)]
)
def test_too_few_rows_to_split(n, error):
    with pytest.raises(error, match="n "):
        published_split(n, 0)
