import pytest
import torch

from edgewise.apps.report import figures
from edgewise.apps.report.clusters import draw_clusters
from edgewise.models import GNN, GNNSettings, PooledTransformer, PooledTransformerSettings
from edgewise.tasks import karate, skip_links


def test_every_node_of_some_test_graphs_has_the_colour_of_its_cluster():
    task = skip_links(copies=5)
    model = PooledTransformer(PooledTransformerSettings(width=8, clusters=3, heads=2), task.signature).eval()
    with torch.no_grad():
        model.assign.linear.weight.zero_()
        model.assign.linear.bias.copy_(torch.tensor([0.0, 9.0, 0.0]))
    drawing = draw_clusters(task, None, model)
    drawn = figures.svg(drawing.figure, "clusters")
    nodes = 6 * 41
    assert drawn.count(f"fill: {figures.CLASSES[1]}") + drawn.count(f'fill="{figures.CLASSES[1]}"') >= nodes
    assert figures.CLASSES[0] not in drawn and figures.CLASSES[2] not in drawn
    assert "1 of 3 clusters" in drawing.caption


@pytest.mark.parametrize("task", [karate(), skip_links(copies=5)], ids=["nodes", "no pooling"])
def test_without_pooled_graphs_there_is_nothing_to_draw(task):
    readout = "mean" if task.signature.whole_graph else "none"
    assert draw_clusters(task, None, GNN(GNNSettings(readout=readout), task.signature)) is None
