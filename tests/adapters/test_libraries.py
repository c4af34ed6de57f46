"""Nothing is imported before it is needed, and what is missing is named."""

import json
import subprocess
import sys
from importlib import util

import pytest
import torch

from prerank import adapters
from prerank.errors import InputError, PrerankError
from prerank.extras import library

LIBRARIES = ["ngboost", "sbi", "skpro", "zuko", "xarray", "lightning", "gluonts", "darts", "arviz"]

# Importing zuko switches torch's checks off: the import has to happen in a new process to be seen.
SCRIPT = """
import json, sys
import torch
from torch.distributions import Distribution
import prerank.adapters, prerank.models
from prerank.extras import library
from prerank.inputs import as_tensor, column_names

column_names(torch.zeros(3, 2), 2), as_tensor([[1.0]], "y")
print(json.dumps(sorted(sys.modules)))
before = Distribution._validate_args
for use in (lambda: library("zuko", "a test").flows.NSF, lambda: prerank.models.FlowNetwork(2, 2)):
    for name in [name for name in sys.modules if name.startswith("zuko")]:
        del sys.modules[name]  # so that it is imported once more
    use()
    assert "zuko" in sys.modules and Distribution._validate_args == before
"""


def test_importing_loads_no_other_library_and_torch_keeps_its_checks():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120
    )
    loaded = set(json.loads(done.stdout))
    assert {"prerank.adapters.sbi", "prerank.models"} <= loaded
    assert not {name.partition(".")[0] for name in loaded} & {
        *LIBRARIES,
        *("pandas", "matplotlib", "sklearn"),
    }


FUNCTIONS = {
    "ngboost": (adapters.from_ngboost, "adapters"),
    "sbi": (lambda value: adapters.from_sbi(value, torch.zeros(3, 1)), "adapters"),
    "skpro": (adapters.from_skpro, "skpro"),
    "zuko": (adapters.from_zuko, "flows"),
    "xarray": (lambda value: adapters.from_xarray(value, value), "netcdf"),
    "gluonts": (lambda value: adapters.from_gluonts([value], [value]), "forecasts"),
    "darts": (lambda value: adapters.from_darts([value], [value]), "forecasts"),
}
by_library = pytest.mark.parametrize("name", FUNCTIONS)


@by_library
def test_a_missing_library_is_named_with_its_extra(name, monkeypatch):
    # None is Python's own sign for a module that is not there.
    for module in {name, *(m for m in sys.modules if m.startswith(f"{name}."))}:
        monkeypatch.setitem(sys.modules, module, None)
    function, extra = FUNCTIONS[name]
    hint = rf"^from_{name} needs {name}: pip install 'prerank\[{extra}\]'$"
    with pytest.raises(InputError, match=hint) as caught:
        function(object())
    assert isinstance(caught.value, ImportError)


@by_library
def test_an_object_of_another_kind_is_refused(name):
    if util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    with pytest.raises(TypeError, match=r"must be .*, got builtins\.object") as caught:
        FUNCTIONS[name][0](object())
    assert isinstance(caught.value, PrerankError)


def test_a_library_that_lacks_something_itself_is_not_blamed(tmp_path, monkeypatch):
    (tmp_path / "halfway.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        library("halfway", "a test")
