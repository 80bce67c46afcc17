"""Twins of layers that attend to neighbours, over their options."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from edgewise.interop import convert
from interop.geometric.parity import check, graphs

pyg = pytest.importorskip("torch_geometric.nn")


@pytest.fixture(params=graphs().items(), ids=lambda item: item[0])
def graph(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(3)
    return request.param[1]


OPTIONS: list[Any] = [
    {},
    {"heads": 2},
    {"heads": 2, "concat": False},
    {"add_self_loops": False},
    {"negative_slope": 0.5},
    {"bias": False},
    {"residual": True, "heads": 2},
    {"edge_dim": 4, "heads": 2},
    {"edge_dim": 4, "add_self_loops": False},
    {"edge_dim": 4, "fill_value": "max"},
    {"edge_dim": 4, "fill_value": 0.5},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_gat(graph: Any, kind: str, options: Any) -> None:
    edge_index, nodes = graph
    layer = getattr(pyg, kind)(5, 3, **options)
    given = {"edge_attr": torch.randn(edge_index.shape[1], 4)} if "edge_dim" in options else {}
    check(layer, torch.randn(nodes, 5), edge_index, **given)
    if nodes:
        check(layer, torch.randn(nodes, 5), edge_index, **given, return_attention_weights=True)
    if "edge_dim" in options:
        check(layer, torch.randn(nodes, 5), edge_index)


def test_gatv2_with_shared_weights(graph: Any) -> None:
    edge_index, nodes = graph
    check(pyg.GATv2Conv(5, 3, heads=2, share_weights=True), torch.randn(nodes, 5), edge_index)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_attention_between_two_sides(kind: str) -> None:
    edge_index = torch.tensor([[0, 6, 2, 2, 6], [0, 1, 3, 3, 3]])
    x = torch.randn(7, 5), torch.randn(4, 6)
    options = {} if kind == "TransformerConv" else {"add_self_loops": False}
    check(getattr(pyg, kind)((5, 6), 3, heads=2, **options), x, edge_index)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 2},
        {"heads": 2, "concat": False},
        {"beta": True},
        {"beta": True, "concat": False, "heads": 2},
        {"root_weight": False},
        {"bias": False},
        {"edge_dim": 4, "heads": 2},
        {"edge_dim": 4, "beta": True},
    ],
)
def test_transformer(graph: Any, options: Any) -> None:
    edge_index, nodes = graph
    given = {"edge_attr": torch.randn(edge_index.shape[1], 4)} if "edge_dim" in options else {}
    layer = pyg.TransformerConv(5, 3, **options)
    check(layer, torch.randn(nodes, 5), edge_index, **given)
    if nodes:
        check(layer, torch.randn(nodes, 5), edge_index, **given, return_attention_weights=True)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_dropout_acts_in_training_alone(kind: str) -> None:
    layer = convert(getattr(pyg, kind)(5, 3, dropout=0.5))
    x, edge_index = torch.randn(6, 5), torch.randint(0, 6, (2, 20))
    assert not torch.equal(layer(x, edge_index), layer(x, edge_index))
    layer.eval()
    assert torch.equal(layer(x, edge_index), layer(x, edge_index))
    layer.train()
    y, (_, alpha) = layer(x, edge_index, return_attention_weights=True)  # those after dropout, as they were
    assert bool((alpha == 0).any()) == (kind != "TransformerConv")  # whose weights are those before dropout
    assert y.shape == (6, 3)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_several_signals_on_one_graph_are_refused_as_by_the_layer_itself(kind: str) -> None:
    layer = convert(getattr(pyg, kind)(5, 3, heads=2))
    with pytest.raises((AssertionError, RuntimeError)):
        layer(torch.randn(2, 4, 5), torch.tensor([[0, 1], [1, 2]]))


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_another_map_of_edges(kind: str, graph: Any) -> None:
    edge_index, nodes = graph
    layer, inputs = getattr(pyg, kind)(5, 4, heads=2, edge_dim=3), (torch.randn(nodes, 5), edge_index)
    for lin in (nn.Linear(3, 8), nn.Sequential(nn.Linear(3, 8), nn.Tanh())):
        layer.lin_edge = lin
        check(layer, *inputs, torch.randn(edge_index.shape[1], 3))
    if kind != "TransformerConv":
        check(layer, *inputs)


@pytest.mark.filterwarnings("ignore:`?torch.nn.utils.weight_norm")
@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_hooks_of_the_map_of_edges_are_called(kind: str) -> None:
    def trained(twin: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = getattr(pyg, kind)(5, 4, edge_dim=3)
        nn.utils.weight_norm(layer.lin_edge)
        layer = convert(layer) if twin else layer
        for _ in range(2):
            y = layer(torch.ones(6, 5), torch.tensor([[0, 1, 2], [3, 3, 4]]), torch.eye(3))
            y.square().sum().backward()
        return [p.grad for p in layer.parameters()]

    torch.testing.assert_close(trained(True), trained(False))


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_dropout_of_all_weights_leaves_what_it_left(kind: str) -> None:
    layer, x, edge_index = getattr(pyg, kind)(5, 3, dropout=1.0), torch.randn(4, 5), torch.tensor([[0, 1], [1, 2]])
    torch.testing.assert_close(convert(deepcopy(layer))(x, edge_index), layer(x, edge_index))
