"""`prerank fit`: good tables become a model and its report."""

import re

import numpy as np
import pandas as pd
import pytest

import prerank
from cli.commands import NONE, QUICK, Reader, call, fit, record, refused, said


def predicted(folder, rows):
    """Of a model that comes from a file."""
    return prerank.load_model(folder).predict(rows)


def test_help_names_commands_and_codes():
    words = said(call("--help"))
    for name in ("fit", "predict", "diagnose", "explain", "demo", "datasets", "study"):
        assert f" {name} " in words
    assert "Exit codes: 0 done, 1 refused" in words


@pytest.mark.parametrize("command", ["fit", "predict", "diagnose", "explain"])
def test_help_of_commands(command):
    words = said(call(command, "--help"))
    assert words.startswith(f"Usage: prerank {command} ")
    assert "--json" in words


def test_fit_tells_what_it_did_and_found(fitted):
    done, folder = fitted
    lines = said(done)
    assert "Trained on 80 rows, 20 held out. Penalty: strength 5." in lines
    assert re.search(r"Energy score on held-out rows: 0\.\d{4} ", lines)
    assert "rows to tell" in lines  # 20 are too few
    assert "Model: model; report: model/report.html" in lines
    assert "Next: prerank predict model NEW.csv --out predictions.parquet" in lines
    assert sorted(path.name for path in folder.iterdir()) == ["model", "rivers.csv"]
    names = sorted(path.name for path in (folder / "model").iterdir())
    assert names[2:] == ["model.json", "report.html"]
    assert names[0] == ".lock"
    assert names[1].endswith(".safetensors")


def test_the_page_names_verdict_data_and_settings(fitted):
    done, folder = fitted
    page = Reader(folder / "model" / "report.html")
    assert page.headline in done.stdout
    assert page.mood == "unclear"
    for words in ("Model of rivers.csv", "Before and after the penalty", "strength", "depth, bed"):
        assert words in page.text
    assert "Example 1: observation" in page.text  # a title, and what the figure shows
    # How to do it again.
    for words in (
        "Judged on 20 rows that were held out; trained on 80 others.",
        "20 held out (20%), 80 trained on",
        "seed",
        "max epochs",
        "date",
    ):
        assert words in page.text


def test_the_model_predicts_from_python(fitted, rivers):
    _, folder = fitted
    model = prerank.load_model(folder / "model")
    assert model.strength_ == 5
    assert model.target_names_ == ("flow", "load")
    assert list(model.feature_names_in_) == ["depth", "bed", "wet"]
    found = model.predict(rivers[["depth", "bed", "wet"]])
    assert found.shape == (100, 2)
    assert np.corrcoef(found[:, 0], rivers.depth)[0, 1] > 0.5


def test_a_seed_gives_the_same_model_again(fitted, rivers, write, undrawn):
    _, folder = fitted
    options = ("--strength", "5", *QUICK)
    said(fit(write(rivers), *options))
    said(fit("table.csv", *options, "--seed", "1", out="other"))
    first, same, other = (
        prerank.load_model(out).theta_ for out in (folder / "model", "model", "other")
    )
    assert same.equal(first)
    assert not other.equal(first)
    x = rivers[["depth", "bed", "wet"]]
    assert (predicted("model", x) == predicted(folder / "model", x)).all()


def test_a_parquet_file_one_target_and_no_penalty(rivers, undrawn):
    rivers.drop(columns="load").to_parquet("rivers.parquet")
    words = said(fit("rivers.parquet", *NONE, targets="flow"))
    assert "Penalty: strength 0." in words
    assert prerank.load_model("model").target_names_ == ("flow",)
    assert Reader("model/report.html").headline in words


def test_semicolons_and_a_selected_strength(rivers, write, unpainted):
    table = write(rivers, sep=";")
    done = fit(table, "--strength", "auto", "--json", *QUICK)
    found = record(done)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert set(found) == {
        *("model", "report", "strength", "energy_score", "n_train", "method", "members", "head"),
        *("discrete", "left_out", "remarks", "n", "verdict", "findings", "skipped"),
    }
    assert (found["n_train"], found["n"]) == (80, 20)
    assert found["energy_score"] > 0
    assert found["verdict"]["mood"] == "unclear"
    whole = [row for row in found["findings"] if row["component"] == "all"]
    assert [row["prerank"] for row in whole][:2] == ["marginal", "location"]
    assert "dependency" in found["skipped"]
    model = prerank.load_model("model")
    assert model.selection_ is not None
    assert model.strength_ == found["strength"]
    page = Reader(found["report"])
    assert page.headline == found["verdict"]["headline"]
    assert "Selection of the strength" in page.text
    assert model.selection_.reason


def test_quiet_prints_nothing(rivers, write, undrawn):
    done = fit(write(rivers), *NONE, "--quiet", out="new/folder/model")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert (prerank.load_model("new/folder/model").n_outputs_) == 2


def test_rows_with_missing_values_are_dropped_on_request(rivers, write, undrawn):
    gaps = rivers.copy()
    gaps.loc[3, "flow"] = np.nan
    gaps.loc[5, "bed"] = None
    line = refused(fit(write(gaps), *NONE))
    assert "'bed' (1, first in row 6), 'flow' (1, first in row 4)" in line
    assert "--drop-missing" in line
    assert "Trained on 78 rows, 20 held out" in said(fit("table.csv", *NONE, "--drop-missing"))


def test_inputs_are_chosen_or_ignored(rivers, write, undrawn):
    dated = rivers.assign(day=pd.date_range("2020-01-01", periods=100))
    assert "column 'day' holds dates" in refused(fit(write(dated)))
    said(fit("table.csv", *NONE, "--ignore", "day", "--ignore", "bed"))
    assert list(prerank.load_model("model").feature_names_in_) == ["depth", "wet"]
    said(fit("table.csv", *NONE, "--inputs", "depth", "--force"))
    assert list(prerank.load_model("model").feature_names_in_) == ["depth"]


def test_a_list_of_targets_may_hold_quoted_names(rivers, write, undrawn):
    table = write(rivers.rename(columns={"flow": "flow, m3", "load": "流砂量"}))
    said(fit(table, *NONE, targets='"flow, m3",流砂量'))
    assert prerank.load_model("model").target_names_ == ("flow, m3", "流砂量")


def test_the_kept_strength_is_marked(rivers, write, undrawn):
    """Without a budget, and with nothing to learn, no strength qualifies."""
    noise = rivers.assign(flow=np.random.default_rng(0).normal(size=100))
    said(fit(write(noise), "--strength", "auto", "--budget", "0", *QUICK, targets="flow"))
    model = prerank.load_model("model")
    assert model.strength_ == 0
    assert [row.strength for row in model.selection_.trace if row.chosen] == [0]
    assert model.selection_.table.chosen.sum() == 1


def test_a_head_behind_two_networks(rivers, write, undrawn):
    options = ("--members", "2", "--preranks", "marginal", "--max-epochs", "3")
    lines = said(fit(write(rivers), *options, "--components", "1"))
    model = prerank.load_model("model")
    assert (model.method, model.members, model.head_rows_) == ("head", 2, 80)
    assert "Head, fitted to 80 rows: " in lines
    assert model.head_.report().splitlines()[0] in lines


def test_likelihood_alone(rivers, write, undrawn):
    options = ("--method", "none", "--max-epochs", "3", "--components", "1", "--json")
    found = record(fit(write(rivers), *options))
    assert (found["method"], found["head"], found["strength"]) == ("none", None, 0)


@pytest.mark.usefixtures("unpainted")
def test_discrete_targets_are_found_unless_it_is_off(rivers, write):
    table = write(rivers.assign(calls=np.arange(100) % 3))
    options = ("--method", "none", "--max-epochs", "3", "--components", "1")
    words = said(fit(table, *options, targets="flow,calls"))
    assert "Discrete targets, spread for training and rounded: calls: 3 values." in words
    assert "calls: 3 values" in Reader("model/report.html").text
    off = fit(table, *options, "--discrete", "off", "--json", targets="flow,calls", out="off")
    assert record(off)["discrete"] == []
    wrong = fit(table, *options, "--discrete", "maybe", targets="flow,calls", out="wrong")
    assert wrong.exit_code == 2
    assert "'maybe' is not auto or off" in wrong.stderr


@pytest.mark.usefixtures("unpainted")
def test_bounds_are_kept_by_the_model(rivers, write):
    table = write(rivers.assign(load=(rivers.load - 1).clip(lower=0), flow=rivers.flow.abs()))
    options = ("--method", "none", "--max-epochs", "3", "--components", "1")
    bounds = ("--bounds", "load=0:", "--bounds", "flow=0:50")
    words = said(fit(table, *options, *bounds))
    assert "Bounds: load from 0; flow 0 to 50." in words
    assert "flow 0 to 50" in Reader("model/report.html").text
    said(call("predict", "model", table, "--out", "out.csv", "--quantiles", "0.001", "--quiet"))
    assert pd.read_csv("out.csv").min(axis=None) >= 0
    again = record(fit(table, *options, *bounds, "--json", out="again"))
    assert again["bounds"] == {"load": [0, None], "flow": [0, 50]}


@pytest.mark.parametrize("bounds", ["flow", "flow=1", "=0:1", "flow=a:b", "flow=0:1:2"])
def test_bounds_that_cannot_be_read(bounds, rivers, write):
    done = fit(write(rivers), "--bounds", bounds)
    assert done.exit_code == 2
    assert "is not NAME=LOW:HIGH" in done.stderr


def test_bounds_of_one_target_are_given_at_once(rivers, write):
    done = fit(write(rivers), "--bounds", "flow=0:", "--bounds", "flow=:9")
    assert done.exit_code == 2
    assert "'flow' is named twice" in done.stderr


def test_bounds_that_do_not_hold_are_named(rivers, write):
    assert re.search(
        r"'flow' has \d+ values outside its bounds 0 to inf",
        refused(fit(write(rivers), "--bounds", "flow=0:")),
    )
