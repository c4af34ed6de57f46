"""What the package offers, and that importing it does nothing else."""

import importlib.util
import inspect
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import prerank

SOURCE = Path(prerank.__file__).parents[1]
MODULES = ["prerank"] + [
    module.name
    for module in pkgutil.walk_packages(prerank.__path__, "prerank.")
    if not module.name.endswith("__main__")
    and module.name not in ("prerank.engines", "prerank.forecasts", "prerank.report.verdicts")
    # Kernels need Triton, which is not there without a GPU.
    and (
        not module.name.startswith("prerank.numerics.kernels.")
        or importlib.util.find_spec("triton")
    )
]


def test_names_are_sorted_and_there():
    assert prerank.__all__ == sorted(prerank.__all__)
    assert len(set(prerank.__all__)) == len(prerank.__all__)
    for name in prerank.__all__:
        assert hasattr(prerank, name)


def test_the_design_is_kept():
    promised = ["GaussianMixture", "Ensemble", "pit", "pce", "pce_floor", "diagnose"]
    promised += ["energy_score", "PrerankError"]
    assert set(promised) <= set(prerank.__all__)
    assert "Marginal" not in prerank.__all__  # pre-rank classes live in prerank.preranks
    assert "Marginal" in prerank.preranks.__all__


def test_every_public_name_is_documented():
    assert len(MODULES) > 100
    for name in MODULES:
        module = importlib.import_module(name)
        assert (module.__doc__ or "").strip(), name
        assert module.__all__, name
        assert len(set(module.__all__)) == len(module.__all__), name
        for public in module.__all__:
            item = getattr(module, public)
            if inspect.isclass(item) or inspect.isroutine(item):
                assert inspect.getdoc(item), f"{name}.{public} has no docstring"
            if inspect.isclass(item):
                assert item.__doc__, f"{name}.{public} only inherits its docstring"
                for method, value in vars(item).items():
                    if not method.startswith("_") and (
                        inspect.isroutine(value) or isinstance(value, property)
                    ):
                        assert inspect.getdoc(value), f"{name}.{public}.{method} has no docstring"


SCORING = ["pit", "smooth_pit", "diagnose", "diagnose_where", "nll", "energy_score"]
SCORING += ["variogram_score", "crps"]


@pytest.mark.parametrize("name", SCORING)
def test_arguments_are_dist_and_y_and_then_keywords(name):
    parameters = list(inspect.signature(getattr(prerank, name)).parameters.values())
    assert [p.name for p in parameters[:2]] == ["dist", "y"]
    free = 3 if name in ("pit", "smooth_pit", "diagnose_where") else 2
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[free:])
    for parameter in parameters:
        assert parameter.annotation is not parameter.empty


IMPORT = """
import json, os, random, sys
import numpy as np, torch
from torch.distributions import Distribution
def state():
    return [
        str(torch.get_default_dtype()), torch.get_rng_state().tolist(), Distribution._validate_args,
        str(np.random.get_state()), str(random.getstate()), torch.is_grad_enabled(),
        torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), np.geterr(),
        dict(os.environ),
    ]
before = state()
import prerank
prerank.diagnose  # rooms are entered when they are first asked for
unchanged, loaded = before == state(), sorted(sys.modules)
import prerank.report, prerank.report.html
print(json.dumps([unchanged, loaded, sorted(sys.modules)]))
"""


def test_importing_changes_nothing_and_loads_little(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    unchanged, modules, of_reports = json.loads(done.stdout)
    assert unchanged
    assert "prerank.diagnosis" in modules
    heavy = {"sklearn", "matplotlib", "pandas", "pyarrow", "rich", "typer", "scoringrules", "ray"}
    heavy |= {"scipy.stats", "scipy.signal"}
    assert heavy & set(modules) == set()
    assert "prerank.cli" not in modules
    assert {"matplotlib", "pandas", "jinja2"} & set(of_reports) == set()


def test_old_names_warn_and_still_work():
    penalty = importlib.import_module("prerank.penalty")
    with pytest.warns(DeprecationWarning, match=r"prerank\.penalty\.Tally .* LevelCounts"):
        assert penalty.Tally is penalty.LevelCounts
    with pytest.raises(AttributeError, match="has no attribute 'nowhere'"):
        _ = penalty.nowhere
    dist, y = prerank.Ensemble(torch.randn(9, 20, 2)), torch.randn(20, 2)
    terms = prerank.preranks.parse("marginal")
    [new] = prerank.pits.project_pits(dist, y, terms, generator=0, with_null_pits=True)
    with pytest.warns(DeprecationWarning, match="with_stand_ins is deprecated"):
        [old] = prerank.pits.project_pits(dist, y, terms, generator=0, with_stand_ins=True)
    with pytest.warns(DeprecationWarning, match="stand_ins is deprecated: use null_pits"):
        assert torch.equal(old.stand_ins, new.null_pits)
    with pytest.warns(DeprecationWarning, match=r"prerank\.models\.FlowLaw .* FlowDistribution"):
        assert prerank.models.FlowLaw is prerank.models.FlowDistribution
    with pytest.warns(DeprecationWarning, match=r"Verdict\(mood=.* use status"):
        verdict = prerank.diagnosis.Verdict(mood="good", headline="", points=(), advice=())
    assert verdict.status == "good"
    found = prerank.datasets.acquisition.Imported("a", Path("a"), 1, (), (), {}, 0, 0, False, "no")
    with pytest.warns(DeprecationWarning, match=r"Imported\.departure .* use mismatch"):
        assert found.departure == "no"


def test_the_former_name_of_the_distribution_of_a_flow():
    pytest.importorskip("zuko")
    network = prerank.models.FlowNetwork(1, 2, hidden=(4,))
    theta, x = torch.zeros(network.n_parameters), torch.zeros(3, 1)
    with pytest.warns(DeprecationWarning, match=r"FlowNetwork\.law .* use distribution"):
        assert network.law(theta, x).batch_shape == (3,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("prerank.engines", "prerank.study.engines"),
        ("prerank.forecasts", "prerank.files"),
        ("prerank.report.verdicts", "prerank.diagnosis.verdict"),
    ],
)
def test_all_names_of_a_module_that_has_moved(old, new):
    found = {}
    with pytest.warns(DeprecationWarning, match=rf"{old} is deprecated: import \w+ from {new}"):
        exec(f"from {old} import *", found)
    module = importlib.import_module(new)
    names = importlib.import_module(old).__all__
    assert {name: found[name] for name in names} == {name: getattr(module, name) for name in names}
    assert not {"forward", "_forward"} & found.keys()
