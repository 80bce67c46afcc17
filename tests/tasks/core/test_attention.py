import numpy as np
import torch

from edgewise.graphs import Graph
from edgewise.kernels import record
from edgewise.models import Transformer, TransformerSettings
from edgewise.tasks import Text
from edgewise.tasks.core.subject import last_attention, matrices


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
