"""Twins of layers whose messages are weighted neighbours, inside PyTorch Geometric's own forward passes."""

import gc
from copy import deepcopy
from typing import Any
from unittest import mock
from weakref import ref

import pytest
import torch
from torch import nn

from edgewise.interop import conversion, convert
from edgewise.interop.geometric import weighted
from interop.geometric.parity import check, graphs

pyg = pytest.importorskip("torch_geometric.nn")

LAYERS: dict[str, Any] = {
    "APPNP": lambda: pyg.APPNP(3, 0.1),
    "APPNP by means": lambda: pyg.APPNP(2, 0.1, aggr="mean"),
    "APPNP by maxima": lambda: pyg.APPNP(2, 0.1, aggr="max"),
    "APPNP without loops": lambda: pyg.APPNP(2, 0.2, add_self_loops=False, normalize=False),
    "ARMA": lambda: pyg.ARMAConv(5, 4, num_stacks=2, num_layers=2),
    "ARMA with shared weights": lambda: pyg.ARMAConv(5, 4, num_layers=2, shared_weights=True),
    "Chebyshev": lambda: pyg.ChebConv(5, 4, K=3),
    "Chebyshev by rows": lambda: pyg.ChebConv(5, 4, K=2, normalization="rw"),
    "cluster": lambda: pyg.ClusterGCNConv(5, 4, diag_lambda=0.1),
    "GCN2": lambda: pyg.GCN2Conv(5, 0.2, 0.5, 1),
    "graph": lambda: pyg.GraphConv(5, 8),
    "narrower graph": lambda: pyg.GraphConv(5, 2),
    "narrower graph by means": lambda: pyg.GraphConv(5, 2, aggr="mean"),
    "narrower graph by maxima": lambda: pyg.GraphConv(5, 2, aggr="max", bias=False),
    "light": lambda: pyg.LGConv(),
    "light without norm": lambda: pyg.LGConv(normalize=False),
    "degrees": lambda: pyg.MFConv(5, 4, max_degree=3),
    "mixed hops": lambda: pyg.MixHopConv(5, 3, powers=[0, 1, 3]),
    "simple": lambda: pyg.SGConv(5, 4, K=2),
    "wider simple": lambda: pyg.SGConv(5, 8, K=2),
    "simple spectral": lambda: pyg.SSGConv(5, 4, alpha=0.1, K=3),
    "adaptive": lambda: pyg.TAGConv(5, 4, K=2),
    "narrower Chebyshev": lambda: pyg.ChebConv(5, 1, K=5),
    "narrower Chebyshev by rows": lambda: pyg.ChebConv(5, 2, K=2, normalization="rw", bias=False),
    "one Chebyshev": lambda: pyg.ChebConv(5, 2, K=1, normalization=None),
    "narrower mixed hops": lambda: pyg.MixHopConv(5, 1, powers=[3, 0, 1]),
    "narrower mixed hops beyond 0": lambda: pyg.MixHopConv(5, 2, powers=[2, 1], bias=False),
    "narrower simple": lambda: pyg.SGConv(5, 2, K=3),
    "narrower simple by means": lambda: pyg.SGConv(5, 2, K=2, aggr="mean", bias=False),
    "narrower simple by maxima": lambda: pyg.SGConv(5, 2, K=2, aggr="max"),
    "narrower simple spectral": lambda: pyg.SSGConv(5, 2, alpha=0.2, K=3),
    "narrower simple spectral step": lambda: pyg.SSGConv(5, 2, alpha=0.2, K=1, add_self_loops=False),
    "narrower adaptive": lambda: pyg.TAGConv(5, 1, K=3),
    "narrower adaptive without norm": lambda: pyg.TAGConv(5, 2, K=1, normalize=False, bias=False),
    "adaptive without norm": lambda: pyg.TAGConv(5, 4, K=2, normalize=False),
}
WEIGHTED = [name for name in LAYERS if name not in ("cluster", "degrees")]


@pytest.fixture(params=graphs().items(), ids=lambda item: item[0])
def graph(request: pytest.FixtureRequest) -> Any:
    return request.param[1]


def made(name: str) -> Any:
    torch.manual_seed(3)
    return LAYERS[name]()


def inputs_of(layer: Any, nodes: int, batch: tuple[int, ...] = ()) -> tuple[torch.Tensor, ...]:
    x = torch.randn(*batch, nodes, 5)
    return (x, torch.randn(*batch, nodes, 5)) if isinstance(layer, pyg.GCN2Conv) else (x,)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name: str, graph: Any) -> None:
    edge_index, nodes = graph
    layer = made(name)
    if edge_index.numel() or "Chebyshev" not in name:  # which has no largest weight then
        check(layer, *inputs_of(layer, nodes), edge_index)


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_layer_with_weights(name: str, graph: Any) -> None:
    edge_index, nodes = graph
    layer = made(name)
    if edge_index.numel() or "Chebyshev" not in name:
        check(layer, *inputs_of(layer, nodes), edge_index, torch.rand(edge_index.shape[1]) + 0.5)


@pytest.mark.parametrize("layer", [pyg.APPNP(2, 0.2, cached=True), pyg.SGConv(5, 4, K=2, cached=True)])
def test_what_a_layer_caches(layer: Any, graph: Any) -> None:
    edge_index, nodes = graph
    layer, ours, x = deepcopy(layer), convert(deepcopy(layer)), torch.randn(nodes, 5)
    for _ in range(3):
        torch.testing.assert_close(ours(x, edge_index), layer(x, edge_index))


def test_all_of_them_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index = torch.randint(9, (2, 30))
    with mock.patch.object(weighted, "aggregate", wraps=weighted.aggregate) as seen:
        for name in LAYERS:
            layer, before = convert(made(name)), seen.call_count
            assert set(conversion(layer).twins) == {""}
            layer(*inputs_of(layer, 9), edge_index)
            assert seen.call_count > before or name == "one Chebyshev", name


@pytest.mark.parametrize(
    ("name", "columns"),
    [("Chebyshev", 1), ("mixed hops", 2), ("simple", 2), ("simple spectral", 2), ("adaptive", 1)],
)
def test_the_narrower_of_x_and_its_maps_is_summed(name: str, columns: int) -> None:
    layer = convert(made(f"narrower {name}"))
    with mock.patch.object(weighted, "aggregate", wraps=weighted.aggregate) as seen:
        layer(torch.randn(9, 5), torch.randint(9, (2, 30)))
    assert all(call.args[1].shape[-1] <= columns for call in seen.mock_calls)


@pytest.mark.parametrize("name", ["narrower Chebyshev", "narrower mixed hops", "narrower adaptive"])
def test_maps_of_ones_own_with_a_bias(name: str) -> None:
    layer, (edge_index, nodes) = made(name), next(iter(graphs().values()))
    for place, lin in enumerate(layer.lins):
        if isinstance(lin, pyg.Linear):
            layer.lins[place] = nn.Linear(5, lin.out_channels)
    check(layer, torch.randn(nodes, 5), edge_index)


@pytest.mark.parametrize("name", ["graph", "narrower graph", "light", "adaptive", "mixed hops"])
def test_batches_of_features(name: str) -> None:
    check(made(name), torch.randn(2, 9, 5), torch.randint(9, (2, 30)))


@pytest.mark.parametrize("outputs", [2, 8])
def test_two_sides(outputs: int) -> None:
    edge_index = torch.stack([torch.randint(9, (30,)), torch.randint(4, (30,))])
    layer, weight = pyg.GraphConv((5, 3), outputs), torch.rand(30)
    check(layer, (torch.randn(9, 5), torch.randn(4, 3)), edge_index)
    check(layer, (torch.randn(9, 5), torch.randn(4, 3)), edge_index, weight, size=(9, 4))
    for size in ((9, 4), (9, 12)):
        ours, x = convert(deepcopy(layer)), torch.randn(9, 5)
        torch.testing.assert_close(ours((x, None), edge_index, size=size), layer((x, None), edge_index, size=size))
    signed = pyg.SignedConv(5, outputs, first_aggr=True)
    check(signed, torch.randn(9, 5), torch.randint(9, (2, 30)), torch.randint(9, (2, 20)))


def test_edges_with_a_network_of_their_features() -> None:
    torch.manual_seed(0)
    check(pyg.PDNConv(5, 4, 3, 6), torch.randn(9, 5), torch.randint(9, (2, 30)), torch.rand(30, 3))


def test_dropout_of_edges_is_drawn_by_pytorch_geometric() -> None:
    layer, x, edge_index = pyg.APPNP(3, 0.1, dropout=0.5), torch.randn(9, 5), torch.randint(9, (2, 30))
    found = []
    for module in (layer, convert(deepcopy(layer))):
        torch.manual_seed(0)
        found.append(module(x, edge_index))
    torch.testing.assert_close(*found)


def test_labels_are_propagated() -> None:
    torch.manual_seed(0)
    layer, y = pyg.LabelPropagation(3, 0.8), torch.randint(4, (9,))
    edge_index, mask = torch.randint(9, (2, 30)), torch.arange(9) < 5
    torch.testing.assert_close(convert(deepcopy(layer))(y, edge_index, mask), layer(y, edge_index, mask))


def test_the_edges_that_a_layer_makes_anew_are_one_graph_while_they_are_the_same() -> None:
    layer, edge_index, x = convert(made("wider simple")), torch.randint(9, (2, 30)), torch.randn(9, 5)
    right = deepcopy(made("wider simple"))
    with mock.patch.object(weighted.Graph, "from_edge_index", wraps=weighted.Graph.from_edge_index) as seen:
        for _ in range(3):
            torch.testing.assert_close(layer(x, edge_index), right(x, edge_index))
        assert seen.call_count == 1
        edge_index[0, 3] = (edge_index[0, 3] + 1) % 9
        torch.testing.assert_close(layer(x, edge_index), right(x, edge_index))
        assert seen.call_count == 2
        torch.testing.assert_close(layer(x[:, :], edge_index[:, :20]), right(x, edge_index[:, :20]))
        assert seen.call_count == 3


def test_layers_share_the_edges_that_they_make_and_let_them_go() -> None:
    net = torch.nn.ModuleList([convert(made("wider simple")), convert(pyg.TAGConv(4, 4))])
    edge_index, x = torch.randint(9, (2, 30)), torch.randn(9, 5)
    with mock.patch.object(weighted.Graph, "from_edge_index", wraps=weighted.Graph.from_edge_index) as seen:
        net[0](x, edge_index)
        light = convert(pyg.TAGConv(5, 4))
        light(x, edge_index)  # without self-loops
        assert seen.call_count == 2
        other = convert(made("wider simple"))
        for _ in range(2):
            other(x, edge_index)
            net[1](x[:, :4], edge_index)
        assert seen.call_count == 2
    held = ref(weighted._last[net[0]].edge_index)
    assert weighted._last[other] is weighted._last[net[0]]
    assert weighted._last[light].edge_index is edge_index
    del net, light, other, seen
    gc.collect()
    assert held() is None


def test_edges_that_were_written_in_place_are_another_graph() -> None:
    layer, edge_index, x = convert(made("light without norm")), torch.tensor([[0, 1], [1, 2]]), torch.randn(3, 5)
    layer(x, edge_index)
    other = edge_index.clone()
    edge_index[1, 1] = 0
    torch.testing.assert_close(layer(x, edge_index.clone()), made("light without norm")(x, edge_index))
    torch.testing.assert_close(layer(x, other), made("light without norm")(x, other))


def test_those_who_look_at_messages_see_them_and_other_numbers_stay() -> None:
    ours, theirs, calls = convert(made("graph")), made("graph"), list[Any]()
    x, edge_index = torch.randn(9, 5), torch.randint(9, (2, 30))
    torch.testing.assert_close(ours(x.double().float(), edge_index, torch.ones(30)), theirs(x, edge_index))
    light = convert(made("light without norm"))
    weight = torch.ones(30, dtype=torch.float64)
    torch.testing.assert_close(light(x, edge_index, weight), made("light without norm")(x, edge_index, weight))
    ours.register_message_forward_hook(lambda *args: calls.append(args[-1]))
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index))
    assert calls


def test_refusals_are_named() -> None:
    net = torch.nn.ModuleList([pyg.GraphConv(5, 4, aggr="mul"), pyg.GraphConv(5, 4, flow="target_to_source")])
    with pytest.warns(UserWarning, match="aggr=mul"):
        convert(net)
    assert conversion(net).others["1"] == "GraphConv with flow='target_to_source'"
