"""The public names of a module, from its `__all__`: a new name appears by itself.

A name that the package itself exports too is described on the page of the package alone, and linked
to from the other.
"""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import prerank

__all__ = ["PublicNames", "described_at", "setup"]


def described_at(module: ModuleType, name: str) -> str:
    """Full name under which a public name is described."""
    shared = name in prerank.__all__ and getattr(prerank, name) is getattr(module, name)
    return f"prerank.{name}" if shared else f"{module.__name__}.{name}"


class PublicNames(SphinxDirective):
    """`{public-names} prerank.calibration`: all that is in its `__all__`.

    Lines of content name more: classes that no one makes by hand, but which public ones take or
    give.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Hand the names to autodoc."""
        module = importlib.import_module(self.arguments[0])
        lines = [f".. py:module:: {module.__name__}", ""]
        elsewhere = []
        for name in module.__all__:
            value, place = getattr(module, name), described_at(module, name)
            if inspect.ismodule(value):
                elsewhere.append(f":py:mod:`{value.__name__}`")
            elif place != f"{module.__name__}.{name}":
                elsewhere.append(f":py:obj:`{place}`")
            else:
                lines += _directive(place, value, module)
        for place in self.content:
            lines += [f".. autoclass:: {place}", "   :members:", ""]
        if elsewhere:
            lines += ["", f"Also here: {', '.join(elsewhere)}.", ""]
        # The docstrings are reStructuredText, the pages are not.
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def _directive(place: str, value: object, module: ModuleType) -> list[str]:
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        bases = [] if value.__bases__ == (object,) else ["   :show-inheritance:"]
        return [f".. {kind}:: {place}", "   :members:", *bases, ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {place}", ""]
    name = place.rpartition(".")[2]
    text = _constant_docs(module, name)
    return [f".. py:data:: {name}", "", *(f"   {line}" for line in text), ""]


def _constant_docs(module: ModuleType, name: str) -> list[str]:
    """The text below a constant, in the module that defines it: a value has none of its own."""
    for inner in sorted(sys.modules, key=lambda inner: not inner.startswith(module.__name__)):
        if inner.partition(".")[0] == "prerank":
            found = ModuleAnalyzer.for_module(inner).find_attr_docs().get(("", name))
            if found:
                return found
    raise ExtensionError(f"{module.__name__}.{name} has no text: write one below it")


def _skip(
    _app: Sphinx, _kind: str, _name: str, value: object, _skip: bool, _options: object
) -> Any:
    """Leave out what others write into our classes: scikit-learn, and fields of named tuples."""
    theirs = str(getattr(value, "__module__", "")).startswith("sklearn")
    return True if theirs or type(value).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
