"""The core works alone, every package can be reached, and a missing library is named."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import prerank
from prerank import extras
from prerank.errors import InputError, MissingLibraryError

ROOT = Path(__file__).parents[1]
APP = extras._MODULES["app"]

# None is Python's own sign for a module that is not there.
WITHOUT_APP = f"""
import sys
sys.modules.update(dict.fromkeys({APP!r}))
import prerank
assert "torch" not in sys.modules
"""


def run(code, *words, folder):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_package_can_be_reached_without_the_app(tmp_path):
    code = """
for name in dir(prerank):
    try:
        getattr(prerank, name)
    except prerank.PrerankError as error:
        print(error)
"""
    done = run(WITHOUT_APP + code, folder=tmp_path)
    assert done.stderr == ""
    hints = set(done.stdout.splitlines())
    for name in ("MixtureRegressor", "FlowRegressor", "load_model", "estimators"):
        hints.remove(f"prerank.{name} needs scikit-learn: pip install 'prerank[app]'")
    assert hints == {"prerank.cli needs typer: pip install 'prerank[app]'"}


def test_the_names_of_the_root_and_the_packages_are_listed():
    listed = dir(prerank)
    assert listed == sorted(set(listed))
    assert {*prerank.__all__, "training", "datasets", "files", "study", "recalibration"} < {*listed}
    assert not {"engines", "forecasts", "moved", "__main__"} & {*listed}  # old or no place to look
    assert prerank.recalibration.__name__ == "prerank.recalibration"
    assert not hasattr(prerank, "nowhere")
    assert not hasattr(prerank, "__wrapped__")


COMMAND = """
from prerank.__main__ import main
main()
"""


@pytest.mark.parametrize("words", [["fit", "table.csv"], ["study", "run"], []])
def test_a_command_names_the_extra_in_one_line(words, tmp_path):
    done = run(WITHOUT_APP + COMMAND, *words, folder=tmp_path)
    command = " ".join(["prerank", *words[:1]])
    assert done.returncode == 1
    assert done.stderr == f"Error: {command} needs typer: pip install 'prerank[app]'\n"
    assert done.stdout == ""


def test_a_library_that_fails_inside_a_command_is_named_too(tmp_path):
    (tmp_path / "table.csv").write_text("x,a,b\n" + "1,2,3\n" * 30)
    missing = "import sys\nsys.modules['pyarrow'] = None\n"
    done = run(missing + COMMAND, "fit", "table.csv", "--targets=a,b", "--out=m", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "Error: prerank fit needs pyarrow: pip install 'prerank[app]'\n"


def test_the_version_needs_no_library(tmp_path):
    done = run(WITHOUT_APP + COMMAND, "--version", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"prerank {prerank.__version__}\n")


def test_the_hints_and_the_extras_agree():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    core = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    assert {"torch", "numpy", "scipy"} <= core
    assert len(core) <= 5
    for extra, names in extras._MODULES.items():
        lines = project["optional-dependencies"][extra]
        named = {re.match(r"[\w-]+", line)[0] for line in lines if not line.startswith("prerank")}
        assert named <= {extras._DISTRIBUTIONS.get(name, name) for name in names}


def test_a_decorated_function_names_its_user():
    @extras.needed_by("Diagnosis.table")
    def table():
        raise ModuleNotFoundError("No module named 'pandas.core'", name="pandas.core")

    for _ in range(2):
        with pytest.raises(
            MissingLibraryError, match=r"^Diagnosis\.table needs pandas: "
        ) as caught:
            table()
        assert isinstance(caught.value, InputError | ImportError)


def test_other_modules_that_are_missing_are_not_blamed_on_an_extra():
    with pytest.raises(ModuleNotFoundError, match="nowhere"), extras.needed_by("this"):
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")
