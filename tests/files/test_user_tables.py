"""Inputs and targets from files of one's own: what is read, and every obstacle named."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from prerank.errors import InputError
from prerank.files.obstacles import UnfitTableError
from prerank.files.user_tables import read_inputs, read_training_table

RIVERS = pd.DataFrame(
    {
        "depth": [1.5, 2.0, -0.5, 4.0],
        "bed": ["mud", "sand", "mud", "Æ, rock"],
        "wet": [True, False, True, True],
        "sites": [3, 1, 4, 1],
        "flow": [0.25, 0.5, 0.75, 1.0],
        "load": [10, 20, 30, 41],
    }
)


def write(path, table):
    """A file of the format that its name says."""
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".tsv":
        table.to_csv(path, sep="\t", index=False)
    elif path.suffix == ".arff":
        kinds = {"bed": "STRING", "wet": "{True,False}"}
        names = [f"@ATTRIBUTE {name} {kinds.get(name, 'NUMERIC')}" for name in table]
        rows = table.to_csv(index=False, header=False, quotechar="'")
        path.write_text("\n".join(["@RELATION rivers", *names, "@DATA", rows]), encoding="utf-8")
    else:
        sep = ";" if "semicolon" in path.name else ","
        encoding = "utf-8-sig" if "mark" in path.name else "utf-8"
        table.to_csv(path, sep=sep, index=False, encoding=encoding)
    return path


# What is read


@pytest.mark.parametrize("name", ["semicolon.csv", "mark.csv", "a.tsv", "a.CSV", "a.parquet"])
def test_formats(name, tmp_path):
    frame = read_training_table(write(tmp_path / name, RIVERS), ["load", "flow"])
    assert list(frame.targets) == ["load", "flow"]
    assert (frame.targets.dtypes == np.float64).all()
    assert (frame.targets == RIVERS[["load", "flow"]]).all(axis=None)
    pd.testing.assert_frame_equal(frame.inputs, RIVERS.drop(columns=["flow", "load"]))
    assert frame.dropped == 0


def test_arff(tmp_path):
    frame = read_training_table(write(tmp_path / "a.arff", RIVERS), ["flow"])
    assert list(frame.inputs) == ["depth", "bed", "wet", "sites", "load"]
    assert list(frame.inputs.bed) == list(RIVERS.bed)


def test_inputs_in_the_order_of_their_names(tmp_path):
    path = write(tmp_path / "a.csv", RIVERS)
    frame = read_training_table(path, ["flow"], inputs=["wet", "depth"], ignore=["bed"])
    assert list(frame.inputs) == ["wet", "depth"]
    frame = read_training_table(path, ["flow"], ignore=["bed", "wet"])
    assert list(frame.inputs) == ["depth", "sites", "load"]


@pytest.mark.parametrize("name", [None, "site"])
def test_an_index_of_pandas(name, tmp_path):
    """One without a name is left out; one with a name is a column like others."""
    table = RIVERS.set_index(pd.Index([7, 3, 5, 9], name=name))
    table.to_parquet(tmp_path / "a.parquet")
    table.to_csv(tmp_path / "a.csv")
    for file in ("a.parquet", "a.csv"):
        frame = read_training_table(tmp_path / file, ["flow"])
        found = set(frame.inputs)
        assert found == {"depth", "bed", "wet", "sites", "load"} | ({name} if name else set())
        assert list(frame.inputs.index) == [0, 1, 2, 3]
        assert list(frame.inputs.sites) == [3, 1, 4, 1]
    assert list(read_inputs(tmp_path / "a.parquet", ["depth"])) == ["depth"]


def test_an_index_that_is_asked_for(tmp_path):
    RIVERS.set_index(pd.Index([7, 3, 5, 9])).to_parquet(tmp_path / "a.parquet")
    frame = read_training_table(tmp_path / "a.parquet", ["flow"], inputs=["__index_level_0__"])
    assert frame.inputs.iloc[:, 0].tolist() == [7, 3, 5, 9]


def test_numbers_of_many_kinds(tmp_path):
    kinds = {
        "text": pa.array(["1", "2.5", None, "-3e2"]),
        "decimal": pa.array([Decimal("1.5"), Decimal("2.5"), None, Decimal("-300")]),
        "float16": pa.array(np.array([1, 2, 3, 4], dtype=np.float16)),
        "uint8": pa.array([1, 2, 3, 4], pa.uint8()),
        "truth": pa.array([True, None, False, False]),
        "level": pa.array(["1", "2", "1", "3"]).dictionary_encode(),
        "large": pa.array(["4", "5", "6", "7"], pa.large_string()),
    }
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({**kinds, "x": [1, 2, 3, 4]}), path)
    frame = read_training_table(path, list(kinds), inputs=["x"], drop_missing=True)
    assert frame.dropped == 2
    assert (frame.targets.dtypes == np.float64).all()
    assert frame.targets.iloc[-1].tolist() == [-300, -300, 4, 4, 0, 3, 7]


def test_rows_with_missing_values_are_dropped(tmp_path):
    table = RIVERS.astype({"bed": object, "wet": object})
    table.loc[0, "bed"] = None
    table.loc[2, "wet"] = None
    table.loc[2, "flow"] = np.nan
    for name in ("a.csv", "a.parquet"):
        frame = read_training_table(write(tmp_path / name, table), ["flow"], drop_missing=True)
        assert frame.dropped == 2
        assert frame.targets.flow.tolist() == [0.5, 1.0]
        assert list(frame.inputs.index) == [0, 1]


def test_missing_values_elsewhere_do_not_matter(tmp_path):
    path = write(tmp_path / "a.csv", RIVERS.assign(note=[None, "x", None, None]))
    assert len(read_training_table(path, ["flow"], ignore=["note"]).targets) == 4
    assert (
        len(read_training_table(path, ["flow"], inputs=["depth"], drop_missing=True).targets) == 4
    )


def test_inputs_alone(tmp_path):
    path = write(tmp_path / "a.csv", RIVERS)
    frame = read_inputs(path, ["wet", "bed"], ["wet"])
    pd.testing.assert_frame_equal(frame, RIVERS[["wet", "bed"]])
    texts = RIVERS.assign(depth=RIVERS.depth.astype(str))
    frame = read_inputs(write(tmp_path / "a.parquet", texts), ["depth"], ["depth"])
    assert frame.depth.tolist() == RIVERS.depth.tolist()


@pytest.mark.parametrize("value", [None, np.inf, -np.inf])
def test_inputs_without_a_number_are_missing(value, tmp_path):
    for name in ("a.csv", "a.parquet"):
        frame = read_inputs(
            write(tmp_path / name, changed("depth", 1, value)), ["depth"], ["depth"]
        )
        assert frame.depth.isna().tolist() == [False, True, False, False]


# What is refused


def changed(name, row, value):
    table = RIVERS.astype({name: object})
    table.loc[row, name] = value
    return table


TABLES = {
    "text": (
        changed("flow", 2, "low"),
        r"'flow' holds text, such as 'low' \(1 of 4 rows, first in row 3\) for a target: only",
    ),
    "decimal commas": (RIVERS.assign(flow="1,5"), "such as '1,5': decimals need a point"),
    "missing input": (
        changed("bed", 1, None),
        r"in 'bed' \(1, first in row 2\): remove those rows, fill them in \(--impute\), or leave",
    ),
    "missing target": (changed("flow", 3, np.nan), r"missing values in 'flow' \(1, first in row 4"),
    "nothing": (RIVERS.assign(flow=None), "target 'flow' has no value in any row"),
    "no input at all": (RIVERS.assign(depth=None), r"missing values in 'depth' \(4, first in row"),
    "infinite": (
        changed("depth", 3, np.inf),
        r"'depth' is infinite.* in 1 of 4 rows, first in row 4",
    ),
    "minus infinite": (changed("flow", 0, -np.inf), "'flow' is infinite"),
    "too large": (RIVERS.assign(flow=RIVERS.flow * 1e300), "'flow' is infinite or too large in 4"),
    "constant": (RIVERS.assign(flow=3), "target 'flow' is 3 in every row: there is nothing to"),
    "dates": (RIVERS.assign(day="2020-02-28"), "column 'day' holds dates or times: leave it out"),
    "no rows": (RIVERS[:0], "the table has no rows"),
    "targets alone": (RIVERS[["flow"]], "there is no input to learn from"),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_that_are_refused(case, tmp_path):
    table, words = TABLES[case]
    path = write(tmp_path / "semicolon.csv", table)
    with pytest.raises(InputError, match=words) as error:
        read_training_table(path, ["flow"])
    assert str(error.value).startswith(f"{path}: ")


COLUMNS = {
    "a list": (pa.array([[1], [2], [3], [4]]), "column 'extra' holds list"),
    "a record": (pa.array([{"a": 1}] * 4), "column 'extra' holds struct"),
    "bytes": (pa.array([b"a"] * 4), "column 'extra' holds binary"),
    "large bytes": (pa.array([b"a"] * 4, pa.large_binary()), "column 'extra' holds large_binary"),
    "few bytes": (pa.array([b"ab"] * 4, pa.binary(2)), "column 'extra' holds fixed_size_binary"),
    "a moment": (pa.array([0, 1, 2, 3], pa.timestamp("us", "UTC")), "'extra' holds dates or times"),
    "a day": (pa.array([0, 1, 2, 3], pa.date32()), "column 'extra' holds dates or times"),
    "a time": (pa.array([0, 1, 2, 3], pa.time32("s")), "column 'extra' holds dates or times"),
    "a duration": (pa.array([0, 1, 2, 3], pa.duration("s")), "column 'extra' holds dates or tim"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_columns_that_are_refused(case, tmp_path):
    column, words = COLUMNS[case]
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"flow": [1, 2, 3, 4], "x": [1, 2, 3, 4], "extra": column}), path)
    for targets in (["flow"], ["extra"]):
        with pytest.raises(InputError, match=words.replace("column ", "")):
            read_training_table(path, targets)
    with pytest.raises(InputError, match=words):
        read_inputs(path, ["extra"])
    assert list(read_training_table(path, ["flow"], ignore=["extra"]).inputs) == ["x"]


NAMES = {
    "no targets": ({"targets": []}, "name at least one target"),
    "unknown": ({"targets": ["flwo"]}, "no column 'flwo' for the targets; did you mean flow?"),
    "unknown, nothing like it": (
        {"targets": ["q"]},
        "no column 'q' for the targets; there are depth, bed, wet, sites, flow, load$",
    ),
    "twice": ({"targets": ["flow", "flow"]}, "targets name flow more than once"),
    "unknown input": ({"inputs": ["dept"]}, "no column 'dept' for the inputs; did you mean depth"),
    "input twice": ({"inputs": ["bed", "bed"]}, "inputs name bed more than once"),
    "unknown ignored": ({"ignore": ["x"]}, "no column 'x' for the ignored columns"),
    "target as input": (
        {"inputs": ["flow", "bed"]},
        "flow: named for the targets and for",
    ),
    "target ignored": ({"ignore": ["flow"]}, "flow: named for the targets and for the ign"),
    "input ignored": (
        {"inputs": ["bed"], "ignore": ["bed"]},
        "bed: named for the ignored col",
    ),
    "no inputs": ({"inputs": []}, "there is no input to learn from"),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_that_are_refused(case, tmp_path):
    options, words = NAMES[case]
    path = write(tmp_path / "a.csv", RIVERS)
    with pytest.raises(InputError, match=words) as error:
        read_training_table(path, **{"targets": ["flow"], **options})
    assert str(error.value).startswith(f"{path}: ")


def test_of_many_columns_the_first_are_named(tmp_path):
    path = write(tmp_path / "a.csv", pd.DataFrame(np.ones((3, 40))).add_prefix("c"))
    with pytest.raises(InputError, match=r"there are c0, c1, .*, c11 and 28 more$"):
        read_training_table(path, ["zzz"])
    path = write(tmp_path / "b.parquet", pd.DataFrame(np.full((3, 40), np.nan)).add_prefix("c"))
    with pytest.raises(InputError, match=r"'c11' \(3, first in row 1\) and 28 more: remove those"):
        read_training_table(path, ["c39"], inputs=[f"c{k}" for k in range(39)])


def test_no_row_without_a_missing_value(tmp_path):
    table = RIVERS.assign(note=[None, "x", None, None], other=[1, None, 1, 1])
    path = write(tmp_path / "a.csv", table)
    with pytest.raises(InputError, match="such as 'note', which is missing in 3 of 4 rows"):
        read_training_table(path, ["flow"], drop_missing=True)


def test_rows_are_counted_as_in_the_file(tmp_path):
    table = changed("depth", 0, None)
    table.loc[2, "depth"] = np.inf
    path = write(tmp_path / "a.csv", table)
    with pytest.raises(InputError, match="1 of 3 rows, first in row 3"):
        read_training_table(path, ["flow"], drop_missing=True)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (RIVERS.drop(columns="depth"), "no column 'depth' for the inputs"),
        (RIVERS[:0], "has no rows"),
        (RIVERS.assign(depth="deep"), r"'deep' \(4 of 4 rows, first in row 1\) for an input: only"),
    ],
    ids=["missing column", "no rows", "text"],
)
def test_inputs_that_are_refused(table, words, tmp_path):
    path = write(tmp_path / "a.csv", table)
    with pytest.raises(InputError, match=words) as error:
        read_inputs(path, ["depth", "bed"], ["depth"])
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "read", [lambda p: read_training_table(p, ["a"]), lambda p: read_inputs(p, ["a"])]
)
def test_files_that_are_refused(read, tmp_path):
    for name, data, words in [
        ("none.csv", None, "cannot read .*none.csv: No such file or directory"),
        ("empty.csv", b"", "empty.csv: the file is empty"),
        ("a.xlsx", b"x", "ends in '.xlsx' cannot be read"),
        ("a.parquet", b"x", "not a Parquet file"),
        ("twice.csv", b"a,b,a\n1,2,3\n", "several columns are named 'a'"),
    ]:
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=words):
            read(tmp_path / name)
    with pytest.raises(InputError, match="Is a directory"):
        read(tmp_path)


# All obstacles at once, and what helps

DAYS = pd.date_range("2020-01-01", periods=40)


def weather(**columns):
    """Forty days: a number, a column of which three quarters are missing, and others."""
    random = np.random.default_rng(0)
    table = {"day": DAYS, "heat": random.normal(size=40), "gust": random.normal(size=40)}
    frame = pd.DataFrame({**table, "rain": random.normal(size=40), **columns})
    frame.loc[10:, "gust"] = np.nan
    return frame


def unfit(path, **options):
    with pytest.raises(UnfitTableError) as caught:
        read_training_table(path, ["rain"], fewest=30, **options)
    return caught.value


def test_all_problems_are_named_with_a_remedy_that_works(tmp_path):
    names = [f"site {k}" for k in range(40)]
    path = write(tmp_path / "a.csv", weather(at="12:30:00", site=names))
    error = unfit(path)
    starts = [
        "column 'day' holds",
        "column 'at' holds",
        "missing values in 'gust' (30",
        "column 's",
    ]
    assert len(error.problems) == len(starts)
    assert all(map(str.startswith, error.problems, starts))
    assert set(error.remedy.ignore) == {"at", "site", "gust"}
    assert (error.remedy.dates, error.remedy.split_by) == (True, "day")
    assert error.left == ("day", "heat")
    table = read_training_table(
        path, ["rain"], fewest=30, ignore=error.remedy.ignore, dates=True, split_by="day"
    )
    assert list(table.inputs) == ["day", "heat"]
    assert table.loss.rows == 0


def test_rows_are_left_out_where_they_are_few_and_else_filled_in(tmp_path):
    table = weather().drop(columns=["day", "gust"]).assign(cold=1.0 + np.arange(40))
    table.loc[[3, 7], "cold"] = np.nan
    few = unfit(write(tmp_path / "a.csv", table)).remedy
    assert (few.ignore, few.drop_missing, few.impute) == ((), True, False)
    table.loc[:12, "cold"] = np.nan
    table.loc[39, "rain"] = np.nan
    many = unfit(write(tmp_path / "a.csv", table)).remedy
    assert (many.ignore, many.drop_missing, many.impute) == ((), True, True)
    known = read_training_table(tmp_path / "a.csv", ["rain"], impute=True, drop_missing=True)
    assert (known.loss.rows, int(known.inputs.cold.isna().sum())) == (1, 13)


def test_the_column_that_costs_most_rows_is_named(tmp_path):
    path = write(tmp_path / "a.csv", weather().drop(columns="day"))
    error = unfit(path, drop_missing=True)
    assert "10 rows have no missing value, too few" in str(error)
    assert "such as 'gust', which is missing in 30 of 40 rows" in str(error)
    assert error.remedy.ignore == ("gust",)
    loss = read_training_table(path, ["rain"], drop_missing=True).loss
    assert (loss.rows, loss.of, loss.worst, loss.missing, loss.without) == (30, 40, "gust", 30, 40)
    assert "'gust' costs most: it is missing in 30 (75%)" in str(loss)
    assert "with --ignore 'gust' 40 rows instead of 10 are left" in str(loss)


def test_a_missing_date_and_inputs_that_are_mostly_missing_have_a_remedy(tmp_path):
    days = [str(day.date()) for day in pd.to_datetime(DAYS)]
    error = unfit(write(tmp_path / "a.csv", weather(day=["", *days[1:]]).drop(columns="gust")))
    assert (error.remedy.dates, error.remedy.drop_missing) == (True, True)
    some = np.where(np.arange(40) < 15, 1.0, np.nan)
    table = weather(heat=some * np.arange(40), gust=some[::-1]).drop(columns="day")
    assert unfit(write(tmp_path / "b.csv", table)).remedy.impute


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"rain": 2.0}, {}),
        ({"rain": DAYS}, {}),
        ({"heat": np.inf}, {"inputs": ["heat"]}),
        ({}, {"inputs": ["heat"], "split_by": "gust"}),
    ],
)
def test_some_problems_no_option_mends(columns, options, tmp_path):
    """A target, the only input, or the column that divides the rows."""
    assert unfit(write(tmp_path / "a.parquet", weather(**columns)), **options).remedy is None


def test_the_last_rows_are_held_out_and_times_stay_together(tmp_path):
    order = np.random.default_rng(1).permutation(40)
    table = weather(day=DAYS[np.arange(40) // 4]).drop(columns="gust").iloc[order]
    read = read_training_table(write(tmp_path / "a.csv", table), ["rain"], split_by="day")
    assert list(read.inputs) == ["heat"]
    assert read.dated == ("day",)
    kept, held = read.parts(0.25, 0)
    assert sorted(kept + held) == list(range(40))
    assert len(held) == 12  # ten would part the four of a day
    assert read.time.iloc[kept].max() < read.time.iloc[held].min()
    one = read_training_table(
        write(tmp_path / "b.csv", table.assign(day="2020-01-01")), ["rain"], split_by="day"
    )
    with pytest.raises(InputError, match="one value in most rows"):
        one.parts(0.25, 0)
