"""The table of docs/export.md lists what the tests of exported files try, and nothing else."""

import re
from pathlib import Path

from deployment.families import FAMILIES
from deployment.test_exporting import REFUSED
from edgewise.layers import LAYERS

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text("utf-8")
FACTS = {  # by the row's begin, the families whose files are compared
    "GCN": ("gcn", "gcn, many graphs"),
    "adaptive channel mixing": ("acm",),
    "jumping knowledge": ("jumping", "jumping, max"),
    "GraphSAGE (mean, max pooling)": ("sage-mean", "sage-pool"),
    "GAT, GATv2, with edge features or without": ("gat", "gatv2", "gat, edges", "gatv2, edges"),
    "GIN, GINE": ("gin", "gin, many graphs", "gine"),
    "gated GCN": ("gated-gcn",),
    "relational GCN": ("rgcn", "rgcn, bases"),
    "relational attention, heterogeneous graph transformer": ("rgat", "hgt"),
    "MoNet, edge convolution": ("monet", "edge-conv"),
    "DGCNN": ("dgcnn",),
    "graph transformer, with edge features": (
        "graph transformer", "graph transformer, edges", "graph transformer, random walks",
        "graph transformer, centrality",
    ),
    "graph transformer with Laplacian": (
        "graph transformer, laplacian", "graph transformer, sign-invariant", "graph transformer, eigenspace",
        "graph transformer, cliques",
    ),
    "GraphiT": ("graphit", "graphit, random walk, one graph"),
    "GPS": ("gps", "gps, one graph", "gps, laplacian, one graph"),
    "Graphormer |": ("graphormer", "graphormer, one graph"),
    "min-cut pooling": ("min-cut",),
    "GPT (learned, rotary, ALiBi positions), the past recomputed": ("gpt", "gpt, rotary", "gpt, alibi"),
    "BERT": ("bert", "bert, texts"),
    "BART": ("bart",),
    "encoder–decoder": ("encoder-decoder",),
    "ViT, Swin": ("vit", "vit, batch norm", "swin"),
    "convolutions equivariant to turns, and to scale, of images": ("group-cnn", "scale-cnn"),
    "Performer": ("performer", "performer, both sides"),
    "sparse (strided, fixed) and window attention": ("sparse", "sparse, blocks", "window"),
    "Hopfield pooling": ("hopfield",),
    "EGNN, velocity EGNN": ("egnn", "egnn, layer"),
    "EGNN with edges within a radius": ("egnn, radius",),
    "SchNet potential: energies and forces |": ("schnet",),
    "SchNet potential with edges within a radius": ("schnet, radius", "schnet, periodic, radius"),
    "TFN, SE(3) attention": ("tfn", "se3"),
    "graph network simulator": ("simulator",),
}  # fmt: skip
CACHED = "GPT (learned, rotary, ALiBi, sinusoidal or no positions) with a cache"  # tests/deployment/test_decoding.py
NOT = {  # the layers of rows that say why not; those without any are no layers of their own
    "GraphSAGE with an LSTM": {"SAGELSTM"},
    "Hadamard attention": {"HadamardAttention"},
    "Graphormer with features of edges": set(),
    "LSH, routing and Sinkhorn attention": {"LSHAttention", "RoutingAttention", "SinkhornAttention"},
    "Shaw's and Transformer-XL's relative positions": {"ShawAttention", "TransformerXLAttention"},
    "networks on pairs, triples and subgraphs": {"PPGN", "I2GNN", "Marked"},
    "recurrent encoder–decoder": set(),
    "recurrent language models": set(),
    "associative memory": set(),
}
WITHOUT_NAMES = {"GroupConvolution", "GroupPooling", "Rotary", "SE3Attention", "ScaleConvolution", "TFN"}


def rows() -> dict[str, list[str]]:
    """The table's rows, `model | onnx | pt2`, by their first cell."""
    (table,) = re.findall(r"^\| model \| onnx \| pt2 \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.M)
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in table.splitlines()]
    assert all(len(row) == 3 for row in cells)
    return {f"{name} |": formats for name, *formats in cells}


def named(begin: str) -> str:
    found = [row for row in rows() if row.startswith(begin)]
    exact = [row for row in found if row == f"{begin} |"] or found
    assert len(exact) == 1, (begin, found)
    return exact[0]


def test_every_row_has_a_test_and_every_tested_family_a_row() -> None:
    tried = [family for families in FACTS.values() for family in families]
    assert sorted(tried) == sorted(FAMILIES)
    listed = [*map(named, FACTS), named(CACHED), *map(named, NOT)]
    assert sorted(listed) == sorted(rows())


def test_rows_say_works_where_files_are_compared_and_why_not_elsewhere() -> None:
    table = rows()
    assert all(table[named(begin)] == ["works", "works"] for begin in (*FACTS, CACHED))
    assert all(cell.startswith("no: ") for begin in NOT for cell in table[named(begin)])


def test_every_layer_that_is_refused_has_a_row_with_the_reason() -> None:
    assert set().union(*NOT.values()) | WITHOUT_NAMES == REFUSED and set(LAYERS) >= REFUSED
