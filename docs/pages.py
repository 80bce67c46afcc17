"""What pages take from tables: the systems of each family, the modules of each floor, and measured figures."""

import csv
import re
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

from docstrings import indexed

from edgewise.apps.recipes import SYSTEMS

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "src" / "edgewise"
FAMILIES = {
    "A": "Networks without a graph, and how weights are trained",
    "B": "Attention and transformers",
    "C": "Attention in less than quadratic time, and memories",
    "D": "Graph networks",
    "E": "Graph transformers, encodings and pooling",
    "F": "Space: particles, molecules, images that turn",
    "G": "Tasks",
    "H": "Beyond message passing",
}


def filled(page: str) -> str:
    """A page with its marks replaced: systems, the modules of a floor, and each line that is a link to a table."""
    page = page.replace("<!-- systems -->", systems())
    page = re.sub(r"<!-- reference: (\w+) -->", lambda found: reference(found[1]), page)
    return re.sub(r"^\[.*\]\((tables/[\w-]+\.csv)\)$", lambda found: table(DOCS / found[1]), page, flags=re.MULTILINE)


def cells(path: Path) -> list[list[str]]:
    """The rows of a CSV file, the first with the names of its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        return [[cell.replace("|", "\\|") for cell in row] for row in csv.reader(file)]


def table(path: Path) -> str:
    """A CSV file as a Markdown table."""
    head, *rows = cells(path)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def systems() -> str:
    """All systems, each with a link to its section."""
    rows = [
        f"| [{row.id} {row.name}](systems/{row.id[0].lower()}.md#{row.id.lower()}) "
        f"| {indexed(row.equation).replace('|', '&#124;')} | `{row.file}` | `{row.recipe}` |"
        for row in SYSTEMS
    ]
    return "\n".join(["| system | equation | file | recipe |", "|---|---|---|---|", *rows])


def reference(floor: str) -> str:
    """A section for each module of a floor that has public names: those of the floor's `__init__`."""
    package = import_module(f"edgewise.{floor}")
    if not hasattr(package, "__path__"):
        return f"```{{eval-rst}}\n.. automodule:: {package.__name__}\n   :members:\n```"
    public: dict[str, list[str]] = {}
    for name in dir(package):
        module = getattr(getattr(package, name), "__module__", None) or ""
        if not name.startswith("_") and module.startswith(f"{package.__name__}."):
            public.setdefault(module, []).append(name)
    return "\n\n".join(
        f"## {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n   :members: {', '.join(names)}\n```"
        for module, names in sorted(public.items())
    )


def measured() -> dict[str, list[str]]:
    """The lines of the tables that begin with each recipe's name or command."""
    found: dict[str, list[str]] = {}
    for head, *rows in map(cells, sorted((DOCS / "tables").glob("*.csv"))):
        for row in rows:
            if named := re.match(r"`(?:edgewise train )?([\w-]+)", row[0]):
                told = "; ".join(map(" ".join, filter(all, zip(head[1:], row[1:], strict=True))))
                found.setdefault(named[1], []).append(f"- {row[0]}: {told}")
    return found


def write_families() -> None:
    """Write docs/systems, a page for each family, where it has changed: Sphinx then reads nothing twice."""
    folder = DOCS / "systems"
    folder.mkdir(exist_ok=True)
    figures = measured()
    for letter in sorted({row.id[0] for row in SYSTEMS}):
        parts = [f"# {FAMILIES.get(letter, letter)}", ""]
        for id_ in dict.fromkeys(row.id for row in SYSTEMS if row.id[0] == letter):
            rows = [row for row in SYSTEMS if row.id == id_]
            parts += [f"({id_.lower()})=", f"## {id_} · {' · '.join(row.name for row in rows)}", "", picture(id_)]
            for system in rows:
                module = f"edgewise.{system.file.removesuffix('.py').replace('/', '.')}"
                parts += [
                    f"### {system.name}\n" if len(rows) > 1 else "",
                    f'<div class="equation">{indexed(system.equation)}</div>\n',
                    *(shown(module, name) for name in system.code.split()),
                    f"```sh\nedgewise train {system.recipe}\n```\n",
                    *(figures.get(system.recipe) or ["- No figure of its own."]),
                    f"\n```{{literalinclude}} ../../src/edgewise/recipes/{system.recipe}.yaml\n:language: yaml\n```\n",
                ]
        path, text = folder / f"{letter.lower()}.md", "\n".join(parts)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def shown(module: str, name: str) -> str:
    """What computes a system: a link to its page in the reference, and its source."""
    file = f"../../src/{module.replace('.', '/')}.py"
    source = f"```{{literalinclude}} {file}\n:pyobject: {name}\n:language: python\n```"
    return f"{{py:obj}}`{module}.{name}`\n\n{source}\n"


def picture(id_: str) -> str:
    """The picture of a system, where there is one, with the title that it carries as its caption."""
    path = DOCS / "gallery" / "pictures" / f"{id_}.svg"
    if not path.is_file():
        return ""
    caption = ElementTree.parse(path).getroot()[0].text  # noqa: S314 (our own)
    return f"```{{figure}} ../gallery/pictures/{id_}.svg\n:figclass: picture\n:alt: {id_}\n\n{caption}\n```\n"
