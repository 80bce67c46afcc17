"""A page for each system and a gallery, from the table of systems, the docstrings, docs/results.md and pictures."""

import ast
import re
from pathlib import Path
from textwrap import dedent

from docstrings import rewrite
from equations import display, typeset

from edgewise.apps import recipes
from edgewise.apps.systems import SYSTEMS, System

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "src" / "edgewise"
PICTURES = DOCS / "gallery" / "pictures"
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
# What of a file a page shows, where it is not the first class or function with an equation.
SHOWN = {
    "Multi-head scaled dot-product attention": "MultiHeadAttention",
    "Transformer block, pre/post-norm": "PreNormBlock",
    "Positions: relative": "T5Attention",
    "Reformer (LSH attention)": "LSHAttention",
    "Routing Transformer": "RoutingAttention",
    "Sinkhorn Transformer": "SinkhornAttention",
    "Performer FAVOR+": "PerformerAttention",
    "Hopfield networks, pooling": "HopfieldPooling",
    "Message passing": "collect",
    "Fine-tuning (BERT, RoBERTa)": "BERT",
    "Graph convolution (GCN)": "GCN",
    "FastGCN: importance sampling": "FastGCN",
    "GATv2": "GATv2",
    "Dynamic EdgeConv (DGCNN)": "DynamicEdgeConv",
    "EdgeConv": "EdgeConv",
    "MoNet": "MoNet",
    "Masked tokens of texts, then their classes": "DocumentClassification",
    "Full graph network": "GraphNetwork",
    "Over-smoothing, PairNorm": "PairNorm",
    "Kernel graph attention (GraphiT)": "KernelAttention",
    "Hadamard graph attention": "HadamardAttention",
    "Random-walk encoding": "RandomWalkEncoding",
    "Graphormer": "GraphormerAttention",
    "Min-cut pooling": "min_cut_pool",
    "Whole slides": "SlideClassification",
    "E(n)-equivariant GNN (EGNN)": "EGNN",
    "SE(3)-Transformer": "SE3Attention",
    "Group convolution (p4, p4m)": "GroupConvolution",
    "Graph network simulator (GNS)": "Simulator",
    "Link prediction: graph auto-encoder, variational": "LinkPrediction",
    "Graph auto-encoder of whole graphs": "GraphAutoencoder",
    "Language modelling": "Text",
    "Sequence classification": "ListOps",
    "Constant-rate SGD": "ConstantSGD",
    "Pre-training, then fine-tuning": "take_over",
    "Explanation: per edge and node, with fidelity": "explain",
    "Networks on pairs (PPGN, 2-FWL)": "PPGN",
    "Networks on subgraphs (I²-GNN)": "I2GNN",
}
Node = ast.ClassDef | ast.FunctionDef


def pages() -> dict[str, str]:
    """The text of each page of docs/systems, by its name."""
    found = {row.id: [other for other in SYSTEMS if other.id == row.id] for row in SYSTEMS}
    made = {id_.lower(): system_page(id_, rows) for id_, rows in found.items()}
    return made | {"gallery": gallery(found)}


def write_pages() -> None:
    """Write what has changed, so that Sphinx reads nothing twice."""
    folder = DOCS / "systems"
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def system_page(id_: str, rows: list[System]) -> str:
    title = rows[0].name if len(rows) == 1 else " · ".join(dict.fromkeys(row.name for row in rows))
    picture = (PICTURES / f"{id_}.svg").read_text(encoding="utf-8")
    caption = re.search(r"<title>(.*?)</title>", picture, re.DOTALL)
    assert caption
    parts = [
        f"# {id_} · {title}",
        "",
        f"{recipes.read(rows[0].recipe).description}.",
        raw(f'<figure class="picture">{picture}<figcaption>{caption[1]}</figcaption></figure>'),
        f"`python docs/gallery/draw.py {id_}` draws the picture anew.\n",
    ]
    for row in rows:
        if len(rows) > 1:
            parts.append(f"## {row.name}")
        parts.append(section(row, "###" if len(rows) > 1 else "##"))
    return "\n".join([*parts, ""])


def section(row: System, mark: str) -> str:
    node, module = shown(row)
    doc = (ast.get_docstring(node) if node is not None else None) or ast.get_docstring(module) or ""
    lines = doc.split("\n")
    rewrite(lines)
    name = node.name if node is not None else Path(row.file).stem
    own = "Equation" not in doc
    page = row.file.split("/")[0]
    return "\n".join(
        [
            f"{mark} In one line",
            raw(display([row.equation])),
            f"{mark} `{name}`" if own or node is not None else "",
            "```{eval-rst}\n" + "\n".join(lines) + "\n```",
            f"{mark} The code",
            f"From `src/edgewise/{row.file}`"
            + (
                f"; all of it is in the [reference](../api/{page}.md)."
                if (DOCS / "api" / f"{page}.md").exists()
                else "."
            ),
            "",
            f"```python\n{code(node, module, row)}\n```",
            f"{mark} The recipe",
            f"```sh\nedgewise train {row.recipe}\n```",
            "",
            f"```yaml\n{(PACKAGE / 'recipes' / f'{row.recipe}.yaml').read_text(encoding='utf-8').rstrip()}\n```",
            "",
            "What to change for other data, or your own: [your data](../your-data.md#a-recipe-on-other-data).",
            f"{mark} What it reaches",
            figures(row.recipe),
            "",
        ]
    )


def shown(row: System) -> tuple[Node | None, ast.Module]:
    """The class or function that is the system, and the module that it is in."""
    module = ast.parse((PACKAGE / row.file).read_text(encoding="utf-8"))
    nodes = [node for node in module.body if isinstance(node, Node) and not node.name.startswith("_")]
    wanted = [node for node in nodes if node.name == SHOWN.get(row.name)]
    if wanted:
        return wanted[-1], module  # the last of several overloads
    if row.name in SHOWN:
        raise KeyError(f"{row.file} has no {SHOWN[row.name]}, which docs/book.py shows for {row.name}")
    return next(
        (node for node in nodes if re.search("^Equation", ast.get_docstring(node) or "", re.MULTILINE)), None
    ), module


def code(node: Node | None, module: ast.Module, row: System) -> str:
    """The method that computes the equation, or the whole function, without its docstring."""
    source = (PACKAGE / row.file).read_text(encoding="utf-8")
    if isinstance(node, ast.ClassDef):
        wanted = ("forward", "update", "score", "step", "loss", "after", "factors", "sample", "filter")
        methods = {child.name: child for child in node.body if isinstance(child, ast.FunctionDef)}
        chosen: Node = next((methods[name] for name in wanted if name in methods), node)
    else:
        chosen = node or next(child for child in reversed(module.body) if isinstance(child, Node))
    lines = source.split("\n")[chosen.lineno - 1 : chosen.end_lineno]
    first = chosen.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.end_lineno is not None:
        start = first.lineno - chosen.lineno
        del lines[start : start + first.end_lineno - first.lineno + 1]
    text = dedent("\n".join(lines)).strip("\n")
    return text if text.count("\n") < 60 else "\n".join(text.split("\n")[:60]) + "\n..."


def figures(recipe: str) -> str:
    """The rows of docs/results.md that name the recipe, as a list; without one, where it is written about."""
    lines = (DOCS / "results.md").read_text(encoding="utf-8").split("\n")
    named = re.compile(rf"(?<![\w-]){re.escape(recipe)}(?![\w-])")
    rows = [line for line in lines if line.startswith("|") and named.search(line.split("|")[1])]
    if not rows:
        return f"No figure of `{recipe}` alone is on the page of [results](../results.md)."
    return "\n".join(
        f"- {' · '.join(cell.strip() for cell in row.strip('|').split('|') if cell.strip())}" for row in rows
    )


def gallery(found: dict[str, list[System]]) -> str:
    parts = [
        "# Gallery",
        "",
        "One picture for each system, drawn by its own code: by its layer or, trained for a while, by its recipe.",
        "Each leads to a page with the equation, the code, the recipe and what it reaches.",
        "`python docs/gallery/draw.py` draws them all.",
    ]
    for letter, title in FAMILIES.items():
        cards = []
        for id_, rows in found.items():
            if id_.startswith(letter):
                picture = (PICTURES / f"{id_}.svg").read_text(encoding="utf-8")
                name = " · ".join(dict.fromkeys(row.name for row in rows))
                cards.append(f'<a class="card" href="{id_.lower()}.html">{picture}<span>{id_} · {name}</span></a>')
        parts += ["", f"## {title}", raw(f'<div class="gallery">{"".join(cards)}</div>')]
    toctree = "\n".join(id_.lower() for id_ in found)
    return "\n".join([*parts, "", f"```{{toctree}}\n:hidden:\n\n{toctree}\n```", ""])


def raw(html: str) -> str:
    return "\n```{raw} html\n" + html.strip() + "\n```\n"


def table() -> str:
    """All systems, each leading to its page, with its equation typeset."""
    lines = ["| | system | equation | recipe |", "|---|---|---|---|"]
    for row in SYSTEMS:
        link = f"[{row.name}](systems/{row.id.lower()}.md)"
        lines.append(f"| {row.id} | {link} | {typeset(row.equation).replace('|', '&#124;')} | `{row.recipe}` |")
    return "\n".join(lines)
