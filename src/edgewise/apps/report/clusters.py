"""The clusters to which a trained model pools graphs, drawn on them."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import nn

from edgewise.apps.report import figures
from edgewise.apps.report.attention import Drawing, lay_out, tensor
from edgewise.models import PooledTransformer
from edgewise.tasks import GraphClassification, Pattern, Task

GRAPHS = 6
LARGEST = 60  # nodes of a graph that is drawn


def draw_clusters(task: Task, pattern: Pattern, model: nn.Module) -> Drawing | None:
    """Some test graphs, each node in the colour of the cluster to which most of it belongs."""
    if not isinstance(task, GraphClassification) or not isinstance(model, PooledTransformer) or not task.has_test:
        return None
    batch = next(iter(task.batches("test", 100, pattern)))
    cluster = model.clusters(batch.graph, tensor(batch)).argmax(-1).numpy()
    sizes = batch.graph.sizes.numpy()
    first = np.cumsum(sizes) - sizes
    small = [number for number in range(len(sizes)) if 3 <= sizes[number] <= LARGEST][:GRAPHS]
    if not small:
        return None
    columns = 3
    rows = -(-len(small) // columns)
    with figures.drawing(2.4 * rows, (rows, columns)) as (figure, grid):
        for place in range(rows * columns):
            axes: Axes = grid[place // columns, place % columns]
            figures.bare(axes)
            if place >= len(small):
                continue
            nodes = first[small[place]] + np.arange(sizes[small[place]])
            member = batch.graph.subgraph(torch.from_numpy(nodes))
            i, j = member.receivers.numpy(), member.senders.numpy()
            nobody = np.zeros(len(nodes), dtype=bool)
            figures.draw_network(axes, lay_out(len(nodes), i, j), i, j, None, cluster[nodes], nobody)
            axes.set_title(task.graphs.classes[int(batch.target[small[place]])] if task.graphs.classes else "")
    used = len(np.unique(cluster))
    told = f"Graphs of the test part, each node in the colour of the cluster to which it belongs most: {used} of"
    return Drawing("clusters", figure, f"{told} {model.settings.clusters} clusters are used here.")
