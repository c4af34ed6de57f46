"""Check an installed wheel: `check_wheel.py core` without optional libraries, `app` with them."""

import json
import subprocess
import sys
from importlib import metadata, resources
from importlib.util import find_spec

# Of the extra app, without what torch itself needs.
OPTIONAL = ("matplotlib", "pandas", "pyarrow", "rich", "safetensors", "sklearn", "typer")


def prerank(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-I", "-m", "prerank", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check_package() -> None:
    """Version, type marker, and what importing the package loads."""
    import prerank as package

    loaded = {"torch", *OPTIONAL} & sys.modules.keys()
    assert not loaded, f"importing prerank also imports {', '.join(sorted(loaded))}"
    installed = metadata.version("prerank")
    assert package.__version__ == installed, (
        f"prerank.__version__ is {package.__version__}, the wheel says {installed}"
    )
    assert "site-packages" in str(package.__file__), f"not the wheel: {package.__file__}"
    assert resources.files(package).joinpath("py.typed").is_file(), "py.typed is not in the wheel"
    assert prerank("--version").stdout == f"prerank {installed}\n"


def check_core() -> None:
    """Statistics and training work, and what needs more says so in one line."""
    import torch

    import prerank as package

    present = [name for name in OPTIONAL if find_spec(name)]
    assert not present, f"the core is to be checked without {', '.join(present)}"
    loc = torch.zeros(300, 3, requires_grad=True)
    dist = torch.distributions.MultivariateNormal(loc, torch.eye(3))
    y = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    value = package.CalibrationPenalty("marginal+hdr+copula")(dist, y, generator=0)
    value.backward()
    assert value > 0
    assert bool(torch.isfinite(loc.grad).all())
    assert package.pit(dist, y, "hdr", generator=0).shape == (300, 1)
    assert package.energy_score(dist, y, generator=0).shape == (300,)
    diagnosis = package.diagnose(dist, y, generator=0)
    assert str(diagnosis.verdict())
    assert str(diagnosis)
    for name in ("adapters", "calibration", "distributions", "pits", "recalibration", "training"):
        module = getattr(package, name)
        assert all(hasattr(module, public) for public in module.__all__)
    hint = ""
    try:
        _ = package.MixtureRegressor
    except ImportError as error:
        hint = str(error) if isinstance(error, package.PrerankError) else ""
    assert hint == "prerank.MixtureRegressor needs scikit-learn: pip install 'prerank[app]'", hint
    done = prerank("fit", "table.csv", "--targets", "a,b", "--out", "model")
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert "pip install 'prerank[app]'" in done.stderr, done.stderr


def check_app() -> None:
    """The command line answers, and every name is there."""
    import prerank as package

    assert all(hasattr(package, name) for name in (*package.__all__, *dir(package)))
    done = prerank("datasets", "list", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)


if __name__ == "__main__":
    check_package()
    {"core": check_core, "app": check_app}[sys.argv[1]]()
    print(f"the wheel of prerank {metadata.version('prerank')} is in order: {sys.argv[1]}")
