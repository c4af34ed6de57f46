"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path

import prerank

sys.path.insert(0, str(Path(__file__).parent))

project = "prerank"
author = "the prerank developers"
version = release = prerank.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "extensions.examples",
    "extensions.mathml",
    "extensions.names",
]
default_role = "code"  # what single backticks are in the docstrings
nitpicky = True
# Other libraries are named in signatures and not linked: a build needs no internet.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!prerank\b).*"),
    # What `predictive_region` makes its regions of.
    (r"py:class", r"prerank\.recalibration\.conformal_scores\..*"),
]

html_theme = "furo"
html_title = f"prerank {release}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["dollarmath", "deflist", "attrs_block"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # types stand in the signatures
