"""`prerank fit`: where the model goes, and what is never deleted for it."""

import os

import pytest

import prerank
from cli.commands import NONE, contents, fit, refused, said, small_files


def test_a_model_is_replaced_on_request_alone(fitted, rivers, write, undrawn):
    said(fit(write(rivers)))
    before = contents("model")
    line = refused(fit("table.csv"))
    assert line == "model is already there: choose another folder, or replace it (--force)"
    assert contents("model") == before
    said(fit("table.csv", *NONE, "--seed", "7", "--force"))
    after = contents("model")
    assert len(after) == len(before) == 4
    assert set(after) != set(before)
    assert sorted(os.listdir()) == ["model", "table.csv"]


FOREIGN = {
    "a file": ({"notes.txt": "mine"}, "something else than a model (notes.txt)"),
    "many files": (dict.fromkeys("abcde", ""), "something else than a model (a, b, c, ...)"),
    "a hidden file": ({".git": "mine"}, "something else than a model (.git)"),
    "a model of others": ({"model.json": '{"layers": 3}'}, "no model of prerank's"),
    "others' weights": ({"0123.safetensors": ""}, "something else than a model (0123.safetensors)"),
    "a forged model": (
        {"model.json": '{"format": 1, "class": "x", "weights": "y"}'},
        "no model of prerank's",
    ),
    "a page": ({"report.html": "mine"}, "no model of prerank's"),
    "no JSON": ({"model.json": "{"}, "no model of prerank's"),
}


def test_what_is_no_model_is_never_deleted(rivers, write, place):
    write(rivers)
    for case, (files, words) in FOREIGN.items():
        (place / case).mkdir()
        for name, text in files.items():
            (place / case / name).write_text(text)
        before = contents(place)
        assert "already there" in refused(fit("table.csv", out=case))
        assert words in refused(fit("table.csv", *NONE, "--force", out=case))
        assert contents(place) == before, case


@pytest.mark.parametrize(
    "name", ["predictions.csv", "decade.safetensors", "cafe.safetensors/", "report.html/", ".lock/"]
)
def test_a_model_with_other_files_is_not_deleted(name, fitted, place):
    _, folder = fitted
    (place / "model").mkdir()
    for own, data in contents(folder / "model").items():
        (place / "model" / own).write_bytes(data)
    other = place / "model" / name
    if name.endswith("/"):
        other.unlink(missing_ok=True)
        other.mkdir()
        other /= "thesis.txt"
    other.write_text("mine")
    before = contents(place)
    line = refused(fit(folder / "rivers.csv", *NONE, "--force"))
    assert line == (
        f"model holds something else than a model ({name.strip('/')}): it is not replaced"
    )
    assert contents(place) == before


def test_empty_folders_and_links_become_models(rivers, write, place, undrawn):
    (place / "there").mkdir()
    (place / "link").symlink_to("there")
    (place / "ahead").symlink_to("new")
    table = write(rivers)
    said(fit(table, *NONE, "--force", out="link"))
    said(fit(table, *NONE, out="ahead"))
    for out in ("link", "there", "ahead", "new"):
        assert prerank.load_model(out).n_outputs_ == 2
    assert sorted(os.listdir()) == ["ahead", "link", "new", "table.csv", "there"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_must_not_be_written(rivers, write, place):
    table = write(rivers)
    closed = place / "closed"
    closed.mkdir(mode=0o555)
    assert refused(fit(table, out="closed/model")) == "cannot write closed/model: Permission denied"
    assert contents(closed) == {}


def failing(*_, **__):
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("force", [False, True], ids=["new", "forced"])
def test_a_page_that_cannot_be_written_leaves_what_was(
    force, fitted, rivers, write, place, undrawn, monkeypatch
):
    table = write(rivers)
    if force:
        said(fit(table, out="new/model"))
    before = contents(place)
    monkeypatch.setattr("prerank.report.html.write_page", failing)
    done = fit(table, *NONE, *["--force"][: int(force)], "--seed", "3", out="new/model")
    assert refused(done) == "cannot write new/model: Input/output error"
    assert contents(place) == before


def test_a_full_disk(fitted, place, undrawn):
    _, folder = fitted
    with small_files():
        done = fit(folder / "rivers.csv", *NONE, out="new/model")
    line = refused(done)
    assert line.startswith("cannot write new/model: ")
    assert "File too large" in line
    assert contents(place) == {}
