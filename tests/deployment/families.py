"""Every family of models with calls of many sizes: what exported files are compared on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from edgewise import layers, models
from edgewise.configuration import Choice
from edgewise.graphs import EncoderDecoderGraph, Graph, causal, complete, disc, radius_graph, window

Call = tuple[Any, ...]


@dataclass(frozen=True)
class Family:
    """A model, calls of it by number (0 is the example), and the names of its tensors where they are not the usual."""

    model: Callable[[], nn.Module]
    call: Callable[[int], Call]
    names: tuple[str, ...] | None = None
    radius: float | None = None  # within which the file finds the edges


def random_graph(number: int, loops: bool = True) -> Graph:
    """Graphs whose numbers differ: with isolated nodes, of one node, without edges."""
    nodes, edges = [(7, 20), (12, 9), (1, 0), (5, 0), (30, 140), (1, 2)][number]
    draw = torch.Generator().manual_seed(number)
    senders, receivers = torch.randint(max(1, nodes - 2), (2, edges), generator=draw)
    if not loops:
        kept = senders != receivers
        senders, receivers = senders[kept], receivers[kept]
    return Graph.from_edge_index(torch.stack([senders, receivers]), nodes)


def several(number: int, loops: bool = True) -> Graph:
    """Batches of such graphs."""
    members = [(0, 1, 4), (3, 2), (2, 5), (4, 0, 1, 3, 2), (1, 1), (3, 3)][number]
    return Graph.batch([random_graph(member, loops) for member in members])


def features(number: int, rows: int, width: int = 5) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(100 + number))


def on_nodes(number: int, edges: int = 0, make: Callable[[int], Graph] = random_graph) -> Call:
    graph = make(number)
    call = graph, features(number, graph.num_receivers)
    return (*call, features(number, graph.num_edges, edges)) if edges else call


def text(number: int, pattern: Callable[[int], Graph], low: int = 0) -> Call:
    batch, length = [(2, 9), (1, 1), (3, 16), (2, 2), (4, 13), (1, 7)][number]
    draw = torch.Generator().manual_seed(number)
    return pattern(length), torch.randint(low, 30, (batch, length), generator=draw)


def texts(number: int) -> Call:
    lengths = [(3, 5, 2), (4,), (1, 1, 7), (16,), (2, 9, 4, 1, 5), (1, 2)][number]
    lengths = lengths if len(lengths) > 1 else (*lengths, 1)
    draw = torch.Generator().manual_seed(number)
    return Graph.batch([complete(n) for n in lengths]), torch.randint(30, (sum(lengths),), generator=draw)


def pairs(number: int) -> Call:
    batch, source, target = [(2, 5, 4), (1, 1, 1), (3, 9, 2), (2, 2, 11), (1, 6, 6), (4, 3, 1)][number]
    draw = torch.Generator().manual_seed(number)
    x = torch.randint(30, (batch, source + target), generator=draw)
    return EncoderDecoderGraph.of([source], [target]), x


def images(number: int) -> Call:
    batch = [2, 1, 3, 7, 5, 4][number]
    return complete(16), torch.randn(batch, 16, 5, generator=torch.Generator().manual_seed(number))


def pixels(number: int) -> Call:
    batch = [2, 1, 3, 7, 5, 4][number]
    return disc(6, 6, 4), torch.randn(batch, 36, 2, generator=torch.Generator().manual_seed(number))


def sequence(number: int, pattern: Callable[[int], Graph]) -> Call:
    batch, length = [(2, 9), (1, 1), (3, 16), (2, 2), (4, 13), (1, 7)][number]
    return pattern(length), torch.randn(batch, length, 8, generator=torch.Generator().manual_seed(number))


def particles(number: int) -> Call:
    graph = random_graph(number, loops=False)
    return graph, features(number, graph.num_receivers, 7)


def atoms(number: int, edges: tuple[float, ...] = (0.0, 0.0, 0.0)) -> Call:
    """Atoms in a cell, which is open along axes of 0."""
    nodes = [7, 12, 1, 5, 30, 2][number]
    draw = torch.Generator().manual_seed(number)
    cell = torch.tensor(edges)
    x = 4 * torch.rand(nodes, 3, generator=draw)
    kinds = torch.randint(1, 9, (nodes, 1), generator=draw).float()
    periodic = torch.where(cell > 0, cell, torch.inf)
    return radius_graph(x, 2.0, cell=periodic.tolist()), torch.cat([x, cell.expand(nodes, 3), kinds], -1)


def near(number: int) -> Call:
    """Nodes that listen to those near them, in members of a batch."""
    sizes = [(7, 3), (12, 1), (1, 1), (5, 4, 2), (30, 9), (2, 1)][number]
    x = features(number, sum(sizes), 3)
    return Graph.batch([radius_graph(member, 1.5) for member in x.split(list(sizes))]), features(number, len(x), 4), x


def moving(number: int) -> Call:
    graph = random_graph(number, loops=False)
    return graph, features(number, graph.num_receivers, 4 + 3)


def gnn(layer: str | Choice, **options: Any) -> nn.Module:
    signature = models.Features(
        5, 3, edges=options.pop("edges", 0), whole_graph=options.get("readout", "none") != "none"
    )
    return models.GNN(models.GNNSettings(layer, width=8, **options), signature)


def graph_transformer(attention: str | Choice, encoding: str = "none", edges: int = 0, whole: bool = True) -> nn.Module:
    settings = models.GraphTransformerSettings(
        attention, encoding, width=8, depth=2, heads=2, readout="mean" if whole else "none"
    )
    return models.GraphTransformer(settings, models.Features(5, 3, whole_graph=whole, edges=edges))


def transformer(signature: Any, **options: Any) -> nn.Module:
    options = {"width": 8, "depth": 2, "heads": 2} | options
    return models.Transformer(models.TransformerSettings(**options), signature)


def potential() -> nn.Module:
    settings = models.PotentialSettings(width=8, depth=2, gaussians=6)
    return models.Potential(settings, models.Atoms(7, 4, space=3, radius=2.0))


def moved_by(layer: str, width: int) -> nn.Module:
    settings = models.ParticlesSettings(Choice(layer, {"width": width, "depth": 2}))
    return models.Particles(settings, models.MovingParticles(7, 3, space=3))


TOKENS = models.Tokens(30, 30, length=16)
IMAGES = models.Features(5, 10, length=16, whole_graph=True)
PIXELS = models.Features(2, 10, length=36, whole_graph=True)
FAMILIES: dict[str, Family] = {
    **{
        layer: Family(partial(gnn, layer), on_nodes)
        for layer in (
            "gcn",
            "sage-mean",
            "sage-pool",
            "gin",
            "monet",
            "edge-conv",
            "acm",
            "chebnet",
            "sgc",
            "appnp",
            "pna",
        )
    },
    "gat": Family(partial(gnn, Choice("gat", {"heads": 2})), on_nodes),
    "gatv2": Family(partial(gnn, Choice("gatv2", {"heads": 2})), on_nodes),
    "gat, edges": Family(partial(gnn, "gat", edges=2, readout="mean"), partial(on_nodes, edges=2, make=several)),
    "gatv2, edges": Family(partial(gnn, "gatv2", edges=2), partial(on_nodes, edges=2)),
    "gine": Family(partial(gnn, "gine", edges=2, readout="sum"), partial(on_nodes, edges=2, make=several)),
    "gated-gcn": Family(partial(gnn, "gated-gcn", edges=2), partial(on_nodes, edges=2)),
    **{
        name: Family(
            partial(layer, 5, 4, 4, **options),
            lambda number: (*on_nodes(number), features(number, random_graph(number).num_edges, 1)[:, 0].long() % 4),
            ("x", "edge_attr"),
        )
        for name, layer, options in (
            ("rgcn", layers.RGCN, {}),
            ("rgcn, bases", layers.RGCN, {"bases": 2}),
            ("rgat", layers.RGAT, {"heads": 2}),
            ("hgt", layers.HGT, {"heads": 2}),
        )
    },
    "gcn, many graphs": Family(partial(gnn, "gcn", readout="attention"), partial(on_nodes, make=several)),
    "gin, many graphs": Family(partial(gnn, "gin", readout="max"), partial(on_nodes, make=several)),
    "dgcnn": Family(
        partial(gnn, Choice("dynamic-edge-conv", {"neighbors": 4}), readout="max"), partial(on_nodes, make=several)
    ),
    "graph transformer": Family(partial(graph_transformer, "neighbors"), partial(on_nodes, make=several)),
    "graph transformer, random walks": Family(
        partial(graph_transformer, "neighbors", "random-walk"), partial(on_nodes, make=several)
    ),
    "graph transformer, centrality": Family(
        partial(graph_transformer, "neighbors", "centrality", whole=False), on_nodes
    ),
    **{
        f"graph transformer, {encoding}": Family(
            partial(graph_transformer, "neighbors", encoding), partial(on_nodes, make=several)
        )
        for encoding in ("laplacian", "sign-invariant", "eigenspace", "cliques")
    },
    "gps, laplacian, one graph": Family(partial(graph_transformer, "gps", "laplacian", whole=False), on_nodes),
    "graphit": Family(partial(graph_transformer, "kernel"), partial(on_nodes, make=several)),
    "graphit, random walk, one graph": Family(
        partial(
            graph_transformer, Choice("kernel", {"kernel": "random-walk", "beta": 0.5}), "sign-invariant", whole=False
        ),
        on_nodes,
    ),
    "graph transformer, edges": Family(
        partial(graph_transformer, "neighbors", edges=2), partial(on_nodes, edges=2, make=several)
    ),
    "gps": Family(partial(graph_transformer, "gps", "random-walk"), partial(on_nodes, make=several)),
    "gps, one graph": Family(partial(graph_transformer, "gps", edges=2, whole=False), partial(on_nodes, edges=2)),
    "graphormer": Family(partial(graph_transformer, "graphormer", "centrality"), partial(on_nodes, make=several)),
    "graphormer, one graph": Family(partial(graph_transformer, "graphormer", whole=False), on_nodes),
    "min-cut": Family(
        lambda: models.PooledTransformer(
            models.PooledTransformerSettings(width=8, heads=2, pooling=models.MinCutSettings(3)),
            models.Features(5, 2, whole_graph=True),
        ),
        partial(on_nodes, make=several),
    ),
    "gpt": Family(partial(transformer, TOKENS), partial(text, pattern=causal)),
    "gpt, rotary": Family(partial(transformer, TOKENS, positions="rotary"), partial(text, pattern=causal)),
    "gpt, alibi": Family(partial(transformer, TOKENS, positions="alibi"), partial(text, pattern=causal)),
    "bert": Family(
        lambda: models.BERT(models.BERTSettings(width=8, depth=2, heads=2), TOKENS), partial(text, pattern=complete)
    ),
    "bert, texts": Family(
        lambda: models.BERT(
            models.BERTSettings(width=8, depth=2, heads=2, readout="first"),
            models.Tokens(30, 3, length=16, whole_graph=True),
        ),
        texts,
    ),
    "bart": Family(
        lambda: models.BART(
            models.BARTSettings(width=8, encoder_depth=1, decoder_depth=1, heads=2),
            models.Tokens(30, 3, length=16, whole_graph=True),
        ),
        texts,
    ),
    "encoder-decoder": Family(
        lambda: models.EncoderDecoder(
            models.EncoderDecoderSettings(width=8, encoder_depth=1, decoder_depth=2, heads=2), models.TokenPairs(30, 30)
        ),
        pairs,
    ),
    "vit": Family(partial(transformer, IMAGES, readout="class"), images),
    "vit, batch norm": Family(
        partial(transformer, IMAGES, readout="max", block=Choice("pre-norm", {"norm": "batch"})), images
    ),
    "swin": Family(lambda: models.Swin(models.SwinSettings(width=8, window=2), IMAGES), images),
    "group-cnn": Family(lambda: models.GroupCNN(models.GroupCNNSettings(widths=(3, 4), halve=(1,)), PIXELS), pixels),
    "scale-cnn": Family(lambda: models.ScaleCNN(models.ScaleCNNSettings(levels=2, widths=(3, 4)), PIXELS), pixels),
    "performer": Family(
        partial(transformer, TOKENS, attention="performer", positions="sinusoidal"), partial(text, pattern=causal)
    ),
    "performer, both sides": Family(
        partial(transformer, TOKENS, attention="performer"), partial(text, pattern=complete)
    ),
    "sparse": Family(
        partial(transformer, TOKENS, attention=Choice("strided-heads", {"stride": 3})), partial(text, pattern=causal)
    ),
    "sparse, blocks": Family(
        partial(transformer, TOKENS, attention=Choice("fixed-heads", {"block": 3})), partial(text, pattern=causal)
    ),
    "window": Family(partial(transformer, TOKENS), partial(text, pattern=partial(window, radius=2))),
    "jumping": Family(partial(gnn, "gcn", depth=3, connection="jumping"), on_nodes),
    "jumping, max": Family(partial(gnn, "gcn", depth=3, connection="jumping-max"), on_nodes),
    "hopfield": Family(partial(gnn, "gcn", readout="hopfield"), partial(on_nodes, make=several)),
    "egnn": Family(partial(moved_by, "velocity-egnn", 8), particles),
    "egnn, layer": Family(
        lambda: layers.EGNN(4, 8),
        lambda number: (
            random_graph(number, False),
            *(features(number, random_graph(number, False).num_receivers, w) for w in (4, 3)),
        ),
        ("x", "positions"),
    ),
    "schnet": Family(potential, atoms),
    "schnet, radius": Family(potential, atoms, radius=2.0),
    "schnet, periodic, radius": Family(potential, partial(atoms, edges=(4.5, 0.0, 5.0)), radius=2.0),
    "egnn, radius": Family(lambda: layers.EGNN(4, 8), near, ("x", "positions"), radius=1.5),
    "tfn": Family(partial(moved_by, "tfn", 4), particles),
    "se3": Family(partial(moved_by, "se3-attention", 4), particles),
    "simulator": Family(
        lambda: models.Simulator(
            models.SimulatorSettings(width=8, depth=2, gaussians=4), models.MovingParticles(7, 2, space=2)
        ),
        moving,
    ),
}
