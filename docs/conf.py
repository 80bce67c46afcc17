"""How Sphinx builds the documentation: `make docs`."""

import re
import sys
from pathlib import Path
from shutil import copyfile
from typing import Any

import matplotlib
from sphinx.util.logging import getLogger

from edgewise import __version__
from edgewise.apps.command.explore import explore

sys.path.insert(0, str(Path(__file__).parent))

from book import table, write_pages
from charts import filled as with_chart
from offline import check
from reference import filled

project = "Edgewise"
author = copyright = "The Edgewise authors"  # noqa: A001 (Sphinx's name)
release = version = __version__
html_title = f"Edgewise {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "docstrings"]
exclude_patterns = ["_build", "gallery"]
nitpicky = False

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["book.css"]
myst_heading_anchors = 3

toc_object_entries = False  # every name of the reference in every page's navigation took minutes
viewcode_follow_imported_members = False  # or a decorated function's source leads back to its decorator's module
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "forward, example, load_state_dict"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True


def fill_table(app: Any, page: str, source: list[str]) -> None:
    source[0] = re.sub(r"<!-- systems -->", lambda _: table(), with_chart(filled(source[0])))


def add_font(app: Any, error: Exception | None) -> None:
    """Equations look alike everywhere: the font comes with matplotlib."""
    font = Path(matplotlib.get_data_path(), "fonts", "ttf", "STIXGeneral.ttf")
    if error is None and app.builder.format == "html":
        copyfile(font, app.outdir / "_static" / "equations.ttf")


def write_explorer(app: Any) -> None:
    """The explorer's page, to which docs/explorer.md links: first, as autodoc changes defaults of what it reads."""
    if app.builder.format == "html":
        explore(None, str(Path(app.outdir) / "explorer-page.html"), None)


def check_pages(app: Any, error: Exception | None) -> None:
    """A link that leads nowhere, or a request to another machine, is a warning, and so an error."""
    if error is None and app.builder.format == "html":
        for problem in check(Path(app.outdir)):
            getLogger(__name__).warning(problem)


write_pages()


def setup(app: Any) -> None:
    app.connect("builder-inited", write_explorer)
    app.connect("build-finished", add_font)
    app.connect("build-finished", check_pages, priority=900)
    app.connect("source-read", fill_table)
