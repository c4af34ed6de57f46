"""Formulas as MathML, which browsers draw themselves: no script, and nothing to download."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

__all__ = ["setup"]

# What LaTeX understands and docutils does not, in its own words.
_WORDS = {r"\\dots\b": r"\\ldots", r"\\(big|Big)(?![a-zA-Z])": r"\\\1l"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_markup(node))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_markup(node)}</div>')
    raise nodes.SkipNode


def _markup(node: nodes.math | nodes.math_block) -> str:
    text = node.astext()
    for word, known in _WORDS.items():
        text = re.sub(word, known, text)
    try:
        return str(tex2mathml(text, as_block=isinstance(node, nodes.math_block)))
    except MathError as error:
        raise ExtensionError(f"cannot set the formula {text!r}: {error}") from error
