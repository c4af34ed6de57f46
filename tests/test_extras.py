"""The core works alone, every package can be reached, and a missing library is named."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import prerank
from prerank import adapters, datasets, extras, files, report, study, training
from prerank.calibration import pit_histogram, reliability_band, reliability_curve
from prerank.errors import InputError, MissingLibraryError
from prerank.study import published_runs
from prerank.training.selection import Selection

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


DECIDE = """
from prerank.calibration import DeviationShape
from prerank.calibration.decision import decide
from prerank.calibration.evidence import Evidence, Part
assert not any(name.startswith(("prerank.report", "prerank.diagnosis")) for name in sys.modules)
part = Part("rain", 0.1, 1e-4, DeviationShape(True, 0, 1))
assert decide([Evidence("marginal", 0.1, 0.01, 1e-4, (part,))], n=500).status == "bad"
"""

DIAGNOSE = """
import torch
from torch.distributions import MultivariateNormal

y = 2 * torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
dist = MultivariateNormal(torch.zeros(300, 3), torch.eye(3))
diagnosis = prerank.diagnose(dist, y)
assert diagnosis.findings[0].prerank == "marginal"
verdict = diagnosis.verdict()
assert verdict.status == "bad", verdict
assert "predictions too narrow in every target" in str(verdict)
assert "Units: original." in verdict.points
groups = prerank.diagnosis.diagnose_by(dist, y, ["a", "b"] * 150, preranks="marginal")
assert groups.verdict().status == "bad"
print(diagnosis, end="\\0")
"""

REACH = """
for name in dir(prerank):
    try:
        getattr(prerank, name)
    except prerank.PrerankError as error:
        print(error)
"""


def test_the_core_works_without_the_app(tmp_path):
    """Decisions are plain data, verdicts need no plots and no tables, and packages are reached."""
    done = run(WITHOUT_APP + DECIDE + DIAGNOSE + REACH, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    told, _, errors = done.stdout.partition("\0")
    lines = told.splitlines()
    assert lines[0].startswith("Strongly miscalibrated: predictions too narrow")
    assert any(line.split()[:2] == ["prerank", "component"] for line in lines)
    hints = set(errors.splitlines())
    for name in ("MixtureRegressor", "FlowRegressor", "load_model", "estimators"):
        hints.remove(f"prerank.{name} needs scikit-learn: pip install 'prerank[app]'")
    assert hints == {"prerank.cli needs typer: pip install 'prerank[app]'"}


def test_the_names_of_the_root_and_the_packages_are_listed():
    listed = dir(prerank)
    assert listed == sorted(set(listed))
    assert {*prerank.__all__, "training", "datasets", "files", "study", "recalibration"} < {*listed}
    hidden = {"engines", "forecasts", "interrupts", "lazy_names", "moved", "waiting", "__main__"}
    assert not hidden & {*listed}  # old or no place to look
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
        assert isinstance(caught.value, InputError)
        assert isinstance(caught.value, ImportError)


def forecast():
    return prerank.Ensemble(torch.randn(9, 40, 2)), torch.randn(40, 2)


def diagnosis():
    return prerank.diagnose(*forecast())


def diagnosis_of_groups():
    return prerank.diagnosis.diagnose_by(*forecast(), ["a", "b"] * 20, preranks="marginal")


def curve():
    z = torch.rand(40, 1)
    return report.ReliabilityDisplay(reliability_curve(z), reliability_band(40))


def histogram():
    return report.PITHistogramDisplay(pit_histogram(torch.rand(40, 1)), None)


def plan():
    one = {"datasets": ("ar1",), "variants": ("none",), "seeds": (0,), "hidden": (4,)}
    settings = training.Settings(lr=1e-2, batch_size=256, max_epochs=1)
    return study.Plan("tiny", **one, n_components=1, n_samples=10, n_null=9, training=settings)


def table():
    x, y = (torch.zeros(2, 1).numpy() for _ in range(2))
    return datasets.Table("rivers", x, y, ("a",), ("b",))


def tensors(folder):
    path = folder / "kept"
    path.touch()
    return path


TENSORS = {"theta": torch.ones(2)}

# Whoever is called: the library that is missing, its extra, and the call, given a folder.
USERS = {
    "Diagnosis.table": ("pandas", "app", lambda f: diagnosis().table),
    "Diagnosis.plot": ("matplotlib", "app", lambda f: diagnosis().plot()),
    "Diagnosis.to_html": ("jinja2", "app", lambda f: diagnosis().to_html(f / "page.html")),
    "GroupedDiagnosis.table": ("pandas", "app", lambda f: diagnosis_of_groups().table),
    "ReliabilityDisplay.plot": ("matplotlib", "app", lambda f: curve().plot()),
    "ReliabilityGrid.plot": (
        *("matplotlib", "app"),
        lambda f: report.ReliabilityGrid({"one": [curve()]}).plot(),
    ),
    "PITHistogramDisplay.plot": ("matplotlib", "app", lambda f: histogram().plot()),
    "read_forecasts": (
        *("pyarrow", "app"),
        lambda f: files.read_forecasts(f / "table.csv", None),
    ),
    "read_forecasts of a store": (
        *("zarr", "netcdf"),
        lambda f: files.read_forecasts(f / "s.zarr", None),
    ),
    "read_samples": (
        *("pyarrow", "app"),
        lambda f: files.read_samples(f / "table.csv", "a"),
    ),
    "write_samples": (
        *("pyarrow", "app"),
        lambda f: files.write_samples(f / "s.parquet", [[1.0], [2.0]], ["rain"]),
    ),
    "write_tensors": ("safetensors", "app", lambda f: files.write_tensors(f / "t", TENSORS, {})),
    "read_tensors": ("safetensors", "app", lambda f: files.read_tensors(tensors(f))),
    "CheckpointFile.save": (
        *("safetensors", "app"),
        lambda f: files.CheckpointFile(f / "run").save(TENSORS, {}),
    ),
    "CheckpointFile.load": (
        *("safetensors", "app"),
        lambda f: files.CheckpointFile(tensors(f)).load(),
    ),
    "CalibrationHead.load": (
        *("safetensors", "app"),
        prerank.CalibrationHead.load,
    ),
    "load_table": ("pyarrow", "app", lambda f: datasets.load_table("air", f)),
    "save_table": ("pyarrow", "app", lambda f: datasets.save_table(table(), f)),
    "import_table": ("pyarrow", "app", lambda f: datasets.import_table(f / "table.csv", "a", f)),
    "fetch": ("pyarrow", "app", lambda f: datasets.fetch("air", f)),
    "from_pandas": ("pandas", "app", lambda f: adapters.from_pandas(None, None)),
    "from_xarray": ("xarray", "netcdf", lambda f: adapters.from_xarray(None, None)),
    "from_xarray without pandas": ("pandas", "app", lambda f: adapters.from_xarray(None, None)),
    "Selection.table": ("pandas", "app", lambda f: Selection(None, "", (), 0.1).table),
    "run_study": ("pandas", "app", lambda f: study.run_study(plan(), f / "study")),
    "published_cells": ("pandas", "app", lambda f: study.published_cells()),
}


@pytest.mark.parametrize("case", USERS)
def test_whoever_needs_a_missing_library_names_it(case, monkeypatch, tmp_path):
    library, extra, use = USERS[case]
    (tmp_path / "table.csv").write_text("x,a\n1,2\n")
    (tmp_path / "s.zarr").mkdir()
    (tmp_path / "air.parquet").write_bytes(b"PAR1")
    published_runs._read.cache_clear()
    for module in [m for m in sys.modules if m.partition(".")[0] == library] + [library]:
        monkeypatch.setitem(sys.modules, module, None)  # Python's own sign, as above
    name = case.partition(" ")[0]
    hint = rf"^{re.escape(name)} needs {library}: pip install 'prerank\[{extra}\]'$"
    with pytest.raises(MissingLibraryError, match=hint):
        use(tmp_path)


def test_other_modules_that_are_missing_are_not_blamed_on_an_extra():
    with pytest.raises(ModuleNotFoundError, match="nowhere"), extras.needed_by("this"):
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")
