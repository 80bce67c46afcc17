"""What is explained of an input: the number, its name, and which nodes are drawn; and a model's last attention."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgewise import ConfigError, ExplanationError, Graph
from edgewise.kernels import record
from edgewise.layers import GCN
from edgewise.models import Transformer, TransformerSettings
from edgewise.tasks import Text
from edgewise.tasks.core.drawing import Drawing, Scores
from edgewise.tasks.core.subject import Subject, captured, last_attention, matrices, movement, on_graph

RING = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
X = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))


def test_of_classes_the_odds_are_explained_and_the_chance_is_shown() -> None:
    layer = GCN(2, 3)
    subject = Subject((RING, X), (1,), ("a", "b", "c"))
    explained, shown, what = subject.explained(layer, "b")
    p = layer(RING, X)[1].softmax(-1)[1]
    assert what == "'b'" and explained.node == 1
    assert shown(explained.outputs()).item() == pytest.approx(p.item(), abs=1e-6)
    assert explained.value == pytest.approx((p / (1 - p)).log().item(), abs=1e-5)
    best = int(layer(RING, X)[1].argmax())
    assert subject.explained(layer)[2] == repr("abc"[best])
    assert subject.explained(layer, "2")[2] == "'c'"


@pytest.mark.parametrize("wanted", ["d", "3", "-1", "९"])
def test_a_class_that_is_not_there_is_refused(wanted: str) -> None:
    with pytest.raises(ConfigError, match="target"):
        Subject((RING, X), (1,), ("a", "b", "c")).explained(GCN(2, 3), wanted)


def test_a_number_has_no_target() -> None:
    with pytest.raises(ConfigError, match="one number"):
        Subject((RING, X), number=lambda y: y.sum()).explained(GCN(2, 3), "1")


def test_the_first_call_of_a_model_is_captured() -> None:
    layer = GCN(2, 3)
    graph, x = captured(layer, lambda: (layer(RING, X), layer(RING, 0 * X)))
    assert graph is RING and x is X
    with pytest.raises(ExplanationError, match="not evaluated on a graph"):
        captured(layer, lambda: None)


def test_of_a_large_graph_the_nodes_that_matter_are_drawn() -> None:
    links = torch.arange(99)
    path = Graph.from_edge_index(torch.stack([links, links + 1]), num_nodes=100)
    nodes = torch.zeros(100)
    nodes[[7, 70]] = torch.tensor([1.0, -2.0])
    (drawn,) = on_graph(path, None, nodes, centre=50)
    assert isinstance(drawn, Drawing) and isinstance(drawn.figure, Scores)
    shown = drawn.figure
    assert [*shown.names] == ["7", "50", "70"]  # and none of the other 97, which do not matter
    assert shown.centre is not None and shown.names[shown.centre] == "50"
    assert drawn.caption == "The 3 of 100 nodes that matter. A ring marks the explained node."
    (drawn,) = on_graph(path, None, torch.arange(100.0), centre=50)
    assert isinstance(drawn, Drawing) and isinstance(drawn.figure, Scores) and len(drawn.figure.nodes) == 48
    assert drawn.caption == "The 48 of 100 nodes that matter most. A ring marks the explained node."
    (drawn,) = on_graph(path, torch.arange(99.0), nodes)
    assert isinstance(drawn, Drawing) and drawn.caption.endswith(
        "next to a node, thicker for larger scores, shows what that node receives."
    )


def test_movement_is_explained_of_the_particle_that_moves_furthest() -> None:
    class Shift(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return x[:, :2] + torch.tensor([[0.0, 0.1], [0.0, 3.0], [0.2, 0.0]])

    x = torch.randn(3, 4)
    subject = movement((RING, x), Shift(), 2)
    explained, _, what = subject.explained(Shift())
    assert what == "how far particle 1 moves" and explained.value == pytest.approx(3.0, abs=1e-5)
    (drawn,) = subject.draw(None, torch.ones(3))
    assert isinstance(drawn, Drawing) and isinstance(drawn.figure, Scores) and drawn.figure.places is not None
    assert drawn.figure.places.tolist() == x[:, :2].double().tolist() and drawn.figure.centre == 1


def test_weights_of_parallel_edges_add_up() -> None:
    graph = Graph.from_edge_index([[1, 1, 0], [0, 0, 1]], num_nodes=2)
    np.testing.assert_array_equal(matrices(graph, torch.tensor([[0.25, 0.75, 1.0]])), [[[0, 1], [1, 0]]])


def test_the_last_attention_is_that_of_the_last_block() -> None:
    task = Text("abc", "abcabcabca" * 30, context=8)
    model = Transformer(TransformerSettings(width=8, depth=2, heads=2), task.signature).eval()
    batch = next(task.batches("valid", 1))
    with record() as calls:
        expected = model(batch.graph, batch.x)
    outputs, call = last_attention(model, batch.graph, batch.x)
    assert call is not None and len(calls) == 2
    assert torch.equal(outputs, expected)
    assert torch.equal(call.weights, calls[1].weights)
