"""Pictures of section E: graph transformers, encodings and pooling."""

import networkx
import torch
from canvas import BLUE, COLOURS, GREY, RED, Axes, Canvas, fitted
from club import club, pairs, places
from trained import attention, trained

from edgewise import Graph
from edgewise.graphs.make.spectral import laplacian_kernel, laplacian_spectrum, random_walk_returns
from edgewise.layers import ClusterAssignment, min_cut_pool
from edgewise.tasks.slides.simulator import plan


def graph_transformer() -> Canvas:
    """The attention of a graph transformer after its training on a karate club, as a matrix: a row for each of 34
    members, blue where it attends; only friends and itself are there to attend to."""
    run = trained("karate")
    batch = next(iter(run.task.batches("valid", 1, run.config.graph)))
    weights = attention(run.model, *batch.inputs)[0]
    canvas = Canvas()
    for h in range(2):
        canvas.heat(weights[:, :, h].sqrt(), (12 + 156 * h, 20, 140, 140))
        canvas.text(82 + 156 * h, 176, f"head {h + 1}", colour=GREY)
    return canvas


def kernels() -> Canvas:
    """GraphiT multiplies attention by a kernel on the graph: how near everyone is to one member (ringed) by the
    diffusion kernel with β of 0.5, 1.5 and 5."""
    canvas = Canvas()
    for k, beta in enumerate((0.5, 1.5, 5.0)):
        kernel = laplacian_kernel(club(), beta).reshape(34, 34)[5]
        spots = places((8 + 104 * k, 30, 92, 124))
        canvas.graph(pairs(club()), spots, opacity=0.5, width=0.5)
        for spot, value in zip(spots, (kernel / kernel.max()).tolist(), strict=True):
            canvas.node(spot, BLUE, 3, max(0.0, value) ** 0.5)
        canvas.node(spots[5], RED, 4.4, 0)
        canvas.text(54 + 104 * k, 176, f"β = {beta:g}", colour=GREY)
    return canvas


def encodings() -> Canvas:
    """Eigenvectors of a graph's Laplacian say where its nodes are: the second, third and sixth on a karate club,
    positive in blue and negative in red. Neighbours have similar values."""
    spectrum = laplacian_spectrum(club(), 6)
    canvas = Canvas()
    for k, column in enumerate((1, 2, 5)):
        v = spectrum.vectors[:, column]
        v = v * v[0].sign() / v.abs().max()
        spots = places((8 + 104 * k, 30, 92, 124))
        canvas.graph(pairs(club()), spots, opacity=0.5, width=0.5)
        for spot, value in zip(spots, v.tolist(), strict=True):
            canvas.node(spot, BLUE if value > 0 else RED, 3.4, abs(value) ** 0.5)
        canvas.text(54 + 104 * k, 176, f"λ = {float(spectrum.values[0, column]):.2f}", colour=GREY)
    return canvas


def gps() -> Canvas:
    """What lets GPS name the skips of a ring, which message passing cannot: how often a random walk is back after 2 to
    20 steps, for the ten graphs of the data. Each is a ring of 41 nodes with links to those that many places on."""
    canvas = Canvas()
    axes = Axes(canvas, (14, 16, 292, 160), (2, 20), (0, 0.6))
    for k, skip in enumerate((2, 3, 4, 5, 6, 9, 11, 12, 13, 16)):
        ringed = networkx.circulant_graph(41, [1, skip])
        returns = random_walk_returns(Graph.from_networkx(ringed), 20)[0]
        axes.line(range(2, 21), returns[1:].tolist(), COLOURS[k % len(COLOURS)], 1.1, dash="" if k < 8 else "3 2")
    axes.labels("steps", "chance to be back")
    return canvas


def min_cut() -> Canvas:
    """Min-cut pooling finds clusters by its own losses, without any label: four communities after 200 steps, each node
    in the colour of the cluster that it mostly belongs to."""
    torch.manual_seed(1)
    links = networkx.planted_partition_graph(4, 12, 0.5, 0.03, seed=3)
    graph = Graph.from_networkx(links)
    spots_ = networkx.spring_layout(links, seed=2)
    x = torch.eye(48)
    assign = ClusterAssignment(48, 4)
    optimizer = torch.optim.Adam(assign.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        pooled = min_cut_pool(graph, x, assign(graph, x))
        (pooled.cut + pooled.orthogonality).sum().backward()
        optimizer.step()
    clusters = assign(graph, x).argmax(-1).tolist()
    spots = fitted([spots_[node].tolist() for node in range(48)], (14, 14, 292, 172))
    canvas = Canvas()
    canvas.graph(pairs(graph), spots, opacity=0.5)
    for spot, cluster in zip(spots, clusters, strict=True):
        canvas.node(spot, COLOURS[cluster], 5, 0.95)
    return canvas


def slide() -> Canvas:
    """A simulated slide as the recipe's data have it: its tissue in grey, in cells of 16 pixels, and the planted
    region of large dark nuclei in red, which the model has to find from the slide's label alone."""
    planned = next(p for p in (plan(number, 0) for number in range(20)) if p.region.any())
    canvas = Canvas()
    tissue = torch.tensor(planned.tissue).float().reshape(32, 2, 32, 2).amax((1, 3))
    region = torch.tensor(planned.region).float().reshape(32, 2, 32, 2).amax((1, 3))
    canvas.heat(0.35 * tissue * (1 - region), (70, 10, 180, 180), (GREY, RED), 1.0)
    canvas.heat(-region, (70, 10, 180, 180), (GREY, RED), 1.0, frame=False)
    return canvas
