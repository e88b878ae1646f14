"""How Sphinx makes the site: ``make docs`` writes build/docs from the pages of this folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]  # the code that is documented; gallery.py

project = "batchscale"
author = "The batchscale developers"
copyright = "The batchscale developers, Apache 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["README.md"]  # the folder's index for a code host; the site has its own
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4
highlight_language = "none"
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 78
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "batchscale"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

_TITLED = re.compile(r"^```(\w+) ([\w.-]+\.\w+)$", re.MULTILINE)
_NAMED = re.compile(r"\[([\w-]+\.md)\]\(((?:[\w.]+/)?\1)\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_PER_CENT = re.compile(r"(?<=\d) %")
_SITE_ALONE = re.compile(r"<!-- site: (.*?) -->", re.DOTALL)


_COLON = "\ue000"


def for_the_site(app: Sphinx, name: str, source: list[str]) -> None:
    """What Markdown on a code host has no word for: a code block's file name becomes its caption, a
    link that is called as its file gets the page's title, a number keeps its per cent sign, and
    ``<!-- site: … -->`` is shown."""
    del app, name
    text = _TITLED.sub(r"```{code-block} \1\n:caption: \2", source[0])
    text = _NAMED.sub(r"[](\2)", text)
    parts = _FENCED.split(text)
    parts[::2] = [_PER_CENT.sub("\u00a0%", part) for part in parts[::2]]
    text = "".join(parts)
    source[0] = _SITE_ALONE.sub(r"\1", text)


def hide_colon(app: Sphinx, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Napoleon takes what stands before the first colon of an attribute's text for its type."""
    del app, name, of, options
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(":", _COLON)


def show_colon(app: Sphinx, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """After Napoleon."""
    del app, what, name, of, options
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def make_reports(app: Sphinx, error: Exception | None) -> None:
    """The reports of the gallery, which are pages of their own beside the site's."""
    if error is None and app.builder.format == "html":
        import gallery

        for entry in gallery.entries(gallery.sections()):
            if entry.is_report:
                gallery.make(entry, Path(app.outdir, "gallery"))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", for_the_site)
    app.connect("autodoc-process-docstring", hide_colon, priority=100)
    app.connect("autodoc-process-docstring", show_colon, priority=900)
    app.connect("build-finished", make_reports)
