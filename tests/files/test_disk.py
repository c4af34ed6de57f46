"""Places to write to: refused before the work begins, whole or absent when it ends."""

import os
from functools import partial
from pathlib import Path

import pytest

from cli.commands import contents
from prerank.errors import InputError
from prerank.estimators.persistence import check_model_folder
from prerank.files import check_file, new_folder, writing

NEW, FORCED = (partial(check_model_folder, replace=replace) for replace in (False, True))
MODEL = '{"format": 1, "class": "MixtureRegressor", "weights": "00.safetensors"}'


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def old(place):
    """A folder that looks like a model."""
    (place / "model").mkdir()
    (place / "model" / "model.json").write_text(MODEL)
    return place / "model"


def fill(folder):
    (folder / "model.json").write_text(MODEL.replace("00", "11"))
    (folder / "report.html").write_text("new")


def test_a_new_folder_takes_its_place_at_the_end(place):
    with new_folder(Path("deep/model"), NEW) as folder:
        fill(folder)
        assert not Path("deep/model").exists()
        assert len(os.listdir("deep")) == 1
    assert list(contents(place)) == ["deep", "deep/model", *files("deep/model")]


def files(folder):
    return [f"{folder}/model.json", f"{folder}/report.html"]


def test_rights_are_the_usual_ones(place):
    before = os.umask(0o027)
    try:
        with new_folder(Path("model"), NEW) as folder:
            fill(folder)
    finally:
        os.umask(before)
    assert (place / "model").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError, OSError(28, "No space left")])
def test_a_failure_leaves_what_was(error, old, place):
    def fail(out):
        with new_folder(out, FORCED) as folder:
            fill(folder)
            raise error

    before = contents(place)
    for out in (Path("model"), Path("deep/er/model")):
        with pytest.raises((KeyboardInterrupt, InputError)):
            fail(out)
        assert contents(place) == before


def test_a_model_is_swapped(old, place):
    with new_folder(Path("model"), FORCED) as folder:
        fill(folder)
    assert list(contents(place)) == ["model", *files("model")]
    assert "11" in (old / "model.json").read_text()


def test_the_old_model_goes_back_where_the_new_one_cannot_come(old, place, monkeypatch):
    before = contents(place)
    rename = Path.rename

    def fail(self, target):
        if self.name == "new":
            raise OSError(16, "Device or resource busy")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with (
        pytest.raises(InputError, match="cannot write model: Device or resource busy"),
        new_folder(Path("model"), FORCED) as folder,
    ):
        fill(folder)
    assert contents(place) == before


@pytest.mark.parametrize("check", [NEW, FORCED], ids=["new", "forced"])
def test_what_came_meanwhile_is_not_deleted(check, place):
    def late():
        with new_folder(Path("model"), check) as folder:
            fill(folder)
            (place / "model").mkdir()
            (place / "model" / "thesis.tex").write_text("mine")

    with pytest.raises(InputError):
        late()
    assert list(contents(place)) == ["model", "model/thesis.tex"]


def test_the_folder_one_is_in(place, monkeypatch):
    (place / "here").mkdir()
    monkeypatch.chdir(place / "here")
    with pytest.raises(InputError, match="already there"):
        NEW(Path())
    FORCED(Path())
    (place / "here" / "mine.txt").touch()
    with pytest.raises(InputError, match=r"something else than a model \(mine.txt\)"):
        FORCED(Path())


def test_folders_made_on_the_way_are_taken_back(place):
    def make():
        Path("a/b").mkdir(parents=True)
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(InputError, match=r"cannot write a/b/c\.csv: No space left"),
        writing(Path("a/b/c.csv")),
    ):
        make()
    assert contents(place) == {}


def test_folders_that_were_there_stay(place):
    def make():
        Path("a/b").mkdir()
        raise KeyboardInterrupt

    Path("a").mkdir()
    with pytest.raises(KeyboardInterrupt), writing(Path("a/b/c.csv")):
        make()
    assert list(contents(place)) == ["a"]


def test_files(place):
    Path("there.csv").write_text("old")
    check_file(Path("there.csv"), Path("other.csv"))
    check_file(Path("deep/new.csv"), Path("there.csv"))
    assert list(contents(place)) == ["there.csv"]
    for out, words in {
        "there.csv": "is read by this command",
        "/dev/null": "is not a file: it is not replaced",
        "there.csv/new.csv": "Not a directory",
    }.items():
        with pytest.raises(InputError, match=words):
            check_file(Path(out), Path("there.csv"))
