"""How Sphinx builds the documentation: `make docs`."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.util.logging import getLogger

from edgewise import __version__
from edgewise.apps.explorer.page import explore

sys.path.insert(0, str(Path(__file__).parent))

from pages import filled, write_families

project = "Edgewise"
author = copyright = "The Edgewise authors"  # noqa: A001 (Sphinx's name)
release = version = __version__
html_title = f"Edgewise {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "docstrings"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["book.css"]
myst_heading_anchors = 3

toc_object_entries = False  # every name of the reference in every page's navigation took minutes
viewcode_follow_imported_members = False  # or a decorated function's source leads back to its decorator's module
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "forward, example, load_state_dict"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

ANNOTATED = re.compile(r"(?:typing\.)?Annotated\[([^][,]+(?:\[[^][]*\])?), [^][]*\]")
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\ssrc=\"(?:https?:)?//|<link\b[^>]*\shref=\"(?:https?:)?//")


def fill(app: Any, page: str, source: list[str]) -> None:
    source[0] = filled(source[0])


def plain_signature(app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: Any) -> Any:
    """Types without the bounds that they are annotated with."""
    return (ANNOTATED.sub(r"\1", signature), returns) if signature else None


def write_explorer(app: Any) -> None:
    """The explorer's page, to which docs/explorer.md links: first, as autodoc changes defaults of what it reads."""
    if app.builder.format == "html":
        explore(None, str(Path(app.outdir) / "explorer-page.html"), None)


def check_offline(app: Any, error: Exception | None) -> None:
    """A page that asks another machine for a part of itself is a warning, and so an error."""
    for path in Path(app.outdir).rglob("*.html") if error is None else ():
        for found in LOADED.findall(path.read_text(encoding="utf-8")):
            getLogger(__name__).warning("%s loads %s", path, found)


write_families()


def setup(app: Any) -> None:
    app.connect("builder-inited", write_explorer)
    app.connect("source-read", fill)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("build-finished", check_offline, priority=900)
