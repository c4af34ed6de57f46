"""A folder takes the place of another one whole, or not at all; what is others' stays."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cli.commands import SETTINGS, contents
from prerank.errors import InputError
from prerank.estimators.model_folder import check_model_folder, settings_digest
from prerank.files import FileLock, new_folder

NEW, FORCED = (partial(check_model_folder, replace=replace) for replace in (False, True))


def model_of(weights):
    """Settings of a model, with their hash."""
    settings = {"format": 1, "class": "MixtureRegressor", "weights": weights}
    return json.dumps(settings | {"sha256": settings_digest(settings)})


MODEL = model_of("00.safetensors")


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
    (folder / "model.json").write_text(model_of("11.safetensors"))
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


HOLD = """
import os, sys
from pathlib import Path
from prerank.files import folders
def die(*_):
    os._exit(9)
target = Path(sys.argv[1])
with folders.new_folder(target, lambda _: None) as folder:
    (folder / "model.json").write_text("half")
    if sys.argv[2] == "exchange":
        folders._exchange = lambda *_: False
        Path.rename = lambda self, to: (os.rename(self, to), die())
    else:
        die()
"""


@pytest.mark.parametrize("when", ["writing", "exchange"])
def test_what_a_killed_process_left_is_taken_away(when, old, place):
    """Between two renames there is no model, on systems that cannot exchange: it comes back."""
    (old / ".lock").touch()
    before = contents(place)
    code = [sys.executable, "-c", HOLD, "model", when]
    done = subprocess.run(code, env=os.environ | SETTINGS, check=False)
    assert done.returncode == 9
    assert len(list(place.glob(".model.*"))) == 1
    assert old.exists() == (when == "writing")
    with pytest.raises(KeyboardInterrupt), new_folder(Path("model"), FORCED):
        raise KeyboardInterrupt
    assert contents(place) == before


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        (".model.0a1b2c3d", []),
        (".model.0a1b2c3d", ["new", "old"]),
        (".model.original", ["notes.txt"]),
        (".model.versions", ["old"]),
        (".model.backup", []),
    ],
)
def test_folders_without_a_lock(old, place, name, inside):
    hold = place / name
    hold.mkdir()
    for part in inside:
        (hold / part).mkdir()
    os.utime(hold, (0, 0))
    with new_folder(Path("model"), FORCED) as folder:
        fill(folder)
    assert sorted(os.listdir(hold)) == inside


MARK = b"made by prerank: .model.00000001\n"


@pytest.mark.parametrize("lock", [b"", b"mine", MARK, MARK + b"mine", b"made by prerank"])
def test_the_name_of_a_lock_is_no_mark(old, place, lock):
    """Nor is the mark of another folder, such as one that was copied."""
    thesis = place / ".model.0badcafe" / "old" / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine")
    (place / ".model.0badcafe" / "held.lock").write_bytes(lock)
    with new_folder(Path("model"), FORCED) as folder:
        fill(folder)
    assert thesis.read_text() == "mine"


@pytest.mark.parametrize("marked", [False, True])
def test_what_a_process_left_is_known_by_its_mark(old, place, marked):
    hold = place / ".model.00000001"
    (hold / "new").mkdir(parents=True)
    (hold / "held.lock").write_bytes(MARK if marked else b"")
    with new_folder(Path("model"), FORCED) as folder:
        fill(folder)
    assert hold.exists() != marked


def test_what_lies_beside_a_lock_is_not_deleted(old, place):
    for name in (".model.0a1b2c3d", ".model.versions"):
        (place / name).mkdir()
        for part in ("held.lock", "old" if name == ".model.versions" else "thesis.txt"):
            (place / name / part).write_text("mine")
    (place / "elsewhere" / "old").mkdir(parents=True)
    (place / "elsewhere" / "held.lock").touch()
    (place / ".model.00000000").symlink_to("elsewhere")
    before = contents(place)
    with pytest.raises(KeyboardInterrupt), new_folder(Path("model"), FORCED):
        raise KeyboardInterrupt
    assert contents(place) == before


def test_what_another_process_is_writing_stays(old, place):
    with new_folder(Path("model"), FORCED) as one:
        fill(one)
        with new_folder(Path("model"), FORCED) as other:
            fill(other)
        assert one.exists()
    assert list(contents(place)) == ["model", *files("model")]


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
    # As on systems that cannot exchange two folders in one step.
    monkeypatch.setattr("prerank.files.folders._exchange", lambda *_: False)
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


LOOK = """
import os, sys
missing = 0
print("looking", flush=True)
while not os.path.exists(sys.argv[2]):
    try:
        os.stat(sys.argv[1])
    except FileNotFoundError:
        missing += 1
print(missing)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot exchange folders")
def test_a_folder_is_replaced_without_a_moment_in_which_it_is_absent(tmp_path):
    """Another process looks all the time, while the folder is replaced 500 times."""
    out, end = tmp_path / "model", tmp_path / "end"
    out.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", LOOK, str(out), str(end)], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout.readline() == "looking\n"
        for number in range(500):
            with new_folder(out, lambda _: None) as folder:
                (folder / "number").write_text(str(number))
        end.touch()
        assert reader.stdout.read() == "0\n"
    assert (out / "number").read_text() == "499"
    assert sorted(os.listdir(tmp_path)) == ["end", "model"]


def test_the_lock_of_a_folder_is_held_while_another_takes_its_place(old, place):
    free = []

    def check(path):
        FORCED(path)
        with FileLock(path / ".lock") as held:
            free.append(held)

    with new_folder(Path("model"), check) as folder:
        fill(folder)
    assert free == [True, False]
    assert list(contents(place)) == ["model", *files("model")]


@pytest.mark.parametrize("late", [False, True], ids=["while it is checked", "just after that"])
def test_a_model_that_comes_to_an_empty_place_is_checked_too(place, late):
    """A model that another process saved meanwhile is replaced by `--force` alone."""

    def check(replace, path):
        check_model_folder(path, replace=replace)
        asked.append(path)
        if len(asked) == 1 + late:
            (place / "model").mkdir()
            (place / "model" / "model.json").write_text(MODEL)

    asked = []
    with (
        pytest.raises(InputError, match="model is already there"),
        new_folder(Path("model"), partial(check, False)) as folder,
    ):
        fill(folder)
    assert contents(place)["model/model.json"] == MODEL.encode()
    (place / "model" / "model.json").unlink()
    (place / "model").rmdir()
    asked.clear()
    with new_folder(Path("model"), partial(check, True)) as folder:
        fill(folder)
    assert list(contents(place)) == ["model", *files("model")]


MOUNTED = """
from functools import partial
from pathlib import Path
from prerank.estimators.model_folder import check_model_folder
from prerank.files import check_file
for check in (partial(check_model_folder, replace=True), check_file):
    for path in ("model", "link", "file.csv"):
        try:
            check(Path(path))
        except ValueError as error:
            print(error)
"""


def test_what_is_mounted_is_refused_before_there_is_anything_to_put_there(place):
    for name in ("model", "other"):
        (place / name).mkdir()
    for name in ("file.csv", "other/file.csv"):
        (place / name).touch()
    (place / "link").symlink_to("model")
    mount = "mount -t tmpfs none other && mount --bind other model && touch other/f"
    mount = f"{mount} && mount --bind other/f file.csv && rm other/f"
    try:
        done = subprocess.run(
            [
                "unshare",
                "-rm",
                "sh",
                "-c",
                f'{mount} && exec "$@"',
                "sh",
                sys.executable,
                "-c",
                MOUNTED,
            ],
            env=os.environ | SETTINGS,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("no unshare")
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr)
    words = "is a mount point, which cannot be replaced"
    found = [line.partition(words)[0] for line in done.stdout.splitlines()]
    assert found == [
        *(f"{place / name} " for name in ("model", "model", "file.csv")),
        *(f"{name} is not a file: it is not replaced" for name in ("model", "link")),
        "file.csv ",
    ]


def test_names_and_links_that_no_folder_can_have(place):
    (place / "ring").symlink_to("ring")
    for name, words in {"ring": "leads to itself", "a" * 250: "too long", "a\0": "null"}.items():
        for check in (NEW, FORCED):
            with pytest.raises(InputError, match=words):
                check(Path(name))
    for name in ("a" * 250, "a\0"):
        with (
            pytest.raises(InputError, match=r"no file|too long"),
            new_folder(Path(name), NEW),
        ):
            pytest.fail("the folder was made")
    assert os.listdir(place) == ["ring"]
