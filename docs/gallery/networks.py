"""Pictures of section D: graph networks."""

import torch
from canvas import AMBER, BLUE, COLOURS, GREEN, GREY, PURPLE, RED, Axes, Canvas, fitted
from club import club, factions, pairs, places
from torch import nn
from torch.nn import functional
from trained import dense

from edgewise import Graph, aggregate, k_nearest, record, sample_neighbors
from edgewise.graphs import importance, sample_layers
from edgewise.graphs.refinement import refine
from edgewise.layers import GAT, GCN, MLP, EdgeUpdate, GatedGCN, GraphNetwork, MoNet, NodeUpdate, PairNorm, WholeUpdate
from edgewise.layers.graph.gcn import renormalised
from edgewise.layers.graph.smoothing import dirichlet_energy
from edgewise.tasks.graphs.clouds import BODIES, cloud

SMALL = Graph.from_edge_index([[0, 1, 1, 2, 2, 0, 2, 3, 3, 4], [1, 0, 2, 1, 0, 2, 3, 2, 4, 3]], num_nodes=5)
SPOTS = [(0.1, 0.1), (0.0, 0.9), (0.45, 0.5), (0.75, 0.5), (1.0, 0.15)]


def fit(layers: list[nn.Module], graph: Graph, steps: int = 80) -> list[nn.Module]:
    """Train layers, with ReLU between them, to tell the club's factions from two labelled members."""
    optimizer = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=0.02)
    x = torch.eye(34)
    for _ in range(steps):
        optimizer.zero_grad()
        h = x
        for k, layer in enumerate(layers):
            h = layer(graph, h) if k == 0 else layer(graph, h.relu())
        functional.cross_entropy(h[[0, 33]], factions()[[0, 33]]).backward()
        optimizer.step()
    return layers


def passing() -> Canvas:
    """One round of message passing by sums: every node's new number is the sum of its neighbours' old ones."""
    canvas = Canvas()
    x = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    for k, values in enumerate((x, aggregate(SMALL, x))):
        spots = fitted(SPOTS, (24 + 160 * k, 40, 112, 110))
        for i, j in pairs(SMALL):
            (a, b), (c, d) = spots[j], spots[i]
            canvas.arrow((a + 0.16 * (c - a), b + 0.16 * (d - b)), (c - 0.2 * (c - a), d - 0.2 * (d - b)), GREY, 0.9)
        for spot, value in zip(spots, values.flatten().tolist(), strict=True):
            canvas.node(spot, BLUE if k else GREY, 11, 0.35)
            canvas.text(spot[0], spot[1] + 3.5, f"{value:g}", 10)
        canvas.text(80 + 160 * k, 180, ("before", "after")[k], colour=GREY)
    return canvas


def convolution() -> Canvas:
    """Graph convolution spreads what a node knows: a signal that starts at one member of a karate club (ringed), after
    one, two and four rounds of the renormalised adjacency matrix."""
    graph, weight = renormalised(club(), torch.float32)
    canvas = Canvas()
    x = torch.zeros(34, 1)
    x[16] = 1
    for rounds in range(1, 5):
        x = aggregate(graph, x, weight)
        if rounds == 3:
            continue
        spots = places((8 + 104 * (rounds // 2), 36, 92, 120))
        canvas.graph(pairs(club()), spots, opacity=0.5, width=0.5)
        for spot, value in zip(spots, x.flatten().tolist(), strict=True):
            canvas.node(spot, BLUE, 2.8, min(1.0, value / x.max().item()) ** 0.5)
        canvas.node(spots[16], RED, 4, 0)
        canvas.text(54 + 104 * (rounds // 2), 176, f"{rounds} round{'s' * (rounds > 1)}", colour=GREY)
    return canvas


def sampling() -> Canvas:
    """GraphSAGE reads a sample instead of all: of one member (red) at most three neighbours are drawn, of each of
    these at most two. What was drawn is blue, then green."""
    sample = sample_neighbors(club(), [33], [3, 2], torch.Generator().manual_seed(1))
    spots, canvas = places(), Canvas()
    canvas.graph(pairs(club()), spots, opacity=0.35)
    nodes = sample.nodes.tolist()
    inner = sample.graphs[-1]
    drawn = [{(nodes[i], nodes[j]) for i, j in pairs(graph)} for graph in sample.graphs]
    canvas.graph(drawn[0] - drawn[-1], spots, GREEN, 1, 1.6)
    canvas.graph(drawn[-1], spots, BLUE, 1, 2)
    for spot in spots:
        canvas.node(spot, GREY, 3, 0.3)
    for rank, node in enumerate(nodes):
        canvas.node(spots[node], RED if rank == 0 else BLUE if rank < inner.num_senders else GREEN, 5, 0.9)
    return canvas


def layers() -> Canvas:
    """FastGCN draws the nodes of each layer by their importance (the size of a dot) instead of neighbours of each: two
    layers of eight senders for four receivers of a karate club, and the edges among them."""
    graph, weight = renormalised(club(), torch.float32)
    chance = importance(graph, weight)
    sample = sample_layers(graph, weight, chance, [3, 12, 20, 31], [8, 8], torch.Generator().manual_seed(0))
    canvas = Canvas()
    rows = [sample.graphs[0].num_senders, sample.graphs[0].num_receivers, sample.graphs[1].num_receivers]
    spots = [[(20 + 280 * (k + 0.5) / count, 30 + 68 * row) for k in range(count)] for row, count in enumerate(rows)]
    for row, part in enumerate(sample.graphs):
        canvas.lines(((spots[row + 1][i], spots[row][j]) for i, j in pairs(part)), GREY, 0.8)
    for row, line in enumerate(spots):
        for k, spot in enumerate(line):
            node = int(sample.nodes[k]) if row == 0 else k
            size = 3 + 40 * float(chance[node]) if row == 0 else 5
            canvas.node(spot, (BLUE, GREEN, RED)[row], size, 0.7)
    return canvas


def gat() -> Canvas:
    """Graph attention on a karate club, trained from two labelled members: whom six members attend to, the thicker the
    more. Edges within a faction (blue and green) weigh more than those across (red)."""
    torch.manual_seed(0)
    graph = club(loops=True)
    layer = fit([GAT(34, 8, heads=2), GAT(16, 2)], graph)[0]
    with record() as seen, torch.no_grad():
        layer(graph, torch.eye(34))
    weights = dense(seen[0].graph, seen[0].weights).mean(-1)
    spots, canvas, side = places(), Canvas(), factions().tolist()
    canvas.graph(pairs(club()), spots, opacity=0.3)
    for i in (0, 2, 8, 13, 31, 33):
        for j in range(34):
            if weights[i, j] > 0.02 and i != j:
                colour = (BLUE, GREEN)[side[i]] if side[i] == side[j] else RED
                canvas.line([spots[j], spots[i]], colour, 0.4 + 14 * float(weights[i, j]), 0.55)
    for spot, faction in zip(spots, side, strict=True):
        canvas.node(spot, (BLUE, GREEN)[faction], 4, 0.95)
    return canvas


def multisets() -> Canvas:
    """Why GIN sums: each dot is a neighbourhood of a blue and b red nodes. A sum keeps them all apart; a mean cannot
    distinguish those on one line, whose shares are equal, and a maximum only sees which colours there are (three
    groups)."""
    canvas = Canvas()
    sets = [(a, b) for a in range(6) for b in range(6) if a + b]
    for k, name in enumerate(("sum", "mean", "max")):
        left = 14 + 104 * k
        kinds: dict[tuple[float, ...], list[tuple[float, float]]] = {}
        for a, b in sets:
            colours = torch.tensor([[1.0, 0.0]] * a + [[0.0, 1.0]] * b)
            star = Graph.from_edge_index([list(range(1, a + b + 1)), [0] * (a + b)], num_nodes=a + b + 1)
            value = aggregate(star, torch.cat([torch.zeros(1, 2), colours]), reduce=name)[0]
            kinds.setdefault(tuple(round(v, 4) for v in value.tolist()), []).append((left + 4 + 16 * a, 140 - 16 * b))
        for n, spots in enumerate(kinds.values()):
            canvas.line(spots, COLOURS[n % len(COLOURS)], 1.2) if len(spots) > 1 else None
            canvas.dots(spots, COLOURS[n % len(COLOURS)], 3)
        canvas.text(left + 44, 172, f"{name}: {len(kinds)} of {len(sets)}", colour=GREY)
    return canvas


def gates() -> Canvas:
    """GatedGCN's gates on a karate club, trained from two labelled members: how much each edge lets through, the
    darker the more, as the mean over channels."""
    torch.manual_seed(0)
    layer = fit([GatedGCN(34, 8), GatedGCN(8, 2)], club(), 120)[0]
    x = torch.eye(34)
    _, _, gates = layer._gates(club(), x, None)
    gate = torch.sigmoid(gates.receivers[club().receivers] + gates.senders[club().senders]).mean(-1).detach()
    spots, canvas = places(), Canvas()
    low, high = float(gate.min()), float(gate.max())
    for (i, j), value in sorted(zip(pairs(club()), gate.tolist(), strict=True), key=lambda edge: edge[1]):
        share = (value - low) / (high - low)
        canvas.line([spots[j], spots[i]], BLUE, 0.5 + 2 * share, 0.15 + 0.85 * share)
    for spot, faction in zip(spots, factions().tolist(), strict=True):
        canvas.node(spot, (AMBER, GREEN)[faction], 4, 0.95)
    return canvas


def monet() -> Canvas:
    """MoNet weighs a neighbour by Gaussians of where it lies, here in the plane of two coordinates: the three kernels
    of an untrained layer, the darker the more weight."""
    torch.manual_seed(1)
    layer = MoNet(2, 2, kernels=3)
    mean, deviation = layer.mean.detach(), layer.deviation.detach().abs()
    grid = torch.linspace(-2.5, 2.5, 24)
    u = torch.stack(torch.meshgrid(grid, grid, indexing="ij"), -1)
    canvas = Canvas()
    for k in range(3):
        canvas.heat(
            (-0.5 * ((u - mean[k]) / deviation[k]) ** 2).sum(-1).exp(),
            (8 + 104 * k, 50, 96, 96),
            (COLOURS[k], RED),
            1.0,
        )
        canvas.text(56 + 104 * k, 164, f"kernel {k + 1}", colour=GREY)
    return canvas


def edge_conv() -> Canvas:
    """EdgeConv works on the graph of nearest neighbours of a cloud of points, here a torus and a cone of 90 points and
    four neighbours each; dynamic EdgeConv finds them anew in the features of every layer."""
    canvas = Canvas()
    generator = torch.Generator().manual_seed(3)
    for k, body in enumerate(("torus", "cone")):
        x = cloud(BODIES[body], 90, 0.02, generator)
        graph = k_nearest(x, 4)
        spots = fitted([(p[0] + 0.35 * p[2], p[1] - 0.25 * p[2]) for p in x.tolist()], (20 + 156 * k, 20, 124, 140))
        canvas.graph(pairs(graph), spots, BLUE, 0.55)
        canvas.dots(spots, "currentColor", 1.5)
        canvas.text(82 + 156 * k, 184, body, colour=GREY)
    return canvas


def graph_network() -> Canvas:
    """A full graph network updates edges, then nodes, then the whole (the bar): from left to right, the mean size of
    each after every part of one untrained block on a graph of five nodes."""
    torch.manual_seed(2)
    edge, node, whole = (
        EdgeUpdate(MLP([3 + 3 + 2 + 2, 8, 2])),
        NodeUpdate(MLP([3 + 2 + 2, 8, 3])),
        WholeUpdate(MLP([3 + 2 + 2, 8, 2])),
    )
    x, e, u = torch.randn(5, 3), torch.randn(10, 2), torch.randn(1, 2)
    canvas = Canvas()
    stages = [(x, e, u)]
    for parts in ((edge, None, None), (edge, node, None), (edge, node, whole)):
        x_, e_, u_ = GraphNetwork(*parts).update(SMALL, x, e, u)
        stages += [(x_.detach(), e_.detach(), u_.detach())]
    for k, (x_, e_, u_) in enumerate(stages):
        spots = fitted(SPOTS, (14 + 78 * k, 56, 56, 70))
        for (i, j), size in zip(pairs(SMALL), e_.norm(dim=-1).tolist(), strict=True):
            if i < j:
                canvas.line([spots[i], spots[j]], PURPLE if k == 1 else GREY, 0.5 + 2 * size)
        for spot, size in zip(spots, x_.norm(dim=-1).tolist(), strict=True):
            canvas.node(spot, BLUE if k == 2 else GREY, 2.5 + 3 * min(1.6, size), 0.9)
        canvas.box((14 + 78 * k, 140, 8 + 24 * float(u_.norm()), 7), "none", 0, GREEN if k == 3 else GREY, 0.8)
        canvas.text(42 + 78 * k, 172, ("before", "edges", "nodes", "whole")[k], colour=GREY)
    return canvas


def refinement() -> Canvas:
    """The Weisfeiler-Lehman test on a karate club: all members begin alike, and a round splits those whose neighbours'
    colours differ; 20 rounds later nothing splits any more."""
    canvas = Canvas()
    for k, rounds in enumerate((1, 2, 20)):
        colours = refine(club(), rounds=rounds).tolist()
        spots = places((8 + 104 * k, 30, 92, 124))
        canvas.graph(pairs(club()), spots, opacity=0.5, width=0.5)
        for spot, colour in zip(spots, colours, strict=True):
            canvas.node(spot, COLOURS[colour % len(COLOURS)], 3.2, 0.95)
        canvas.text(54 + 104 * k, 176, f"{len(set(colours))} colours", colour=GREY)
    return canvas


def smoothing() -> Canvas:
    """Over-smoothing: how much neighbours differ after each of 32 untrained graph convolutions (relative Dirichlet
    energy). It falls to that of nodes that are all alike (red); with PairNorm or residuals it does not."""
    canvas = Canvas()
    axes = Axes(canvas, (14, 16, 240, 160), (0, 32), (0.005, 2.5), "y")
    graph = club(loops=True)
    norm = PairNorm()
    for name, colour in (("plain", RED), ("PairNorm", BLUE), ("residual", GREEN)):
        torch.manual_seed(0)
        x = torch.randn(34, 16)
        energies = [float(dirichlet_energy(graph, x))]
        for _ in range(32):
            y = GCN(16, 16)(club(), x).tanh().detach()
            x = norm(graph, y) if name == "PairNorm" else x + 0.3 * y if name == "residual" else y
            energies.append(float(dirichlet_energy(graph, x)))
        axes.line(range(33), energies, colour, 1.5, name)
    axes.labels("layer", "energy")
    return canvas
