"""Every layer of PyTorch Geometric that has a twin gives what it gave, over its options and graphs of every kind."""

import gc
import pickle
import warnings
import weakref
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import edgewise
from edgewise.errors import GraphError
from edgewise.interop import conversion, convert, twin
from edgewise.interop.converting import TWINS
from edgewise.interop.geometric import attention, sums
from edgewise.kernels.gates import Gates, gated
from interop.geometric.parity import check, graphs, outputs
from pretend import CARD, Card

pyg = pytest.importorskip("torch_geometric.nn")
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks  # noqa: E402

IS_SMALL = twin.is_small  # before conftest's
DEGREES = {"deg": torch.tensor([1, 3, 5, 2]), "scalers": ["identity", "amplification", "attenuation"]}
ALL = {"aggregators": ["mean", "min", "max", "std", "sum", "var"], **DEGREES}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def blank(x: Tensor, edges: Tensor) -> tuple[Any, ...]:
    return x, edges


def weights(x: Tensor, edges: Tensor) -> tuple[Any, ...]:
    return x, edges, torch.rand(edges.shape[1]) + 0.5


def features(x: Tensor, edges: Tensor) -> tuple[Any, ...]:
    return x, edges, torch.randn(edges.shape[1], 4)


def first(x: Tensor, edges: Tensor) -> tuple[Any, ...]:
    return x, torch.randn_like(x), edges


def typed(x: Tensor, edges: Tensor) -> tuple[Any, ...]:
    return x, edges, torch.randint(0, 3, edges.shape[1:])


def numbered(x: Tensor, edges: Tensor) -> tuple[Any, ...]:
    return torch.arange(len(x)), edges, torch.randint(0, 3, edges.shape[1:])


def signed(x: Tensor, edges: Tensor) -> tuple[Any, ...]:
    return x, edges, edges.flip(0)


# The first of a class's options meets every graph, the others the richest of them.
LAYERS: dict[str, list[tuple[Any, Any]]] = {
    "GCNConv": [
        (lambda: pyg.GCNConv(5, 3), weights),
        (lambda: pyg.GCNConv(5, 8, improved=True), blank),
        (lambda: pyg.GCNConv(5, 3, add_self_loops=False), weights),
        (lambda: pyg.GCNConv(5, 3, normalize=False, bias=False), weights),
        (lambda: pyg.GCNConv(5, 8, cached=True, aggr="mean"), blank),
        (lambda: pyg.GCNConv(5, 3, aggr="max"), blank),
        (lambda: pyg.GCNConv(5, 3), lambda x, edges: (x.expand(2, -1, -1), edges)),
    ],
    "SAGEConv": [
        (lambda: pyg.SAGEConv(5, 3), blank),
        (lambda: pyg.SAGEConv(5, 8, aggr="sum"), blank),
        (lambda: pyg.SAGEConv(5, 3, aggr="max", bias=False), blank),
        (lambda: pyg.SAGEConv(5, 8, aggr="min", project=True), blank),
        (lambda: pyg.SAGEConv(5, 3, normalize=True, project=True), blank),
        (lambda: pyg.SAGEConv(5, 3, root_weight=False, bias=False), blank),
    ],
    "GINConv": [
        (lambda: pyg.GINConv(mlp()), blank),
        (lambda: pyg.GINConv(mlp(), train_eps=True, eps=0.5, aggr="max"), blank),
        (lambda: pyg.GINConv(mlp(), aggr="mean"), blank),
    ],
    "GINEConv": [
        (lambda: pyg.GINEConv(mlp(), edge_dim=4), features),
        (lambda: pyg.GINEConv(mlp(), edge_dim=4, train_eps=True, aggr="max"), features),
        (lambda: pyg.GINEConv(mlp()), lambda x, edges: (x, edges, torch.randn(edges.shape[1], 5))),
    ],
    "GENConv": [
        (lambda: pyg.GENConv(5, 3, edge_dim=4), features),
        (lambda: pyg.GENConv(5, 5, learn_t=True, t=0.3, bias=True), blank),
        (lambda: pyg.GENConv(5, 4, "softmax_sg", t=2.0), features),
        (
            lambda: pyg.GENConv(
                5, 3, "softmax", aggr_kwargs={"learn": True, "channels": 3}, msg_norm=True, learn_msg_scale=True
            ),
            blank,
        ),
        (lambda: pyg.GENConv(5, 3, aggr="max"), blank),
    ],
    "CGConv": [
        (lambda: pyg.CGConv(5, 4), features),
        (lambda: pyg.CGConv(5, aggr="mean", batch_norm=True, bias=False), blank),
    ],
    "ResGatedGraphConv": [
        (lambda: pyg.ResGatedGraphConv(5, 3), blank),
        (lambda: pyg.ResGatedGraphConv(5, 3, nn.PReLU(), root_weight=False, bias=False), blank),
        (lambda: pyg.ResGatedGraphConv(5, 3, nn.Tanh(), edge_dim=4, aggr="max"), features),
    ],
    "NNConv": [
        (lambda: pyg.NNConv(5, 3, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 15))), features),
        (lambda: pyg.NNConv(5, 3, nn.Linear(4, 15, bias=False), aggr="mean", root_weight=False), features),
    ],
    "SuperGATConv": [
        (lambda: pyg.SuperGATConv(5, 3, heads=2).eval(), blank),
        (lambda: pyg.SuperGATConv(5, 3, 2, False, attention_type="SD", add_self_loops=False).eval(), blank),
    ],
    "GatedGraphConv": [
        (lambda: pyg.GatedGraphConv(6, 2), weights),
        (lambda: pyg.GatedGraphConv(5, 2, aggr="mean", bias=False), blank),
    ],
    "PNAConv": [
        (lambda: pyg.PNAConv(5, 8, **ALL), blank),
        (lambda: pyg.PNAConv(5, 8, **ALL, towers=2, edge_dim=4), features),
        (lambda: pyg.PNAConv(5, 5, **ALL, towers=5, divide_input=True), blank),
        (lambda: pyg.PNAConv(5, 8, ["std"], ["linear", "inverse_linear"], DEGREES["deg"], train_norm=True), blank),
    ],
    "GATConv": [
        (lambda: pyg.GATConv(5, 3, heads=2), blank),
        (lambda: pyg.GATConv(5, 3, heads=2, concat=False, negative_slope=0.5), blank),
        (lambda: pyg.GATConv(5, 3, residual=True, bias=False), blank),
        (lambda: pyg.GATConv(5, 3, heads=2, edge_dim=4), features),
        (lambda: pyg.GATConv(5, 3, edge_dim=4, add_self_loops=False), features),
        (lambda: pyg.GATConv(5, 3, edge_dim=4, fill_value="max"), features),
        (lambda: pyg.GATConv(5, 3, edge_dim=4, fill_value=0.5), blank),
    ],
    "GATv2Conv": [
        (lambda: pyg.GATv2Conv(5, 3, heads=2), blank),
        (lambda: pyg.GATv2Conv(5, 3, heads=2, share_weights=True, residual=True), blank),
        (lambda: pyg.GATv2Conv(5, 3, heads=2, edge_dim=4, concat=False), features),
        (lambda: pyg.GATv2Conv(5, 3, edge_dim=4, add_self_loops=False, bias=False), features),
    ],
    "TransformerConv": [
        (lambda: pyg.TransformerConv(5, 3, heads=2), blank),
        (lambda: pyg.TransformerConv(5, 3, heads=2, concat=False, beta=True), blank),
        (lambda: pyg.TransformerConv(5, 3, root_weight=False, bias=False), blank),
        (lambda: pyg.TransformerConv(5, 3, edge_dim=4, heads=2), features),
    ],
    **{
        kind: [
            (lambda kind=kind: getattr(pyg, kind)(5, 4, 3), typed),
            (lambda kind=kind: getattr(pyg, kind)(5, 4, 3, num_bases=2, aggr="add"), typed),
            (lambda kind=kind: getattr(pyg, kind)(5, 5, 3, num_blocks=5, root_weight=False), typed),
            (lambda kind=kind: getattr(pyg, kind)(15, 4, 3, bias=False), numbered),
            (lambda kind=kind: getattr(pyg, kind)(15, 4, 3, num_bases=2), lambda x, *_: (None, *numbered(x, *_)[1:])),
        ]
        for kind in ("RGCNConv", "FastRGCNConv")
    },
    "APPNP": [(lambda: pyg.APPNP(3, 0.1), weights), (lambda: pyg.APPNP(2, 0.2, aggr="max", cached=True), blank)],
    "ARMAConv": [(lambda: pyg.ARMAConv(5, 4, num_stacks=2, num_layers=2), weights)],
    "ChebConv": [(lambda: pyg.ChebConv(5, 4, K=3), weights), (lambda: pyg.ChebConv(5, 4, 2, "rw"), blank)],
    "ClusterGCNConv": [(lambda: pyg.ClusterGCNConv(5, 4, diag_lambda=0.1), blank)],
    "GCN2Conv": [(lambda: pyg.GCN2Conv(5, 0.2, 0.5, 1), first)],
    "GraphConv": [(lambda: pyg.GraphConv(5, 8), weights), (lambda: pyg.GraphConv(5, 2, aggr="max"), blank)],
    "LGConv": [(lambda: pyg.LGConv(), weights), (lambda: pyg.LGConv(normalize=False), weights)],
    "MFConv": [(lambda: pyg.MFConv(5, 4, max_degree=3), blank)],
    "MixHopConv": [(lambda: pyg.MixHopConv(5, 3, powers=[0, 1, 3]), weights)],
    "PDNConv": [(lambda: pyg.PDNConv(5, 4, 4, 6), features)],
    "SGConv": [(lambda: pyg.SGConv(5, 4, K=2), weights)],
    "SignedConv": [(lambda: pyg.SignedConv(5, 4, first_aggr=True), signed)],
    "SSGConv": [(lambda: pyg.SSGConv(5, 4, alpha=0.1, K=3), weights)],
    "TAGConv": [(lambda: pyg.TAGConv(5, 4, K=2), weights), (lambda: pyg.TAGConv(5, 4, normalize=False), weights)],
}
ELSEWHERE = {"GPSConv", "HGTConv", "LabelPropagation"}
RICH = next(iter(graphs()))
CASES = [(name, number) for name, cases in LAYERS.items() for number in range(len(cases))]


def made(name: str, number: int = 0, graph: str = RICH) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(3)
    make, given = LAYERS[name][number]
    edges, nodes = graphs()[graph]
    return make(), given(torch.randn(nodes, 5), edges)


def test_every_class_with_a_twin_is_compared() -> None:
    assert {name for library, name in TWINS if library == "torch_geometric"} == LAYERS.keys() | ELSEWHERE


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Counts the calls of our verbs by twins."""
    seen = mock.Mock(side_effect=lambda verb, *args, **named: verb(*args, **named))
    for part in (sums, attention):
        for name in {"attend", "aggregate", "collect"} & vars(part).keys():
            monkeypatch.setattr(part, name, partial(seen, getattr(part, name)))
    return seen


@pytest.mark.parametrize(("name", "number"), CASES)
def test_options(name: str, number: int, ours: mock.Mock) -> None:
    layer, inputs = made(name, number)
    check(layer, *inputs)
    assert ours.called


@pytest.mark.parametrize("graph", [graph for graph in graphs() if graph != RICH])
@pytest.mark.parametrize("name", LAYERS)
def test_graphs(name: str, graph: str) -> None:
    layer, inputs = made(name, graph=graph)
    if inputs[-1].numel() or name != "ChebConv":  # which has no largest weight then
        check(layer, *inputs)


def test_heterogeneous_graph_transformer(ours: mock.Mock) -> None:
    kinds = [("author", "writes", "paper"), ("paper", "by", "author"), ("paper", "in", "venue")]
    x = {"author": torch.randn(5, 8), "paper": torch.randn(7, 6), "venue": torch.randn(2, 8)}
    edges = {kind: torch.randint(0, 2, (2, 11)) for kind in kinds}
    layer = pyg.HGTConv({name: value.shape[1] for name, value in x.items()}, 8, (list(x), kinds), heads=2)
    for prior in layer.p_rel.values():
        torch.nn.init.normal_(prior)
    check(layer, x, edges)
    assert ours.call_count == 4  # twice in each width of numbers
    layer, right = convert(layer), layer(x, edges)
    with Card():
        layer.to("cuda")
        y = layer(*({key: t.to("cuda") for key, t in given.items()} for given in (x, edges)))
        for kind, t in right.items():
            assert y[kind].device == CARD
            torch.testing.assert_close(y[kind].to("cpu"), t)


@pytest.mark.parametrize("aggr", ["sum", "cat"])
def test_layers_inside_a_heterogeneous_convolution(aggr: str) -> None:
    """Among them gradients and their clipping: each weight has a gradient of its own."""
    torch.manual_seed(0)
    kinds = [("a", "to", "b"), ("b", "to", "a"), ("a", "self", "a")]
    theirs = pyg.HeteroConv({kind: pyg.SAGEConv((8, 8), 6) for kind in kinds}, aggr=aggr)
    x, edges = {kind: torch.randn(10, 8) for kind in "ab"}, {kind: torch.randint(10, (2, 30)) for kind in kinds}
    check(theirs, x, edges)
    ours, grads = convert(deepcopy(theirs)), []
    for module in (theirs, ours):
        for _ in range(2):
            sum(t.square().sum() for t in module(x, edges).values()).backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        grads.append([p.grad for p in module.parameters()])
    torch.testing.assert_close(*grads)


def test_labels_are_propagated(ours: mock.Mock) -> None:
    layer, y = pyg.LabelPropagation(3, 0.8), torch.randint(4, (9,))
    edges, mask = torch.randint(9, (2, 30)), torch.arange(9) < 5
    torch.testing.assert_close(convert(deepcopy(layer))(y, edges, mask), layer(y, edges, mask))
    assert ours.called


def test_calls_that_run_the_own_code_of_a_layer_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, x = torch.tensor([[0, 1], [1, 0]]), torch.randn(2, 4)
    net = convert(nn.ModuleList([pyg.SAGEConv(4, 3), pyg.SAGEConv(4, 3), pyg.GATConv(4, 3), pyg.CGConv(4)]))
    with monkeypatch.context() as small:
        small.setattr(twin, "is_small", IS_SMALL)
        net[3](x, edges)
        net[3](x, edges.repeat(1, 2_000))
        with gated(Gates(lambda call: torch.zeros(call.graph.num_edges))):  # an explanation reads small graphs, too
            assert torch.equal(net[3](x, edges), x)
    net[0](x, torch.sparse_coo_tensor(edges, torch.ones(2), (2, 2)).to_sparse_csr())
    net[1](x, edges)
    net[2].flow = "target_to_source"
    for _ in range(2):
        net[2](x, edges)
    assert str(conversion(net)).splitlines() == [
        "0: SAGEConv; ran its own code for a call with a sparse tensor and (Tensor, Tensor) (1 ×)",
        "1: SAGEConv",
        "2: GATConv; ran its own code for flow='target_to_source' (2 ×)",
        "3: CGConv; ran its own code for fewer than 4,000 edges (1 ×)",
    ]


TWO_SIDES = {
    "SAGEConv": lambda: pyg.SAGEConv((5, 4), 3),
    "GraphConv": lambda: pyg.GraphConv((5, 4), 3),
    "GATConv": lambda: pyg.GATConv((5, 4), 3, heads=2, add_self_loops=False),
    "GATv2Conv": lambda: pyg.GATv2Conv((5, 4), 3, heads=2, add_self_loops=False),
    "TransformerConv": lambda: pyg.TransformerConv((5, 4), 3, heads=2),
    "CGConv": lambda: pyg.CGConv((5, 4)),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv((5, 4), 3),
    "GENConv": lambda: pyg.GENConv((5, 4), 3),
}


@pytest.mark.parametrize("name", TWO_SIDES)
def test_two_sides(name: str) -> None:
    edges, x = torch.tensor([[0, 6, 2, 2, 6], [0, 1, 3, 3, 3]]), (torch.randn(7, 5), torch.randn(4, 4))
    layer = TWO_SIDES[name]()
    check(layer, x, edges)
    if name in ("SAGEConv", "GraphConv"):
        check(layer, x, edges, size=(7, 4))
        twin = convert(deepcopy(layer))
        for size in ((7, 4), (7, 12)):
            given = (x[0], None), edges
            torch.testing.assert_close(twin(*given, size=size), layer(*given, size=size))


@pytest.mark.parametrize("fill", ["mean", "add", 2.0, torch.tensor([1.0, 2.0])])
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_loops_of_more_targets_than_sources_have_features(name: str, fill: Any) -> None:
    torch.manual_seed(0)
    layer = getattr(pyg, name)((5, 3), 4, edge_dim=2, fill_value=fill)
    x, edges, e = (torch.randn(2, 5), torch.randn(4, 3)), torch.tensor([[0, 1, 1, 1], [0, 0, 2, 3]]), torch.randn(4, 2)
    loops = {"mean": torch.stack([e[1], torch.zeros(2)]), "add": torch.stack([e[1], torch.zeros(2)])}
    rows = loops[fill] if isinstance(fill, str) else torch.as_tensor(fill).expand(2, 2)
    spelt = torch.cat([edges[:, 1:], torch.tensor([[0, 1], [0, 1]])], 1), torch.cat([e[1:], rows])
    alone = deepcopy(layer)
    alone.add_self_loops = False
    torch.testing.assert_close(convert(layer)(x, edges, e), alone(x, *spelt))


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GATConv"])
def test_an_edge_out_of_range_is_named_by_its_column(name: str) -> None:
    edges = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 2, 1, 9]])
    with pytest.raises(GraphError, match="edge 4: receiver 9 is out of range"):
        convert(getattr(pyg, name)(8, 4))(torch.randn(3, 8), edges)


def test_widths_that_are_found_at_the_first_call() -> None:
    layer = convert(pyg.SAGEConv((-1, -1), 3))
    for _ in range(2):
        assert layer(torch.randn(4, 5), torch.tensor([[0, 1], [1, 2]])).shape == (4, 3)


OTHER_MAPS = {
    "GCNConv": (1, "lin", lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU())),
    "SAGEConv": (0, "lin_l", lambda: nn.Sequential(nn.Linear(5, 3), nn.ReLU())),
    "GINEConv": (0, "lin", lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh())),
    "GATConv": (3, "lin_edge", lambda: nn.Linear(4, 6)),
    "GATv2Conv": (2, "lin_edge", lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh())),
    "TransformerConv": (3, "lin_edge", lambda: nn.Linear(4, 6)),
    "PNAConv": (1, "edge_encoder", lambda: nn.Linear(4, 5, bias=False)),
    "GENConv": (0, "lin_edge", lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh())),
    "CGConv": (0, "lin_f", lambda: nn.Sequential(nn.Linear(14, 5), nn.Tanh())),
    "ResGatedGraphConv": (2, "lin_key", lambda: nn.Sequential(nn.Linear(9, 3), nn.Tanh())),
    "NNConv": (0, "nn", lambda: nn.Sequential(nn.Linear(4, 15), nn.Tanh())),
}


@pytest.mark.parametrize("name", OTHER_MAPS)
def test_other_maps_inside_a_layer_are_called(name: str) -> None:
    number, attribute, lin = OTHER_MAPS[name]
    layer, inputs = made(name, number)
    setattr(layer, attribute, lin())
    check(layer, *inputs)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_dropout_acts_in_training_alone_and_weights_are_returned(kind: str) -> None:
    layer = convert(getattr(pyg, kind)(5, 3, dropout=0.5))
    x, edges = torch.randn(6, 5), torch.randint(0, 6, (2, 20))
    assert not torch.equal(layer(x, edges), layer(x, edges))
    layer.eval()
    assert torch.equal(layer(x, edges), layer(x, edges))
    y, (index, alpha) = layer(x, edges, return_attention_weights=True)
    assert torch.equal(y, layer(x, edges))
    total = torch.zeros(6, 1).index_add(0, index[1], alpha)
    torch.testing.assert_close(total, (total > 0).float())
    nothing = getattr(pyg, kind)(5, 3, dropout=1.0)
    torch.testing.assert_close(convert(deepcopy(nothing))(x, edges), nothing(x, edges))


@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize(
    "name",
    [
        "GATConv",
        "GATv2Conv",
        "TransformerConv",
        "GINEConv",
        "PNAConv",
        "GCNConv",
        "LGConv",
        "CGConv",
        "GENConv",
        "NNConv",
    ],
)
def test_rows_of_another_number_of_edges_are_taken_or_refused_as_before(name: str, rows: int) -> None:
    number = {"GATConv": 3, "GATv2Conv": 2, "TransformerConv": 3, "PNAConv": 1, "GCNConv": 3, "LGConv": 1}.get(name, 0)
    theirs, (x, edges, e) = made(name, number)
    e, seen = e[torch.arange(rows) % len(e)], []
    for layer in (theirs, convert(deepcopy(theirs))):
        try:
            seen.append(layer(x, edges, e))
        except (RuntimeError, IndexError, AssertionError) as error:
            seen.append(type(error))
    if isinstance(seen[0], type):
        assert seen[0] is seen[1]
    else:
        torch.testing.assert_close(*seen)


PATCHED = {
    "message": lambda layer: setattr(layer, "message", lambda x_j, **_: 2 * x_j),
    "update": lambda layer: setattr(layer, "update", lambda rows, *_: 2 * rows),
    "another aggregation": lambda layer: setattr(layer, "aggr_module", pyg.MinAggregation()),
    "a hook of the aggregation": lambda layer: layer.aggr_module.register_forward_hook(lambda *call: 2 * call[-1]),
    "a hook of messages": lambda layer: layer.register_message_forward_hook(lambda *call: 2 * call[-1]),
    "flow": lambda layer: setattr(layer, "flow", "target_to_source"),
    "aggr": lambda layer: (setattr(layer, "aggr", "mul"), setattr(layer, "aggr_module", pyg.MulAggregation())),
}


@pytest.mark.parametrize("patch", PATCHED)
@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GraphConv", "GATConv"])
def test_what_is_set_after_convert_is_heeded(name: str, patch: str) -> None:
    theirs, (x, edges, *_) = made(name)
    if name != "GATConv" or patch not in ("message", "aggr"):
        ours, before = convert(deepcopy(theirs)), theirs(x, edges)
        for layer in (theirs, ours):
            PATCHED[patch](layer)
        assert not torch.allclose(theirs(x, edges), before)
        torch.testing.assert_close(ours(x, edges), theirs(x, edges), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "APPNP", "GATConv", "RGCNConv"])
def test_traces_and_transforms_are_those_of_the_layer(name: str) -> None:
    theirs, inputs = made(name)
    ours, want = convert(deepcopy(theirs)), theirs(*inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(ours, inputs, check_trace=False)
        torch.testing.assert_close(traced(*inputs), want)
        compiled = torch.compile(ours, backend="eager", fullgraph=name != "RGCNConv", dynamic=True)
        torch.testing.assert_close(compiled(*inputs), want)


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GATConv", "GraphConv", "SuperGATConv"])
def test_copies_and_pickles_are_explained_as_the_layer_is(name: str) -> None:
    theirs, (x, edges, *_) = made(name)
    ours = convert(deepcopy(theirs))
    copies = (theirs, ours, deepcopy(ours), pickle.loads(pickle.dumps(ours)))  # noqa: S301
    masks = []
    for layer in copies:
        mask = nn.Parameter(torch.linspace(-1, 1, edges.shape[1]))
        set_masks(layer, mask, edges)
        layer(x, edges).square().sum().backward()
        clear_masks(layer)
        masks.append(mask.grad)
    for mask in masks[1:]:
        torch.testing.assert_close(mask, masks[0])
    assert all(conversion(layer).twins for layer in copies[1:])


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # by torch.package
def test_a_package_holds_what_a_layer_was_and_needs_nothing_of_ours(tmp_path: Path) -> None:
    x, edges = torch.randn(4, 5), torch.randint(4, (2, 9))
    layer = convert(nn.Sequential(pyg.SAGEConv(5, 3)))
    with torch.package.PackageExporter(tmp_path / "layer.pt") as package:
        package.extern(["torch_geometric.**", "_operator"])
        package.save_pickle("models", "layer.pkl", layer)
    read = torch.package.PackageImporter(tmp_path / "layer.pt").load_pickle("models", "layer.pkl")
    assert type(read[0]) is pyg.SAGEConv
    torch.testing.assert_close(read[0](x, edges), layer[0](x, edges))


def test_layers_called_in_inference_mode_first_can_be_trained_then() -> None:
    for name, number in (("GCNConv", 1), ("SAGEConv", 1), ("GATConv", 3), ("GINEConv", 0)):
        layer, inputs = made(name, number)
        convert(layer)
        with torch.inference_mode():
            before = layer(*inputs)
        y = layer(*inputs)
        torch.testing.assert_close(y, before)
        y.sum().backward()
        assert all(p.grad is not None for p in layer.parameters())


def test_weights_of_another_width_give_what_they_gave() -> None:
    x, edges, weight = torch.randn(9, 5), torch.randint(9, (2, 20)), torch.rand(20, dtype=torch.float64)
    for layer in (pyg.GCNConv(5, 8), pyg.GCNConv(5, 2, normalize=False), pyg.LGConv(normalize=False)):
        torch.testing.assert_close(convert(deepcopy(layer))(x, edges, weight), layer(x, edges, weight))


@pytest.mark.parametrize("kind", ["SAGEConv", "GCNConv", "GATConv", "RGCNConv"])
def test_axes_that_a_layer_reads_in_its_own_way(kind: str) -> None:
    options = {"node_dim": 0} if kind in ("SAGEConv", "GCNConv") else {"num_relations": 3} if kind == "RGCNConv" else {}
    options |= {"normalize": False} if kind == "GCNConv" else {}
    edges, x = torch.tensor([[0, 1, 2, 5], [1, 2, 0, 0]]), torch.randn(6, 6, 5)
    theirs, seen = getattr(pyg, kind)(5, 3, **options), []
    given = (x, edges, torch.zeros(4, dtype=torch.int64)) if kind == "RGCNConv" else (x, edges)
    for layer in (theirs, convert(deepcopy(theirs))):
        try:
            seen.append(layer(*given))
        except (RuntimeError, AssertionError) as error:
            seen.append(type(error))
    assert seen[0] is seen[1] if isinstance(seen[0], type) else torch.allclose(*seen)


@pytest.mark.parametrize("name", sorted(LAYERS.keys() - {"MFConv"}))  # which raises an error itself
def test_under_autocast_results_have_the_dtype_that_they_had(name: str) -> None:
    theirs, inputs = made(name, 4 if name.endswith("RGCNConv") else 0)
    found = []
    for layer in (theirs, convert(deepcopy(theirs))):
        with torch.autocast("cpu", torch.bfloat16):
            found.append(outputs(layer(*inputs)))
    for right, y in zip(*found, strict=True):
        assert y.dtype == right.dtype
        torch.testing.assert_close(y.float(), right.float(), atol=5e-2, rtol=5e-2)


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "TAGConv", "GATConv"])
def test_graphs_are_made_once_for_equal_edges_and_go_with_them(name: str) -> None:
    layer, (x, edges, *_) = made(name)
    right = deepcopy(layer)
    convert(layer)
    with mock.patch.object(edgewise.Graph, "from_edge_index", wraps=edgewise.Graph.from_edge_index) as seen:
        for _ in range(3):
            torch.testing.assert_close(layer(x, edges), right(x, edges))
        assert seen.call_count == 1
        edges[0, 3] = (edges[0, 3] + 1) % 9
        torch.testing.assert_close(layer(x, edges), right(x, edges))
        assert seen.call_count == 2
    gone = weakref.ref(edges)
    del edges, layer, right, seen
    gc.collect()
    assert gone() is None


def test_layers_without_a_twin_are_named() -> None:
    deg, names = torch.tensor([1, 3]), ["mean"]
    layers = {
        "aggr=mul": pyg.GraphConv(5, 4, aggr="mul"),
        "flow='target_to_source'": pyg.GraphConv(5, 4, flow="target_to_source"),
        "aggr=lstm": pyg.SAGEConv(4, 3, aggr="lstm"),
        "aggr=MultiAggregation": pyg.SAGEConv(4, 3, aggr=["mean", "max"]),
        "decomposed_layers=2": pyg.SAGEConv(4, 3, decomposed_layers=2),
        "pre_layers=2": pyg.PNAConv(6, 8, names, ["identity"], deg, pre_layers=2),
        "aggregators=['median']": pyg.PNAConv(6, 8, ["median"], ["identity"], deg),
        "semi_grad=True": pyg.PNAConv(6, 8, [pyg.aggr.StdAggregation(semi_grad=True)], ["identity"], deg),
    }
    net = nn.ModuleList(layers.values())
    with pytest.warns(UserWarning, match="aggr=mul"):
        convert(net)
    assert [why.partition(" with ")[2] for why in conversion(net).others.values()] == list(layers)
