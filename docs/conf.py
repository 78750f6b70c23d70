"""The documentation as a site: pages, the gallery, which is run, and the reference from docstrings.

Built by `scripts/site.sh`. The source folder is the repository's, so that links between pages, tables and the README hold
as they do when these are read as files.
"""

import logging

import mosaicdd

logging.getLogger("mosaicdd").setLevel(logging.WARNING)

project = "mosaicdd"
version = release = mosaicdd.__version__
root_doc = "docs/index"
include_patterns = ["docs/**", "benchmarks/**.md", "data/README.md", "README.md"]
exclude_patterns = ["docs/gallery/**", "docs/conf.py"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]

myst_heading_anchors = 3
highlight_language = "none"
default_role = "literal"  # of a single backtick in docstrings
suppress_warnings = ["toc.not_included"]  # tables are reached by links
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_ivar = True

sphinx_gallery_conf = {
    "examples_dirs": "docs/gallery",
    "gallery_dirs": "docs/gallery_built",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    "remove_config_comments": True,
}

html_theme = "furo"
html_title = "mosaicdd"
html_show_sphinx = False


def setup(app) -> None:
    """Let drawings that docstrings fence, as the pages do, be blocks of reStructuredText."""
    app.connect("autodoc-process-docstring", _unfenced)


def _unfenced(app, what, name, obj, options, lines: list[str]) -> None:
    inside, text = False, []
    for line in lines:
        if line.strip().startswith("```"):
            text += ["", "::", ""] if not inside else [""]
            inside = not inside
        else:
            text.append(f"    {line}" if inside else line)
    lines[:] = text
