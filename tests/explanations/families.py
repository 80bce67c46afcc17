"""A small model of every family, with an input, and an index of its outputs that is worth explaining."""

from typing import Any

import torch
from torch import nn

from edgewise.configuration import build
from edgewise.graphs import EncoderDecoderGraph, Graph, causal, complete, disc
from edgewise.models import MODELS, Atoms, Features, MovingParticles, Signature, TokenPairs, Tokens

Case = tuple[nn.Module, tuple[Any, ...], tuple[int, ...]]
Family = tuple[str, dict[str, Any], Signature, tuple[Any, ...], tuple[int, ...]]
SMALL = {"width": 8, "depth": 2}
BLOCK = SMALL | {"heads": 2}
RING = Graph.from_edge_index([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 0]], num_nodes=5).symmetrise()
NODES, GRAPHS = Features(3, 2), Features(3, 2, whole_graph=True)
ATOMS = Atoms(7, 4, space=3, radius=9.0)
PARTICLES = MovingParticles(7, 3, space=3)


def nodes(count: int = 5, channels: int = 3) -> torch.Tensor:
    return torch.randn(count, channels, generator=torch.Generator().manual_seed(0))


def atoms() -> torch.Tensor:
    x = nodes(5, 7)
    x[:, 3:6], x[:, 6] = 0.0, 29.0  # no periodic cell, copper
    return x


PAIRS = EncoderDecoderGraph.of([3], [4])
FAMILIES: dict[str, Family] = {
    "gnn gcn": ("gnn", SMALL | {"layer": {"name": "gcn"}}, NODES, (RING, nodes()), (2, 1)),
    "gnn gat": ("gnn", SMALL | {"layer": {"name": "gat"}}, NODES, (RING, nodes()), (2, 1)),
    "gnn gin": ("gnn", SMALL | {"layer": {"name": "gin"}, "readout": "sum"}, GRAPHS, (RING, nodes()), (0, 1)),
    "gnn sage": ("gnn", SMALL | {"layer": {"name": "sage-mean"}}, NODES, (RING, nodes()), (0, 0)),
    "deep sets": ("deep-sets", {"readout": "sum"}, GRAPHS, (RING, nodes()), (0, 1)),
    "graph network": ("graph-network", SMALL, GRAPHS, (RING, nodes()), (0, 1)),
    "ensemble of graph networks": ("ensemble", {"network": {"name": "graph-network", **SMALL}}, GRAPHS,
                                   (RING, nodes()), (0, 1)),
    "consistent": ("consistent", {"network": {"name": "gnn", **SMALL}}, NODES, (RING, nodes()), (2, 1)),
    "ensemble": ("ensemble", {"network": {"name": "gnn", **SMALL}}, NODES, (RING, nodes()), (2, 1)),
    "random propagation": ("random-propagation", {"width": 8, "steps": 2}, NODES, (RING, nodes()), (2, 1)),
    "pooled transformer": ("pooled-transformer", {"width": 8, "heads": 2}, GRAPHS, (RING, nodes()), (0, 1)),
    "graph transformer": ("graph-transformer", BLOCK, NODES, (RING, nodes()), (4, 1)),
    "perceptron": ("mlp", {"hidden": [8]}, Features(3, 2, length=1, whole_graph=True),
                   (complete(1), nodes(1)[None]), (0, 0, 1)),
    "particles": ("particles", {}, PARTICLES, (complete(5), nodes(5, 7)), (1, 0)),
    "potential": ("potential", SMALL, ATOMS, (RING, atoms()), (1, 0)),
    "bert": ("bert", BLOCK, Tokens(9, 9, length=6), (complete(6), torch.arange(6)), (3, 4)),
    "bart": ("bart", {"width": 8, "heads": 2, "encoder_depth": 1, "decoder_depth": 1},
             Tokens(9, 3, length=6, whole_graph=True), (complete(6), torch.arange(6)), (0, 1)),
    "encoder-decoder": ("encoder-decoder", {"width": 8, "heads": 2, "encoder_depth": 1, "decoder_depth": 1},
                        TokenPairs(9, 9, length=9), (PAIRS, torch.arange(7)), (3, 4)),
    "recurrent": ("recurrent", SMALL, Tokens(9, 9, length=6), (causal(6), torch.arange(6)[None]), (0, 5, 1)),
    "transformer": ("transformer", BLOCK, Tokens(9, 9, length=6), (causal(6), torch.arange(6)[None]), (0, 5, 1)),
    "vision transformer": ("transformer", BLOCK | {"readout": "mean"}, Features(3, 2, length=6, whole_graph=True),
                           (complete(6), nodes(6)[None]), (0, 0, 1)),
    "randomised perceptron": ("randomized-mlp", {"hidden": [8]}, Features(3, 2, length=1, whole_graph=True),
                              (complete(1), nodes(1)[None]), (0, 0, 1)),
    "autoencoder": ("graph-autoencoder", SMALL, Features(3, 3), (RING, nodes()), (2, 1)),
    "kernel regression": ("kernel-regression", {}, Features(3, 1), (RING, nodes()), (2, 0)),
    "simulator": ("simulator", SMALL | {"gaussians": 4}, MovingParticles(7, 3, space=3), (RING, nodes(5, 7)), (1, 0)),
    "group cnn": ("group-cnn", {"widths": [2, 3], "halve": [1]}, Features(1, 2, length=16, whole_graph=True),
                  (disc(4, 4, radius=2.3), nodes(16, 1)[None]), (0, 0, 1)),
    "swin": ("swin", {"width": 8, "depths": [2, 1], "heads": [2, 2], "window": 2, "readout": "mean"},
             Features(3, 2, length=16, whole_graph=True), (complete(16), nodes(16)[None]), (0, 0, 1)),
}  # fmt: skip


def _of_layer(layer: str, **options: Any) -> Family:
    """A graph network with normalisation, a readout and that layer."""
    more = {"layer": {"name": layer, **options}, "norm": "batch", "readout": "max"}
    return "gnn", SMALL | more, GRAPHS, (RING, nodes()), (0, 1)


def _of_attention(attention: str, **options: Any) -> Family:
    """A graph transformer."""
    return "graph-transformer", BLOCK | {"attention": attention, **options}, NODES, (RING, nodes()), (4, 1)


def _of_text(**options: Any) -> Family:
    """A causal transformer on text."""
    return "transformer", BLOCK | options, Tokens(9, 9, length=8), (causal(8), torch.arange(8)[None]), (0, 7, 1)


def _of_particles(layer: str, **options: Any) -> Family:
    """A forecast of particles."""
    made = {"layer": {"name": layer, **options}}
    return "particles", made, PARTICLES, (complete(5), nodes(5, 7)), (1, 0)


SMALL_LAYERS = {"width": 4, "depth": 2}
VARIANTS: dict[str, Family] = {
    **{f"gnn {layer}": _of_layer(layer) for layer in (
        "gatv2", "gated-gcn", "monet", "edge-conv", "sage-pool", "sage-lstm", "fast-gcn", "acm")},
    "dgcnn": _of_layer("dynamic-edge-conv", neighbors=3),
    "gin with batch norm": _of_layer("gin"),
    **{f"graph transformer {attention}": _of_attention(attention)
       for attention in ("graphormer", "gps", "kernel", "hadamard")},
    "graph transformer with encodings": _of_attention("neighbors", encoding={"name": "random-walk", "size": 3}),
    **{f"text {attention}": _of_text(attention=attention, positions="rotary")
       for attention in ("linear", "performer", "strided-heads")},
    "text lsh": _of_text(attention={"name": "lsh", "chunk": 4, "buckets": 2}),
    "text routing": _of_text(attention={"name": "routing", "size": 4, "clusters": 2}),
    "text sinkhorn": _of_text(attention={"name": "sinkhorn", "block": 4}),
    **{f"text {positions}": _of_text(positions=positions) for positions in (
        "alibi", "shaw", "t5", "transformer-xl", "learned", "sinusoidal")},
    **{f"particles {layer}": _of_particles(layer, **SMALL_LAYERS) for layer in (
        "attention-egnn", "message-network", "radial-field", "schnet", "se3-attention", "tfn")},
    "vision transformer with batch norm": (
        "transformer", BLOCK | {"readout": "max", "block": {"name": "pre-norm", "norm": "batch"}},
        Features(3, 2, length=6, whole_graph=True), (complete(6), nodes(6)[None]), (0, 0, 1)),
    "class node": ("transformer", BLOCK | {"readout": "class"}, Features(3, 2, length=6, whole_graph=True),
                   (complete(6), nodes(6)[None]), (0, 0, 1)),
    "hopfield pooling": ("deep-sets", {"readout": "hopfield"}, GRAPHS, (RING, nodes()), (0, 1)),
    "set transformer": ("transformer", BLOCK | {"positions": "none", "readout": "sum"}, GRAPHS,
                        (complete(5), nodes()[None]), (0, 0, 1)),
    "slides": ("pooled-transformer", {"layer": "gcn", "width": 8, "heads": 2}, GRAPHS, (RING, nodes()), (0, 1)),
}  # fmt: skip
EVERY = FAMILIES | VARIANTS


def baseline_of(name: str) -> float | None:
    """Of atoms and of what lies in space none: at one place all directions between them are lost."""
    return None if name.startswith(("potential", "particles ")) else 0.0


def family(name: str) -> Case:
    """The model, its inputs and the index."""
    model, options, signature, inputs, index = EVERY[name]
    settings, built = MODELS[model]
    torch.manual_seed(0)
    made = built(build(settings, options, model), signature)
    for part in made.modules():  # a head of zeros would leave nothing to explain
        if isinstance(part, nn.Linear) and not part.weight.any():
            nn.init.normal_(part.weight, std=0.3)
    return made.eval(), inputs, index
