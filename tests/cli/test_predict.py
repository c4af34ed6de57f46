"""`prerank predict`: what a model says of new rows, in files."""

import importlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

import prerank
from cli.commands import call, contents, record, refused, said, small_files

MODULE = importlib.import_module("prerank.cli.predict")  # the name means the function
NAMES = [f"{name}_{what}" for name in ("flow", "load") for what in ("mean", "q05", "q50", "q95")]


@pytest.fixture
def model(fitted, place):
    """A copy of the model."""
    shutil.copytree(fitted[1] / "model", place / "model")
    return place / "model"


def predict(table, *options, out="out.parquet"):
    return call("predict", "model", table, "--out", out, *options)


# Good input


def test_unknown_categories_are_told(model, rivers, write):
    table = rivers.assign(bed=["rock", "peat", "rock", *rivers.bed[3:]])
    remark = (
        "column 'bed' has values in 3 rows that the model was not fitted to: 'rock' (2), 'peat' (1)"
        "; they count as none of those it knows"
    )
    done = predict(write(table))
    assert done.stdout.splitlines()[0] == f"Note: {remark}."
    assert record(predict("table.csv", "--json"))["remarks"][0] == remark
    assert predict("table.csv", "--quiet").stdout == ""
    assert remark not in record(predict(write(rivers), "--json"))["remarks"]


def test_means_and_quantiles(fitted, rivers, place):
    """A table with its columns in another order, and others."""
    _, folder = fitted
    rivers[["wet", "load", "bed", "depth"]].assign(more=1).to_csv("new.csv", index=False)
    done = call("predict", folder / "model", "new.csv", "--out", "deep/out.parquet")
    assert said(done).endswith(" 100 rows: deep/out.parquet")
    table = pd.read_parquet("deep/out.parquet")
    assert list(table) == ["row", *NAMES]
    assert (table.row == np.arange(100)).all()
    model = prerank.load_model(folder / "model")
    x = rivers[["depth", "bed", "wet"]]
    assert np.allclose(table[["flow_mean", "load_mean"]], model.predict(x), rtol=1e-12)
    quantiles = model.predict_quantiles(x)  # (Q, N, D)
    for d, name in enumerate(("flow", "load")):
        columns = [f"{name}_q{level}" for level in ("05", "50", "95")]
        assert np.allclose(table[columns], quantiles[..., d].T, rtol=1e-9)
        assert (np.diff(table[columns]) > 0).all()


@pytest.mark.parametrize("kind", ["csv", "CSV", "parquet"])
def test_formats_agree(kind, model, rivers, write):
    rivers.to_parquet("rivers.parquet")
    said(predict(write(rivers, sep=";"), out=f"out.{kind}"))
    said(predict("rivers.parquet", out="same.parquet"))
    read = pd.read_parquet if kind == "parquet" else pd.read_csv
    pd.testing.assert_frame_equal(read(f"out.{kind}"), pd.read_parquet("same.parquet"))


def test_levels_name_their_columns(model, rivers, write):
    said(predict(write(rivers), "--quantiles", "0.975, .5,0.005,1e-3"))
    columns = list(pd.read_parquet("out.parquet"))
    assert columns[2:6] == ["flow_q97.5", "flow_q50", "flow_q00.5", "flow_q00.1"]


def test_rows_in_parts_are_the_same(model, rivers, write, monkeypatch):
    table = write(rivers)
    said(predict(table))
    monkeypatch.setattr(MODULE, "_CHUNK_ROWS", 33)
    said(predict(table, out="parts.parquet"))
    whole, parts = (pd.read_parquet(f"{name}.parquet") for name in ("out", "parts"))
    pd.testing.assert_frame_equal(whole, parts, rtol=1e-6)


def test_samples_by_seed(model, rivers, write):
    table = write(rivers[:7])
    for seed, name in ((0, "a"), (0, "b"), (1, "c")):
        said(predict(table, "--samples", "5", "--seed", seed, out=f"{name}.csv"))
    a, b, c = (pd.read_csv(f"{name}.samples.csv") for name in "abc")
    assert list(a) == ["row", "sample", "flow", "load"]
    assert len(a) == 35
    assert a.equals(b)
    assert not a.flow.equals(c.flow)


def test_samples_feed_a_diagnosis(model, rivers, write):
    table = write(rivers)
    words = said(predict(table, "--samples", "30", out="out.csv"))
    assert "30 samples of each: out.samples.csv" in words
    assert "prerank diagnose --samples out.samples.csv --observations OBSERVED.csv" in words
    done = call("diagnose", "--samples", "out.samples.csv", "--observations", table, "--json")
    found = record(done)
    remarks = ["columns of table.csv without samples were not judged: depth"]
    assert (done.exit_code, found["n"], found["remarks"]) == (0, 100, remarks)
    components = {row["component"] for row in found["findings"] if row["prerank"] == "marginal"}
    assert components == {"all", "flow", "load"}


def test_json_and_quiet(model, rivers, write):
    table = write(rivers)
    done = predict(table, "--json", "--samples", "2")
    assert done.stderr == ""
    found = record(done)
    assert found.pop("remarks")
    assert found == {
        "n": 100,
        "not_predicted": 0,
        "columns": ["row", *NAMES],
        "predictions": "out.parquet",
        "samples": "out.samples.parquet",
    }
    assert "samples" not in record(predict(table, "--json"))
    done = predict(table, "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_one_target_of_a_series(rivers, write, place):
    small(rivers[["depth"]], rivers["flow"]).save("model")
    said(predict(write(rivers), "--samples", "3"))
    assert list(pd.read_parquet("out.parquet"))[:2] == ["row", "flow_mean"]
    assert list(pd.read_parquet("out.samples.parquet")) == ["row", "sample", "flow"]


def small(x, y):
    return prerank.MixtureRegressor(
        n_components=1, method="none", hidden=(4,), max_epochs=1, random_state=0
    ).fit(x, y)


def test_new_levels_and_far_values_are_predicted(model, rivers, write):
    said(predict(write(rivers.assign(bed="rock", depth=1e300))))
    assert np.isfinite(pd.read_parquet("out.parquet")).all(axis=None)


def test_a_file_is_replaced(model, rivers, write, place):
    (place / "out.csv").write_text("old")
    said(predict(write(rivers), out="out.csv"))
    assert len(pd.read_csv("out.csv")) == 100


def test_text_stays_text_whatever_it_looks_like(rivers, write):
    """Codes, dates and truth values among other texts, in a file that has nothing else."""
    codes = rivers.assign(bed=rivers.bed.map({"mud": "007", "sand": "true"}).fillna("2020-01-01"))
    codes.loc[0, "bed"] = "none known"  # what makes the column one of text
    small(codes[["depth", "bed"]], codes[["flow"]]).save("model")
    model = prerank.load_model("model")
    for code in ("007", "true", "2020-01-01"):
        rows = codes[codes.bed == code][["bed", "depth"]]
        table = write(rows.rename(columns={"bed": " bed"}))  # a space after the comma
        said(predict(table))
        found = pd.read_parquet("out.parquet").flow_mean
        assert np.allclose(found, model.predict(rows[["depth", "bed"]]).ravel(), rtol=1e-12)


# Bad tables

TABLES = {
    "columns missing": (
        lambda r: r[["bed", "flow"]],
        "no column 'depth', 'wet' for the inputs; there are bed, flow",
    ),
    "a column by another name": (
        lambda r: r.rename(columns={"depth": "dpeth"}),
        "no column 'depth' for the inputs; did you mean dpeth?",
    ),
    "text for numbers": (
        lambda r: r.assign(depth="deep"),
        "column 'depth' holds text, such as 'deep' (100 of 100 rows, first in row 1) for an ",
    ),
    "text for truth": (lambda r: r.assign(wet="yes"), "column 'wet' holds text, such as 'yes'"),
    "dates": (lambda r: r.assign(depth="2020-01-01"), "column 'depth' holds dates or times"),
    "all missing": (
        lambda r: r.assign(bed=None),
        "no row can be predicted: missing or infinite values in 'bed' (100, first in row 1)",
    ),
    "infinite": (lambda r: r.assign(depth=np.inf), "infinite values in 'depth' (100, first in"),
    "header alone": (lambda r: r[:0], "has no rows"),
}


def test_tables_that_are_refused(model, rivers, write, place):
    for case, (change, words) in TABLES.items():
        table = write(change(rivers))
        before = contents(place)
        assert words in refused(predict(table, "--samples", "2", out="new/out.csv")), case
        assert contents(place) == before, case


def test_numbers_for_text_are_refused(model, rivers):
    """A Parquet file knows its types: what it calls a number is none of the texts."""
    rivers.assign(bed=1.5).to_parquet("new.parquet")
    assert "column 'bed' was text in fit (such as 'm" in refused(predict("new.parquet"))


def test_a_model_of_numbers_alone_refuses_others(rivers, write, place):
    small(rivers[["depth"]], rivers[["flow", "load"]]).save("model")
    for value in ("deep", None, "2020-01-01"):
        table = write(rivers.assign(depth=value))
        before = contents(place)
        line = refused(predict(table))
        assert line.startswith("table.csv: ")
        assert "'depth'" in line
        assert contents(place) == before


def test_numbers_written_as_text_are_numbers(model, rivers, write):
    said(predict(write(rivers)))
    rivers.assign(depth=rivers.depth.astype(str)).to_parquet("text.parquet")
    said(predict("text.parquet", out="text-out.parquet"))
    assert pd.read_parquet("out.parquet").equals(pd.read_parquet("text-out.parquet"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.csv", "cannot read none.csv: No such file or directory"),
        ("model", "cannot read model: Is a directory"),
        ("new.xlsx", "ends in '.xlsx' cannot be read"),
        ("empty.csv", "empty.csv: the file is empty"),
    ],
)
def test_files_that_are_refused(name, words, model, place):
    for file in ("new.xlsx", "empty.csv"):
        (place / file).touch()
    before = contents(place)
    assert words in refused(predict(name))
    assert contents(place) == before


# Bad models


def edited(folder, **entries):
    settings = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(settings | entries))


def weights(folder):
    return next(folder.glob("*.safetensors"))


MODELS = {
    "not there": (shutil.rmtree, "cannot read model/model.json: "),
    "no settings": (lambda m: (m / "model.json").unlink(), "cannot read model/model.json: "),
    "no JSON": (lambda m: (m / "model.json").write_text("{"), "cannot read model/model.json: "),
    "not text": (
        lambda m: (m / "model.json").write_bytes(b"\xff\x00"),
        "cannot read model/model.json: ",
    ),
    "foreign": (lambda m: (m / "model.json").write_text('{"layers": 3}'), "model format None"),
    "a list": (lambda m: (m / "model.json").write_text("[1]"), "model format None"),
    "a later format": (lambda m: edited(m, format=99), "model format 99, but this version"),
    "edited": (lambda m: edited(m, strength=3), "does not match the hash in it"),
    "no weights": (lambda m: weights(m).unlink(), ".safetensors: the model is incomplete"),
    "weights cut short": (
        lambda m: weights(m).write_bytes(weights(m).read_bytes()[:99]),
        "does not match the hash in model.json",
    ),
}


def test_models_that_are_refused(fitted, rivers, write, place):
    table = write(rivers)
    for case, (spoil, words) in MODELS.items():
        shutil.rmtree(place / "model", ignore_errors=True)
        spoil(shutil.copytree(fitted[1] / "model", place / "model"))
        before = contents(place)
        assert words in refused(predict(table, "--samples", "2")), case
        assert contents(place) == before, case


def test_a_file_is_no_model(rivers, write):
    table = write(rivers)
    assert "cannot read table.csv/model.json" in refused(
        call("predict", table, table, "--out", "out.csv")
    )


def test_a_model_of_columns_without_names(rivers, write):
    small(rivers[["depth"]].to_numpy(), rivers[["flow"]].to_numpy()).save("model")
    line = refused(predict(write(rivers)))
    assert line == "model was fitted to columns without names: use it from Python"


# Where to write

PLACES = {
    "suffix": ("out.txt", "out.txt: the file to write must end in .parquet or .csv"),
    "no suffix": ("out", "out: the file to write must end in .parquet or .csv"),
    "the table": ("table.csv", "table.csv is read by this command: choose another file to write"),
    "a link to it": ("link.csv", "link.csv is read by this command"),
    "below a file": ("table.csv/out.csv", "cannot write table.csv/out.csv: Not a directory"),
    "nowhere": ("/proc/out.csv", "cannot write /proc/out.csv: "),
    "a device": ("full.csv", "full.csv is not a file: it is not replaced"),
}


def test_places_that_are_refused(model, rivers, write, place):
    table = write(rivers)
    (place / "link.csv").symlink_to("table.csv")
    (place / "full.csv").symlink_to("/dev/full")
    names = sorted(place.rglob("*"))
    for case, (out, words) in PLACES.items():
        assert words in refused(predict(table, out=out)), case
        assert sorted(place.rglob("*")) == names, case
        assert pd.read_csv(table).shape == rivers.shape, case


def test_samples_do_not_replace_the_table(model, rivers, place):
    rivers.to_parquet("out.samples.parquet")
    before = contents(place)
    line = refused(predict("out.samples.parquet", "--samples", "2"))
    assert line.startswith("out.samples.parquet is read by this command")
    assert contents(place) == before


def test_a_full_disk(fitted, model, rivers, write, place):
    table = write(rivers)
    before = contents(place)
    with small_files():
        done = predict(table, "--samples", "2", out="new/out.csv")
    assert refused(done) == "cannot write new/out.csv: File too large"
    with small_files(11_000):  # where the predictions have their place, and the samples do not
        done = predict(table, "--samples", "50", out="new/out.csv")
    assert "File too large" in refused(done)
    assert contents(place) == before


def failing(*_, **__):
    raise OSError(28, "No space left on device")


TABLE_WRITERS = [(pd.DataFrame, "to_csv"), (pd.DataFrame, "to_parquet")]


@pytest.mark.parametrize("parts", [TABLE_WRITERS, [(prerank.files, "write_samples")]])
def test_both_files_or_none(parts, model, rivers, write, place, monkeypatch):
    table = write(rivers)
    said(predict(table, "--samples", "2"))
    before = contents(place)
    for owner, name in parts:
        monkeypatch.setattr(owner, name, failing)
    for out in ("out.parquet", "new/out.csv"):
        line = refused(predict(table, "--samples", "3", "--seed", "9", out=out))
        assert line == f"cannot write {out}: No space left on device"
        assert contents(place) == before


def test_too_little_memory(model, rivers, write, place, monkeypatch):
    def greedy(*_):
        torch.empty(2**60)

    table = write(rivers)
    before = contents(place)
    monkeypatch.setattr(MODULE, "_summary", greedy)
    assert refused(predict(table)).startswith("not enough memory: give fewer rows or samples")
    assert contents(place) == before


def test_a_single_sample_is_refused(model, rivers, write):
    assert "0 or at least 2" in refused(predict(write(rivers), "--samples", "1"))


BAD_USAGE = [
    *(("--quantiles", text) for text in ("", "half", "0", "1", "0.5,0.5", "nan", "0.1,", ".1 .9")),
    ("--samples", "-1"),
    ("--samples", "10000000000"),
    ("--seed", "-1"),
    ("--out", "model"),
    ("--frobnicate", "1"),
]


def test_usage_that_is_not_known(model, rivers, write, place):
    table = write(rivers)
    before = contents(place)
    for words in BAD_USAGE:
        done = predict(table, *words)
        assert (done.exit_code, done.stdout) == (2, ""), words
        assert words[0] in done.stderr
        assert "Traceback" not in done.stderr
        assert contents(place) == before, words
