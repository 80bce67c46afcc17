"""Pictures of section E: graph transformers, encodings and pooling."""

import networkx
import torch
from canvas import BLUE, COLOURS, GREY, RED, Axes, Canvas, fitted
from club import club, pairs, places
from trained import attention, trained

from edgewise import Graph
from edgewise.graphs.make.spectral import laplacian_kernel, laplacian_spectrum, random_walk_returns
from edgewise.layers import ClusterAssignment, min_cut_pool


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
    """Where the recipe's network looks, after its training on the labels of 80 slides alone: two test slides, their
    tiles the redder the more they speak for the class "planted", and the outline of the region of large dark
    nuclei that was planted in them, which it was never shown."""
    run = trained("slides-min-cut", ("task.count", "80"))
    task, canvas = run.task, Canvas()
    chosen = [g for g in task.slides.splits["test"].tolist() if int(task.slides.targets[g]) == len(task.classes) - 1]
    for k, number in enumerate(chosen[:2]):
        layout, region = task.layouts[number], task.slides.region(number)
        heat = task.heat(run.model.eval(), number, run.config.graph, "cpu", len(task.classes) - 1).clamp(min=0)
        box, rows = (10 + 156 * k, 24, 144, 144), round(max(layout.extent) / layout.side)
        tiles = torch.zeros(2, rows, rows)
        tiles[:, *layout.places.T] = torch.stack([torch.full_like(heat, 0.2), heat / heat.max()])
        canvas.heat(tiles[0], box, (GREY, GREY), 1.0)
        canvas.heat(tiles[1], box, (RED, RED), 1.0, frame=False)
        cell = 144 / len(region)
        inside = set(map(tuple, torch.tensor(region).nonzero().tolist()))
        rim = []
        for r, c in sorted(inside):
            x, y = 10 + 156 * k + cell * c, 24 + cell * r
            corners = {(-1, 0): ((x, y), (x + cell, y)), (1, 0): ((x, y + cell), (x + cell, y + cell)),
                       (0, -1): ((x, y), (x, y + cell)), (0, 1): ((x + cell, y), (x + cell, y + cell))}  # fmt: skip
            rim += [line for (down, across), line in corners.items() if (r + down, c + across) not in inside]
        canvas.lines(rim, "currentColor", 1.2)
    return canvas
