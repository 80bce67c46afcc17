"""Twins of layers that sum, average or maximise, over their options."""

from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from edgewise.interop import conversion, convert
from edgewise.interop.geometric import sums
from interop.geometric.parity import check, graphs

pyg = pytest.importorskip("torch_geometric.nn")


@pytest.fixture(params=graphs().items(), ids=lambda item: item[0])
def graph(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(3)
    return request.param[1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"improved": True},
        {"add_self_loops": False},
        {"normalize": False},
        {"bias": False},
        {"cached": True},
        {"aggr": "mean"},
        {"aggr": "max"},
    ],
)
@pytest.mark.parametrize("outputs", [3, 8])
def test_gcn(graph: Any, options: Any, outputs: int) -> None:
    edge_index, nodes = graph
    check(pyg.GCNConv(5, outputs, **options), torch.randn(nodes, 5), edge_index)
    weight = torch.rand(edge_index.shape[1]) + 0.5
    if not options.get("cached"):
        check(pyg.GCNConv(5, outputs, **options), torch.randn(nodes, 5), edge_index, weight)
    check(pyg.GCNConv(5, outputs, **options), torch.randn(2, nodes, 5), edge_index)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("layer", [pyg.GCNConv(5, 3), pyg.GCNConv(5, 8), pyg.SGConv(5, 3)])
def test_weights_in_a_column(layer: Any, cached: bool, graph: Any) -> None:
    edge_index, nodes = graph
    x, weight = torch.randn(nodes, 5), torch.rand(edge_index.shape[1], 1) + 0.5
    layer = deepcopy(layer)
    layer.cached = cached
    ours = convert(deepcopy(layer))
    for _ in range(2):
        torch.testing.assert_close(ours(x, edge_index, weight), layer(x, edge_index, weight))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aggr": "sum"},
        {"aggr": "max"},
        {"aggr": "min"},
        {"normalize": True},
        {"root_weight": False},
        {"project": True},
        {"bias": False},
    ],
)
@pytest.mark.parametrize("outputs", [3, 8])
def test_sage(graph: Any, options: Any, outputs: int) -> None:
    edge_index, nodes = graph
    check(pyg.SAGEConv(5, outputs, **options), torch.randn(nodes, 5), edge_index)


def test_sage_between_two_sides() -> None:
    edge_index = torch.tensor([[0, 6, 2, 2, 6], [0, 1, 3, 3, 3]])
    check(pyg.SAGEConv((5, 4), 3), (torch.randn(7, 5), torch.randn(4, 4)), edge_index)
    check(pyg.SAGEConv((5, 4), 3), (torch.randn(7, 5), torch.randn(4, 4)), edge_index, size=(7, 4))
    check(pyg.SAGEConv((5, 4), 3, root_weight=False), (torch.randn(7, 5), None), edge_index, size=(7, 4))


def test_sage_that_does_not_know_its_width_yet() -> None:
    from edgewise.interop import convert

    layer = convert(pyg.SAGEConv((-1, -1), 3))
    y = layer(torch.randn(4, 5), torch.tensor([[0, 1], [1, 2]]))
    assert y.shape == (4, 3)
    assert layer(torch.randn(4, 5), torch.tensor([[0, 1], [1, 2]])).shape == (4, 3)


@pytest.mark.parametrize("options", [{}, {"train_eps": True, "eps": 0.5}, {"aggr": "max"}, {"aggr": "mean"}])
def test_gin(graph: Any, options: Any) -> None:
    edge_index, nodes = graph
    mlp = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    check(pyg.GINConv(mlp, **options), torch.randn(nodes, 5), edge_index)


@pytest.mark.parametrize(
    "options", [{}, {"train_eps": True, "eps": 0.5}, {"edge_dim": 4}, {"edge_dim": 4, "aggr": "max"}]
)
def test_gine(graph: Any, options: Any) -> None:
    edge_index, nodes = graph
    mlp = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    e = torch.randn(edge_index.shape[1], options.get("edge_dim", 5))
    check(pyg.GINEConv(mlp, **options), torch.randn(nodes, 5), edge_index, e)


@pytest.mark.parametrize("options", [{}, {"aggr": "mean"}, {"bias": False}])
def test_gated(graph: Any, options: Any) -> None:
    edge_index, nodes = graph
    layer = pyg.GatedGraphConv(6, 2, **options)
    check(layer, torch.randn(nodes, 5), edge_index)
    check(layer, torch.randn(nodes, 6), edge_index, torch.rand(edge_index.shape[1]))


@pytest.mark.parametrize("lin", [nn.Linear(5, 8), nn.Sequential(nn.Linear(5, 8), nn.ReLU())])
@pytest.mark.parametrize("reduce", ["add", "mean"])
def test_gcn_with_another_map(graph: Any, lin: Any, reduce: str) -> None:
    edge_index, nodes = graph
    layer = pyg.GCNConv(5, 8, aggr=reduce)
    layer.lin = lin
    check(layer, torch.randn(nodes, 5), edge_index)


@pytest.mark.parametrize(
    "lin", [nn.Linear(4, 5, bias=False), nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))]
)
def test_gine_with_another_map_of_edges(graph: Any, lin: Any) -> None:
    edge_index, nodes = graph
    layer = pyg.GINEConv(nn.Linear(5, 3), edge_dim=4)
    layer.lin = lin
    check(layer, torch.randn(nodes, 5), edge_index, torch.randn(edge_index.shape[1], 4))


def test_layers_called_in_inference_mode_first_can_be_trained_then() -> None:
    for layer, *others in (
        (pyg.GCNConv(5, 8),),
        (pyg.SAGEConv(5, 8),),
        (pyg.GATConv(5, 8, edge_dim=3), torch.randn(20, 3)),
        (pyg.GINEConv(nn.Linear(5, 8), edge_dim=3), torch.randn(20, 3)),
    ):
        ours, x, edge_index = convert(layer), torch.randn(9, 5), torch.randint(9, (2, 20))
        with torch.inference_mode():
            before = ours(x, edge_index, *others)
        y = ours(x, edge_index, *others)
        torch.testing.assert_close(y, before)
        y.sum().backward()
        assert all(p.grad is not None for p in ours.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"towers": 2},
        {"towers": 2, "divide_input": True},
        {"edge_dim": 3},
        {"edge_dim": 3, "towers": 2, "divide_input": True},
        {"scalers": ["linear", "inverse_linear"], "train_norm": True, "post_layers": 2},
        {"aggregators": ["std"], "scalers": ["identity"]},
    ],
)
def test_pna(graph: Any, options: Any) -> None:
    edge_index, nodes = graph
    torch.manual_seed(0)
    chosen = {
        "aggregators": ["mean", "min", "max", "std", "sum", "var"],
        "scalers": ["identity", "amplification", "attenuation"],
        "deg": torch.tensor([1, 3, 5, 2]),
    } | options
    layer = pyg.PNAConv(6, 8, **chosen)
    x = torch.randn(nodes, 6)
    e = (torch.randn(edge_index.shape[1], 3),) if "edge_dim" in options else ()
    with mock.patch.object(sums, "graph_of", wraps=sums.graph_of) as seen:
        check(layer, x, edge_index, *e)
        assert seen.call_count == 4  # twice in each width of numbers


def test_pna_with_a_map_without_bias() -> None:
    layer = pyg.PNAConv(5, 4, ["mean"], ["identity"], torch.ones(3), edge_dim=2)
    layer.edge_encoder, layer.pre_nns[0][0] = nn.Linear(2, 5, bias=False), nn.Linear(15, 5, bias=False)
    check(layer, torch.randn(9, 5), torch.randint(9, (2, 30)), torch.randn(30, 2))


def test_pna_that_stays() -> None:
    deg, names = torch.tensor([1, 3]), ["mean"]
    net = nn.ModuleList(
        [
            pyg.PNAConv(6, 8, names, ["identity"], deg, pre_layers=2),
            pyg.PNAConv(6, 8, ["median"], ["identity"], deg),
            pyg.PNAConv(6, 8, names, ["identity"], deg, flow="target_to_source"),
            pyg.PNAConv(6, 8, [pyg.aggr.StdAggregation(semi_grad=True)], ["identity"], deg),
        ]
    )
    with pytest.warns(UserWarning, match="pre_layers=2"):
        convert(net)
    assert conversion(net).others["1"] == "PNAConv with aggregators=['median']"
    assert conversion(net).others["3"] == "PNAConv with semi_grad=True"
    assert len(conversion(net).others) == 4


def test_gcn_with_weights_of_another_width_gives_what_it_gave() -> None:
    x, edge_index, weight = torch.randn(9, 5), torch.randint(9, (2, 20)), torch.rand(20, dtype=torch.float64)
    for layer in (pyg.GCNConv(5, 8), pyg.GCNConv(5, 2, normalize=False)):
        right = layer(x, edge_index, weight)
        assert right.dtype == torch.float64
        torch.testing.assert_close(convert(layer)(x, edge_index, weight), right)


@pytest.mark.parametrize(
    "layer",
    [
        pyg.SAGEConv(5, 3, node_dim=0),
        pyg.GCNConv(5, 3, normalize=False, node_dim=0),
        pyg.GINConv(nn.Linear(5, 3), node_dim=0),
    ],
)
def test_another_axis_of_nodes_is_read_as_by_pytorch_geometric(layer: Any) -> None:
    edge_index, x = torch.tensor([[0, 1, 2, 5], [1, 2, 0, 0]]), torch.randn(6, 6, 5)
    torch.testing.assert_close(convert(deepcopy(layer))(x, edge_index), layer(x, edge_index))
