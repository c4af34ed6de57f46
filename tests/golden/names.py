"""Public names: what the reference lists, and where each name is imported from."""

import importlib
import re
import warnings
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
_DIRECTIVE = re.compile(r"^```\{public-names\} (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def make_names():
    """Collect `__all__` of every module of the reference, and the classes that it adds."""
    modules, classes = {}, []
    for page in sorted(REFERENCE.glob("*.md")):
        for module, body in _DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            modules[module] = sorted(importlib.import_module(module).__all__)
            classes += body.split()
    return {"modules": modules, "classes": sorted(classes)}


def imported(dotted):
    """Import an attribute from the module that its dotted name gives; warnings are allowed."""
    module, _, name = dotted.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module(module), name)
