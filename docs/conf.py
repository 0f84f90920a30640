"""The site: ``sphinx-build -W docs site`` (extra ``docs``). Tutorials are run and their plots drawn by the build."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from notebooks import FIRST_CELL  # noqa: E402

import fwnkf  # noqa: E402

project = "fwnkf"
author = "The fwnkf authors"
version = release = fwnkf.__version__
copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "repository_pages",
    "notebooks",
    "versions",
]
templates_path = ["_templates"]
exclude_patterns = ["_ext", "_static", "_templates", "tutorials", "notebooks"]

html_theme = "furo"
html_title = f"fwnkf {version}"
html_static_path = ["_static"]
html_css_files = ["plots.css", "badges.css", "tables.css"]
html_js_files = [("tables.js", {"defer": "defer"})]
# Those of the theme, with the menu of versions below the name.
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_show_sourcelink = False
html_copy_source = False

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "_tutorials",
    "filename_pattern": r"\.py$",
    "image_scrapers": ("svg_figures.scrape",),
    "reset_modules": (),
    "capture_repr": (),
    "min_reported_time": 1e6,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": r"^$",
    "first_notebook_cell": FIRST_CELL,
    "abort_on_example_error": True,
}
