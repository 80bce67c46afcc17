import pytest
import torch

from edgewise import Graph, ShapeError
from edgewise.graphs import squares
from edgewise.layers import PatchMerging, WindowAttention
from layers.parity import assert_parity, leaf


def _dense(layer, x, rows, size, shift):
    """(4) pixel by pixel: only those in the same square are heard, each with the bias of its offset."""
    columns, heads, channels = layer.columns, layer.b.shape[0], layer.channels
    q, k, v = layer.projection(x).unflatten(-1, (3, heads, channels)).unbind(-3)
    table = layer.b.view(heads, 2 * layer.size - 1, 2 * layer.size - 1)
    heard = []
    for i in range(rows * columns):
        y_i, x_i = divmod(i, columns)
        near = [
            (j, y_i - y_j + layer.size - 1, x_i - x_j + layer.size - 1)
            for j in range(rows * columns)
            for y_j, x_j in (divmod(j, columns),)
            if ((y_i - shift) // size, (x_i - shift) // size) == ((y_j - shift) // size, (x_j - shift) // size)
        ]
        j, down, across = (torch.tensor(index) for index in zip(*near, strict=True))
        s = torch.einsum("hc,jhc->jh", q[i], k[j]) / channels**0.5 + table[:, down, across].T
        heard.append(torch.einsum("jh,jhc->hc", s.softmax(0), v[j]).flatten())
    return layer.output(torch.stack(heard))


@pytest.mark.parametrize(("rows", "columns", "size", "shift"), [(4, 4, 2, 0), (4, 6, 4, 2), (5, 7, 3, 1), (3, 3, 3, 0)])
def test_window_attention_is_its_equation(rows, columns, size, shift):
    torch.manual_seed(0)
    layer = WindowAttention(8, 2, columns, size).double()
    torch.nn.init.normal_(layer.b)
    x = leaf(rows * columns, 8)
    graph = squares(rows, columns, size, shift)
    expected = _dense(layer, x, rows, size, shift)
    assert_parity(layer, dict(layer.named_parameters()), (graph, x), expected, [x, *layer.parameters()])


def test_windows_are_a_graph():
    """The same edges given one by one, in another order: the same result."""
    torch.manual_seed(0)
    layer, x = WindowAttention(8, 2, columns=6, size=3).double(), leaf(2, 36, 8)
    graph = squares(6, 6, 3, shift=1)
    shuffled = graph.edge_index()[:, torch.randperm(graph.num_edges)]
    given = layer(Graph.from_edge_index(shuffled, num_nodes=36), x)
    assert torch.allclose(layer(graph, x), given, atol=1e-12)


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (6, 18), (3, 20)])
def test_rows_of_the_graph_are_rows_of_the_result(start, stop):
    layer, x = WindowAttention(8, 2, columns=6, size=3).double(), leaf(24, 8)
    torch.nn.init.normal_(layer.b)
    graph = squares(4, 6, 3, shift=1)
    assert torch.allclose(layer(graph.rows(start, stop), (x[start:stop], x)), layer(graph, x)[start:stop], atol=1e-12)


def test_merging_takes_two_by_two_pixels():
    merge = PatchMerging(1, columns=4).double()
    merge.norm = torch.nn.Identity()
    merge.reduction = torch.nn.Identity()
    pixels = torch.arange(16.0, dtype=torch.float64)[:, None]
    assert merge(pixels).tolist() == [[0, 4, 1, 5], [2, 6, 3, 7], [8, 12, 9, 13], [10, 14, 11, 15]]
    with pytest.raises(ShapeError, match="do not merge"):
        merge(torch.zeros(12, 1))
