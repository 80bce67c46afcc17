"""Pictures of section D: graph networks."""

import networkx
import torch
from canvas import AMBER, BLUE, COLOURS, GREEN, GREY, PURPLE, RED, Axes, Canvas, fitted
from club import club, factions, pairs, places
from torch import nn
from torch.nn import functional
from trained import dense, trained

from edgewise import Graph, aggregate, k_nearest, record, sample_neighbors
from edgewise.graphs import importance, sample_layers
from edgewise.graphs.refinement import refine
from edgewise.layers import GAT, GCN, GatedGCN, MoNet, PairNorm
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
    """MoNet weighs a neighbour by Gaussians of two coordinates that it learns from the degrees of both ends: the three
    kernels of each layer (a row) after the recipe's training on Cora, the darker the more weight, and where citations
    lie (dots). Degrees say little here: kernels that all citations lie deep inside are left, which take the mean."""
    run = trained("cora-monet")
    graph = next(iter(run.task.batches("test", 1, run.config.graph))).graph
    grid = torch.linspace(-1, 1, 25)
    u = torch.stack(torch.meshgrid(grid.flip(0), grid, indexing="ij"), -1).flip(-1)  # up is the second coordinate
    canvas = Canvas()
    layers = [module for module in run.model.modules() if isinstance(module, MoNet)]
    for row, layer in enumerate(layers):
        with torch.no_grad():
            lie = layer.coordinates(graph, torch.float32)
            distance = (u[..., None, :] - layer.mean).square() / (layer.deviation.square() + 1e-15)
            weights = (-0.5 * distance.sum(-1)).exp()
        dots = sorted({(round(x, 2), round(y, 2)) for x, y in lie.tolist()})
        for k in range(3):
            box = (30 + 92 * k, 6 + 97 * row, 78, 78)
            canvas.heat(weights[..., k], box, (COLOURS[k], RED), 1.0)
            axes = Axes(canvas, box, (-1, 1), (-1, 1))
            axes.dots(*zip(*dots, strict=True), "currentColor", 0.6)
            canvas.text(69 + 92 * k, 94 + 97 * row, f"layer {row + 1}, kernel {k + 1}", 8, colour=GREY)
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
    """A full graph network updates edges, then nodes, then the whole. Left: a test molecule after the recipe's
    training, its bonds and atoms the larger the more the last block changes them. Right: how well 113 test molecules
    dissolve in water, as guessed from the whole (up) and as measured (across), in log mol/l."""
    run = trained("esol-graph-network")
    batch = next(iter(run.task.batches("test", 200, run.config.graph)))
    seen: list[tuple[torch.Tensor, ...]] = []
    run.model.members[0].blocks[-1].register_forward_hook(
        lambda module, inputs, output: seen.append((*inputs[1:3], *output[:2]))
    )
    with torch.no_grad():
        guessed = run.task.mean + run.task.deviation * run.model.eval()(*batch.inputs).flatten()
    x, e, new_x, new_e = seen[0]
    sizes = [member.num_receivers for member in batch.members]
    k = min(range(len(sizes)), key=lambda n: abs(sizes[n] - 19))
    node, edge = sum(sizes[:k]), sum(member.num_edges for member in batch.members[:k])
    member = batch.members[k]
    atoms = (new_x - x).norm(dim=-1)[node : node + sizes[k]]
    bonds = (new_e - e).norm(dim=-1)[edge : edge + member.num_edges]
    layout = networkx.kamada_kawai_layout(networkx.Graph(pairs(member)))
    spots = fitted([layout[n].tolist() for n in range(sizes[k])], (16, 20, 130, 150))
    canvas = Canvas()
    for (i, j), size in zip(pairs(member), _shares(bonds), strict=True):
        if i < j:
            canvas.line([spots[i], spots[j]], PURPLE, 0.6 + 3.4 * size, 0.8)
    for spot, size in zip(spots, _shares(atoms), strict=True):
        canvas.node(spot, BLUE, 2 + 4 * size, 0.95)
    axes = Axes(canvas, (178, 20, 128, 150), (-9, 2), (-9, 2))
    axes.line([-9, 2], [-9, 2], GREY, 1)
    axes.dots(batch.target.flatten().tolist(), guessed.tolist(), GREEN, 1.8, 0.8)
    axes.labels("measured", "guessed")
    return canvas


def _shares(sizes: torch.Tensor) -> list[float]:
    return ((sizes - sizes.min()) / (sizes.max() - sizes.min())).tolist()


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
