"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import prerank

sys.path.insert(0, str(Path(__file__).parent))

project = "prerank"
author = "the prerank developers"
version = release = prerank.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "extensions.mathml",
    "extensions.names",
    "sphinx_gallery.gen_gallery",
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

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "",  # every script is run
    "ignore_pattern": "lightning",  # which is not among the locked libraries
    "within_subsection_order": ExplicitOrder(
        f"{name}.py"
        for name in (
            "weather_stations",
            "energy_load",
            "house_prices",
            "births",
            "posterior",
            "flow",
            "ensemble_repaired",
            "monitoring",
            "own_loop",
            "real_data",
        )
    ),
    "capture_repr": (),  # what is shown is what is printed
    "reset_modules": ("matplotlib", "extensions.strictness.strict"),
    "reset_modules_order": "both",
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1e6,  # times are those of a busy machine
}
