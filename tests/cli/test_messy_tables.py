"""`prerank fit` and `prerank predict` on dated tables with gaps: what is said, and what works."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest

import prerank
from cli.commands import Reader, call, contents, record, said

QUICK = ("--method", "none", "--max-epochs", "2", "--components", "1")
TARGETS = ("--targets", "flow,load")


@pytest.fixture
def messy(rivers):
    """Dated rows; four fifths of `gust`, some of `depth` and one target are missing."""
    table = rivers.assign(
        day=pd.date_range("2020-01-01", periods=100, freq="12h"), gust=rivers.depth
    )
    table.loc[20:, "gust"] = np.nan
    table.loc[30:32, "depth"] = np.nan
    table.loc[50, "flow"] = np.nan
    return table


def fit(*options):
    return call("fit", "table.csv", *TARGETS, "--out", "model", *QUICK, *options)


def proposed(done):
    """The words of the command that a refusal proposes, without `prerank`."""
    line = done.stderr.splitlines()[-1]
    assert line.startswith("This works: prerank ")
    return shlex.split(line)[3:]


def test_one_message_has_all_problems_and_the_command_that_works(messy, write, place, undrawn):
    write(messy.rename(columns={"gust": "wind, gust"}))
    before = contents(place)
    done = fit()
    assert (done.exit_code, done.stdout) == (1, "")
    head, dates, gaps, command = done.stderr.splitlines()
    assert head == "Error: table.csv has 2 problems:"
    assert dates.startswith("- column 'day' holds dates or times")
    for words in ("'depth' (3,", "'wind, gust' (80,", "'flow' (1,", "--drop-missing", "--impute"):
        assert words in gaps
    assert "--split-by day --dates --drop-missing" in command
    assert "--ignore 'wind, gust'" in command
    assert contents(place) == before
    words = said(call(*proposed(done)))
    assert "Note: 4 of 100 rows left out because of missing values; 'depth' costs most" in words
    assert "Trained on 76 rows, 20 held out, the last ones by day." in words
    assert "Dates: day: days since 2020-01-01, sine and cosine of week and day." in words
    page = Reader("model/report.html").text
    assert "4 of 100 rows left out because of missing values" in page


def test_the_proposal_keeps_inputs_that_were_named(messy, write, undrawn):
    write(messy)
    done = fit("--inputs", "depth,gust,wet", "--seed", "3")
    assert "--inputs depth,wet" in done.stderr
    assert "--seed 3" in done.stderr
    said(call(*proposed(done)))
    assert list(prerank.load_model("model").feature_names_in_) == ["depth", "wet"]


def test_no_command_is_proposed_where_none_works(messy, write):
    write(messy.assign(flow=1.0))
    done = fit()
    assert "This works" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("No option solves all of these")


def test_what_drops_most_rows_is_named_and_dates_hint_at_a_split(messy, write, undrawn):
    write(messy.assign(more=messy.load.where(messy.index < 40)))
    found = record(fit("--ignore", "day,gust", "--drop-missing", "--json"))
    lost, dated = found["remarks"]
    assert found["left_out"] == 63
    assert "'more' costs most: it is missing in 60 (60%)" in lost
    assert "with --ignore 'more' 96 rows instead of 37 are left" in lost
    assert "--split-by day" in dated


def test_gaps_and_dates_are_encoded_alike_in_fit_and_predict(messy, write, undrawn, place):
    write(messy)
    words = said(fit("--dates", "--impute", "--drop-missing", "--split-by", "day"))
    assert "Note: 1 of 100 rows left out" in words
    assert "Missing inputs: median and a flag: depth (" in words
    new = messy.drop(columns=["flow", "load"])
    new.loc[0, "bed"] = None  # none was missing in training
    new.to_csv("new.csv", index=False)
    found = record(call("predict", "model", "new.csv", "--out", "out.parquet", "--json"))
    assert (found["n"], found["not_predicted"]) == (100, 0)
    assert any(remark.startswith("imputed as in training: ") for remark in found["remarks"])
    table = pd.read_parquet("out.parquet")
    assert np.isfinite(table).all(axis=None)
    model = prerank.load_model("model")
    known = model.predict(new[list(model.feature_names_in_)])
    assert np.allclose(table[["flow_mean", "load_mean"]], known, rtol=1e-12)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_that_cannot_be_predicted_keep_their_place(suffix, rivers, write, undrawn):
    write(rivers)
    said(fit())
    new = rivers.drop(columns=["flow", "load"])
    new.loc[[4, 9], "depth"] = [np.nan, np.inf]
    new.loc[7, "bed"] = None
    new.to_csv("new.csv", index=False)
    out = f"out.{suffix}"
    done = call("predict", "model", "new.csv", "--out", out, "--samples", "3", "--json")
    found = record(done)
    assert (found["n"], found["not_predicted"]) == (100, 3)
    assert "3 of 100 rows cannot be predicted" in found["remarks"][0]
    assert "'depth' (2, first in row 5), 'bed' (1, first in row 8)" in found["remarks"][0]
    read = pd.read_csv if suffix == "csv" else pd.read_parquet
    table, drawn = read(out), read(found["samples"])
    assert table.row.tolist() == list(range(100))
    assert table.index[table.isna().any(axis=1)].tolist() == [4, 7, 9]
    assert set(range(100)) - set(drawn.row) == {4, 7, 9}
    rivers.to_csv("truth.csv", index=False)
    judged = call(
        "diagnose", "--samples", found["samples"], "--observations", "truth.csv", "--json"
    )
    assert record(judged)["n"] == 97


def test_predictions_beyond_what_was_seen_are_remarked_on(rivers, write, undrawn):
    write(rivers)
    said(fit())
    found = record(call("predict", "model", "table.csv", "--out", "out.csv", "--json"))
    table, seen = pd.read_csv("out.csv"), prerank.load_model("model").y_scaler_
    values = table.filter(like="flow_")
    low, high = ((seen.loc + seen.scale * end)[0, 0, 0].item() for end in (seen.low, seen.high))
    count = int(((values < low) | (values > high)).any(axis=1).sum())
    assert 0 < count < 100
    (remark,) = (text for text in found["remarks"] if "'flow'" in text)
    assert f"in {count} of 100 rows" in remark
    inner = call("predict", "model", "table.csv", "--out", "in.csv", "--json", "--quantiles", "0.5")
    values = pd.read_csv("in.csv").filter(like="flow_")
    if ((values > low) & (values < high)).all(axis=None):
        assert not [text for text in record(inner)["remarks"] if "'flow'" in text]


def test_a_split_by_needs_times(rivers, write):
    write(rivers)
    done = fit("--split-by", "bed")
    assert "column 'bed' for --split-by holds text: numbers or dates are needed" in done.stderr
    assert "no column 'dya' for --split-by" in fit("--split-by", "dya").stderr


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("fills", {"9": {"values": [0.0], "flagged": True}}),
        ("fills", {"0": {"values": [0.0, 1.0], "flagged": True}}),
        ("fills", {"0": {"values": ["0"], "flagged": True}}),
        ("dates", {"0": {"first": 0.0, "cycles": ["moon"]}}),
        ("dates", {"1": {"first": 0.0, "cycles": []}}),
    ],
)
def test_an_encoding_that_no_model_has_is_refused(part, value, messy, write, undrawn, place):
    from prerank.estimators.model_folder import settings_digest

    write(messy)
    said(fit("--ignore", "day,gust", "--impute", "--drop-missing"))
    file = place / "model" / "model.json"
    settings = json.loads(file.read_text())
    settings.pop("sha256")
    settings[part] = settings.get(part, {}) | value
    file.write_text(json.dumps(settings | {"sha256": settings_digest(settings)}))
    done = call("predict", "model", "table.csv", "--out", "out.csv")
    assert done.exit_code == 1
    assert "is not a complete model" in done.stderr
