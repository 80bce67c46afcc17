"""GPSConv without padded batches, and HeteroConv, whose kinds of edges share the map of their receivers."""

import warnings
from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from edgewise.interop import conversion, convert
from edgewise.interop.geometric import composed
from interop.geometric.parity import check

pyg = pytest.importorskip("torch_geometric.nn")

EDGES = torch.tensor([[0, 1, 2, 3, 5, 4, 6, 6], [1, 0, 1, 4, 3, 5, 7, 8]])
BATCH = torch.tensor([0, 0, 0, 1, 1, 1, 3, 3, 3])  # the graph with number 2 has no nodes


def gine() -> nn.Module:
    made: nn.Module = pyg.GINEConv(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
    return made


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Counts the calls whose attention ran along a graph."""
    watched = mock.Mock(wraps=composed.modules.among)
    monkeypatch.setattr(composed.modules, "among", watched)
    return watched


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 4},
        {"norm": None},
        {"norm": "layer_norm"},
        {"norm": "graph_norm"},
        {"act": "gelu"},
        {"act": "tanh"},
        {"attn_kwargs": {"bias": False}},
    ],
)
@pytest.mark.parametrize("batch", [BATCH, None], ids=["several graphs", "one graph"])
def test_options(options: Any, batch: Tensor | None, seen: mock.Mock) -> None:
    torch.manual_seed(0)
    check(pyg.GPSConv(8, gine(), **options), torch.randn(9, 8), EDGES, batch, edge_attr=torch.randn(8, 8))
    assert seen.call_count == 4  # twice in each width of numbers


@pytest.mark.parametrize("conv", ["GCNConv", "SAGEConv", "ChebConv"])
def test_other_messages(conv: str) -> None:
    layer = pyg.GPSConv(8, getattr(pyg, conv)(8, 8, *([2] if conv == "ChebConv" else [])))
    ours, x = deepcopy(layer), torch.randn(9, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ChebConv, which stays
        convert(ours)
    torch.testing.assert_close(ours(x, EDGES, BATCH), layer(x, EDGES, BATCH), rtol=1e-5, atol=1e-5)


def test_without_messages() -> None:
    check(pyg.GPSConv(8, None, heads=2), torch.randn(9, 8), EDGES, BATCH)


def test_in_evaluation() -> None:
    check(pyg.GPSConv(8, gine(), dropout=0.5).eval(), torch.randn(9, 8), EDGES, BATCH, edge_attr=torch.randn(8, 8))


def test_nodes_do_not_attend_to_other_graphs() -> None:
    layer, x = convert(pyg.GPSConv(8, None, norm=None)), torch.randn(9, 8)
    changed = torch.cat([x[:3], torch.randn(3, 8), x[6:]])
    a, b = layer(x, EDGES, BATCH), layer(changed, EDGES, BATCH)
    torch.testing.assert_close(a[BATCH != 1], b[BATCH != 1])
    assert (a[BATCH == 1] != b[BATCH == 1]).any()


def test_dropout_of_all_weights_of_attention_leaves_what_it_left() -> None:
    layer, x = pyg.GPSConv(8, None, attn_kwargs={"dropout": 1.0}), torch.randn(9, 8)
    torch.testing.assert_close(convert(deepcopy(layer))(x, EDGES, BATCH), layer(x, EDGES, BATCH))


@pytest.mark.parametrize("where", ["dropout", "attn_kwargs"])
def test_dropout_acts_in_training_alone(where: str) -> None:
    options: Any = {"dropout": 0.5} if where == "dropout" else {"attn_kwargs": {"dropout": 0.5}}
    layer, x = convert(pyg.GPSConv(8, None, norm=None, **options)), torch.randn(9, 8)
    assert not torch.equal(layer(x, EDGES, BATCH), layer(x, EDGES, BATCH))
    layer.eval()
    assert torch.equal(layer(x, EDGES, BATCH), layer(x, EDGES, BATCH))


def test_a_batch_out_of_order_and_a_watched_attention_are_left_to_pytorch_geometric(seen: mock.Mock) -> None:
    layer = pyg.GPSConv(8, None)
    ours, x = convert(deepcopy(layer)), torch.randn(9, 8)
    torch.testing.assert_close(ours(x[:2], EDGES, torch.tensor([1, 0])), layer(x[:2], EDGES, torch.tensor([1, 0])))
    calls: list[Any] = []
    ours.attn.register_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(ours(x, EDGES, BATCH), layer(x, EDGES, BATCH))
    assert calls and not seen.called


def test_no_nodes() -> None:
    layer = convert(pyg.GPSConv(8, None, norm=None))
    assert layer(torch.randn(0, 8), EDGES[:, :0]).shape == (0, 8)
    assert layer(torch.randn(0, 8), EDGES[:, :0], BATCH[:0]).shape == (0, 8)


def test_performers_and_learned_keys_stay_and_are_named() -> None:
    net = nn.ModuleList([pyg.GPSConv(8, gine(), attn_type="performer"), pyg.GPSConv(8, None)])
    net.append(pyg.GPSConv(8, None, attn_kwargs={"add_bias_kv": True}))
    with pytest.warns(UserWarning, match="0 \\(GPSConv with attn_type='performer'\\)"):
        convert(net)
    made = conversion(net)
    assert set(made.twins) == {"0.conv", "1", "1.attn"}
    assert made.others["2"] == "GPSConv with add_bias_kv=True"


SIZES = {"author": (9, 5), "paper": (14, 40), "term": (6, 3)}
KINDS = [
    ("author", "writes", "paper"),
    ("term", "in", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "by", "author"),
    ("author", "knows", "author"),
    ("paper", "has", "term"),
]


def drawn(kinds: Any = KINDS) -> tuple[dict[str, Any], dict[Any, Any]]:
    generator = torch.Generator().manual_seed(4)

    def ends(*names: str) -> torch.Tensor:
        return torch.stack([torch.randint(SIZES[name][0], (30,), generator=generator) for name in names])

    x = {name: torch.randn(*size, generator=generator) for name, size in SIZES.items()}
    return x, {kind: ends(kind[0], kind[2]) for kind in kinds}


def hetero(kinds: Any = KINDS, aggr: Any = "sum", **options: Any) -> Any:
    torch.manual_seed(6)
    return pyg.HeteroConv(
        {(a, r, b): pyg.SAGEConv((SIZES[a][1], SIZES[b][1]), 4, **options) for a, r, b in kinds}, aggr=aggr
    )


@pytest.mark.parametrize("aggr", ["sum", "mean", "min", "max", "cat", None])
def test_what_kinds_of_edges_say_together(aggr: Any) -> None:
    x, edge_index = drawn()
    check(hetero(aggr=aggr), x, edge_index)
    check(hetero(aggr=aggr), x, {kind: index for kind, index in edge_index.items() if kind[1] not in ("cites", "by")})
    check(hetero(aggr=aggr), x, {kind: index[:, :0] for kind, index in edge_index.items()})
    check(hetero(KINDS[4:5], aggr), x, edge_index)


@pytest.mark.parametrize(
    "options",
    [{"aggr": "max"}, {"aggr": "sum"}, {"root_weight": False}, {"bias": False}, {"normalize": True}, {"project": True}],
)
def test_options_of_the_convolutions(options: Any) -> None:
    own = dict(options)
    convs = {
        kind: pyg.SAGEConv((SIZES[kind[0]][1], SIZES[kind[2]][1]), 4, **own if number % 2 else {})
        for number, kind in enumerate(KINDS)
    }
    check(pyg.HeteroConv(convs), *drawn())
    check(pyg.HeteroConv(convs, aggr="mean"), *drawn())


def test_other_convolutions_beside_them() -> None:
    convs = dict(hetero().convs.items())
    convs[KINDS[0]] = pyg.GATConv((5, 40), 4, add_self_loops=False)
    convs[KINDS[4]] = pyg.GCNConv(5, 4)
    x, edge_index = drawn()
    check(pyg.HeteroConv(convs, aggr="mean"), x, edge_index)
    check(pyg.HeteroConv(convs), x_dict=x, edge_index_dict=edge_index)


def test_receivers_are_mapped_once_by_the_sum_of_the_weights() -> None:
    layer = convert(hetero())
    assert conversion(layer).twins[""] == "HeteroConv"
    x, edge_index = drawn()
    with mock.patch.object(composed, "product", wraps=composed.product) as seen:
        layer(x, edge_index)
    assert [call.args[1] is x[end] for call, end in zip(seen.mock_calls, ("paper", "author"), strict=True)] == [
        True
    ] * 2
    weights = [layer.convs[kind].lin_r.weight for kind in KINDS[:3]]
    torch.testing.assert_close(seen.mock_calls[0].args[0], sum(weights))


def test_features_of_few_words_are_multiplied_by_their_words() -> None:
    x, edge_index = drawn()
    x["paper"] = torch.zeros(14, 40).index_put((torch.arange(14), torch.arange(14) * 2), torch.ones(()))
    layer = hetero()
    ours = convert(deepcopy(layer))
    for _ in range(6):
        y = ours(x, edge_index)
    for kind, expected in layer(x, edge_index).items():
        torch.testing.assert_close(y[kind], expected)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("outputs", [2, 8])
def test_graph_convolutions_share_their_maps_too(outputs: int, aggr: str) -> None:
    torch.manual_seed(6)
    convs = {(a, r, b): pyg.GraphConv((SIZES[a][1], SIZES[b][1]), outputs) for a, r, b in KINDS}
    convs[KINDS[1]] = pyg.SAGEConv((SIZES["term"][1], SIZES["paper"][1]), outputs)
    layer, (x, edge_index) = pyg.HeteroConv(convs, aggr=aggr), drawn()
    check(layer, x, edge_index)
    check(layer, x, edge_index, edge_weight_dict={KINDS[0]: torch.rand(30), KINDS[2]: torch.rand(30)})
    ours = convert(deepcopy(layer))
    with mock.patch.object(composed, "product", wraps=composed.product) as seen:
        ours(x, edge_index)
    assert len(seen.mock_calls) == 2


def test_unknown_widths_are_found_at_the_first_call() -> None:
    layer = pyg.HeteroConv({kind: pyg.SAGEConv((-1, -1), 4) for kind in KINDS})
    ours = convert(deepcopy(layer))
    x, edge_index = drawn()
    with torch.no_grad():
        ours(x, edge_index), layer(x, edge_index)
    layer.load_state_dict(ours.state_dict())
    for kind, expected in layer(x, edge_index).items():
        torch.testing.assert_close(ours(x, edge_index)[kind], expected)


@pytest.mark.parametrize("part", ["", ".lin_r"])
def test_those_who_look_at_a_convolution_see_it(part: str) -> None:
    layer = hetero()
    ours, (x, edge_index), calls = convert(deepcopy(layer)), drawn(), list[Any]()
    names = {name for name, _ in ours.named_modules() if name.endswith(f"writes___paper>{part}")}
    assert len(names) == 1
    ours.get_submodule(names.pop()).register_forward_hook(lambda *args: calls.append(args[-1]))
    for kind, expected in layer(x, edge_index).items():
        torch.testing.assert_close(ours(x, edge_index)[kind], expected)
    assert calls


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which the compiler reads of what a graph break leaves
def test_compiled_and_autocast() -> None:
    layer = hetero()
    ours, (x, edge_index) = convert(deepcopy(layer)), drawn()
    found = torch.compile(ours, backend="eager")(x, edge_index)
    for kind, expected in layer(x, edge_index).items():
        torch.testing.assert_close(found[kind], expected)
    with torch.autocast("cpu", torch.bfloat16):
        found, right = ours(x, edge_index), layer(x, edge_index)
    for kind, expected in right.items():
        assert found[kind].dtype == expected.dtype
        torch.testing.assert_close(found[kind].float(), expected.float(), atol=5e-2, rtol=5e-2)


def test_wrong_names_are_refused_as_before() -> None:
    x, edge_index = drawn()
    with pytest.raises(ValueError, match="need to end with '_dict'"):
        convert(hetero())(x, edge_index, weights={})
