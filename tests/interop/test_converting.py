"""`convert` changes layers in place, keeps what they have, and names those that stay."""

import pickle
import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import edgewise
from edgewise.errors import ConfigError
from edgewise.interop import conversion, convert

pyg = pytest.importorskip("torch_geometric.nn")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(4, 4), pyg.LEConv(4, 4), pyg.GATConv(4, 4, flow="target_to_source")])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(x)


EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


def test_what_has_no_twin_stays_and_is_named() -> None:
    net = Net()
    before = net(torch.ones(4, 4), EDGES)
    with pytest.warns(UserWarning, match=r"convs.1 \(LEConv has no twin\); convs.2 \(GATConv with flow='target_to_"):
        assert edgewise.convert(net) is net
    made = conversion(net)
    assert made.twins == {"convs.0": "GCNConv"}
    assert list(made.others) == ["convs.1", "convs.2"]
    assert "convs.1 stays: LEConv has no twin" in str(made)
    torch.testing.assert_close(net(torch.ones(4, 4), EDGES), before)


def test_a_layer_keeps_its_class_name_options_parameters_and_state() -> None:
    layer = pyg.GATConv(4, 3, heads=2, dropout=0.5).eval()
    weights, shown, state = dict(layer.named_parameters()), repr(layer), layer.state_dict()
    twin = convert(layer)
    assert twin is layer
    assert isinstance(twin, pyg.GATConv)
    assert repr(twin) == shown
    assert not twin.training
    assert all(p is weights[name] for name, p in twin.named_parameters())
    twin.load_state_dict(state)
    twin.reset_parameters()
    assert convert(twin) is twin  # at most once
    assert len(type(twin).__mro__) == len(pyg.GATConv.__mro__) + 1


@pytest.mark.parametrize("copied", [deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])  # noqa: S301
def test_copies_and_pickles_of_a_twin_are_twins(copied: Any) -> None:
    layer = convert(pyg.SAGEConv(4, 3))
    other, x = copied(layer), torch.randn(4, 4)
    assert conversion(other).twins
    assert torch.equal(other(x, EDGES), layer(x, EDGES))


def test_a_subclass_may_compute_something_else_and_stays() -> None:
    class Own(pyg.GCNConv):  # type: ignore[misc, name-defined]
        def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
            return -x_j

    with pytest.warns(UserWarning, match="Own is a class of its own, of GCNConv"):
        convert(Own(4, 3))


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (lambda: pyg.SAGEConv(4, 3, aggr="lstm"), "SAGEConv with aggr=lstm"),
        (lambda: pyg.SAGEConv(4, 3, aggr=["mean", "max"]), "SAGEConv with aggr=MultiAggregation"),
        (lambda: pyg.SAGEConv(4, 3, decomposed_layers=2), "decomposed_layers=2"),
        (lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True), "add_bias_kv=True"),
        (lambda: nn.MultiheadAttention(4, 2, add_zero_attn=True), "add_zero_attn=True"),
        (lambda: nn.Linear(2, 2), "no layer of this module has a twin"),
    ],
)
def test_options_without_a_twin(layer: Any, why: str) -> None:
    with pytest.warns(UserWarning, match=why):
        convert(layer())


def test_convert_takes_modules() -> None:
    with pytest.raises(ConfigError, match=r"takes a torch.nn.Module, a DataLoader of .* or a .*Optimizer, not int"):
        convert(3)  # type: ignore[type-var]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_call_that_a_twin_does_not_know_runs_as_before() -> None:
    layer = pyg.GCNConv(4, 3)
    adjacency = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(4), (4, 4)).to_sparse_csr()
    x = torch.randn(4, 4)
    before, seen = layer(x, adjacency), []
    twin = convert(layer)
    torch.testing.assert_close(twin(x, adjacency), before)
    twin.register_message_forward_hook(lambda *args: seen.append(1))
    twin(x, EDGES)
    assert seen  # hooks on messages see them


def test_a_graph_is_made_once_for_a_tensor_and_anew_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    original = edgewise.Graph.from_edge_index.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, *args: Any) -> Any:
        made.append(1)
        return original(cls, *args)

    monkeypatch.setattr(edgewise.Graph, "from_edge_index", classmethod(counted))
    net = convert(nn.ModuleList([pyg.GINConv(nn.Identity()), pyg.SAGEConv(4, 4)]))
    x, edges = torch.randn(4, 4), EDGES.clone()
    for _ in range(3):
        for layer in net:
            layer(x, edges)
    assert len(made) == 1
    edges[0, 0] = 2
    torch.testing.assert_close(net[0](x, edges), net[0](x, edges.clone()))
    assert len(made) == 3


def test_a_graph_goes_with_its_tensor() -> None:
    import gc
    import weakref

    layer, edges = convert(pyg.GCNConv(4, 4)), EDGES.clone()
    layer(torch.randn(4, 4), edges, torch.rand(4)).sum().backward()
    gone = weakref.ref(edges)
    del edges
    gc.collect()
    assert gone() is None


def test_the_package_needs_no_other_library() -> None:
    code = "import sys, edgewise.interop; assert not {'torch_geometric', 'transformers'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def under_autocast() -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    """Layers of all kinds that have a twin, and what each is called with."""
    torch.manual_seed(0)
    edges, x, e, relation = torch.randint(30, (2, 120)), torch.randn(30, 8), torch.randn(120, 5), torch.arange(120) % 3
    whole = x[None], x[None], x[None]
    made: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {}
    for out in (4, 12):
        for options in ({}, {"aggr": "max"}, {"bias": False}):
            made[f"GCNConv {out} {options}"] = pyg.GCNConv(8, out, **options), (x, edges)
            made[f"SAGEConv {out} {options}"] = pyg.SAGEConv(8, out, **options), (x, edges)
    for options in ({"normalize": True}, {"project": True}, {"root_weight": False}):
        made[f"SAGEConv {options}"] = pyg.SAGEConv(8, 4, **options), (x, edges)
    for name in ("GATConv", "GATv2Conv", "TransformerConv"):
        kind = getattr(pyg, name)
        for options in (
            {},
            {"bias": False},
            {"concat": False},
            {"root_weight" if name[0] == "T" else "residual": False},
        ):
            made[f"{name} {options}"] = kind(8, 4, heads=2, **options), (x, edges)
        made[f"{name} edges"] = kind(8, 4, heads=2, edge_dim=5), (x, edges, e)
        asked = (x, edges, None, None, True) if name == "GATConv" else (x, edges, None, True)
        made[f"{name} weights"] = kind(8, 4, heads=2), asked
    network = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))
    made["GINConv"] = pyg.GINConv(network), (x, edges)
    made["GINEConv"] = pyg.GINEConv(nn.Linear(8, 4), edge_dim=5), (x, edges, e)
    made["GatedGraphConv"] = pyg.GatedGraphConv(8, 2), (x, edges)
    for name in ("RGCNConv", "FastRGCNConv"):
        for options in (
            {},
            {"num_bases": 2},
            {"num_blocks": 2},
            {"aggr": "add"},
            {"root_weight": False, "bias": False},
        ):
            made[f"{name} {options}"] = getattr(pyg, name)(8, 4, 3, **options), (x, edges, relation)
    kinds = [("a", "to", "b"), ("b", "to", "a")]
    of_kinds = {"a": x, "b": x}, dict.fromkeys(kinds, edges)
    made["HGTConv"] = pyg.HGTConv(8, 8, (["a", "b"], kinds), heads=2), of_kinds
    made["MultiheadAttention"] = nn.MultiheadAttention(8, 2, batch_first=True), whole
    made["TransformerEncoderLayer"] = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), whole[:1]
    return made


@pytest.mark.parametrize("name", under_autocast())
def test_under_autocast_results_have_the_dtype_that_they_had(name: str) -> None:
    from interop.geometric.parity import outputs

    layer, inputs = under_autocast()[name]
    twin = edgewise.convert(deepcopy(layer))
    with torch.autocast("cpu", torch.bfloat16):
        found = [[t for t in outputs(one(*inputs)) if t.is_floating_point()] for one in (twin, layer)]
    assert found[0] and len(found[0]) == len(found[1])
    for ours, exact in zip(*found, strict=True):
        assert ours.dtype == exact.dtype
        torch.testing.assert_close(ours.float(), exact.float(), atol=5e-2, rtol=5e-2)


def test_modes_reach_every_part_as_before() -> None:
    class Own(nn.Linear):
        def train(self, mode: bool = True) -> nn.Module:
            calls.append(mode)
            return super().train(mode)

    calls: list[bool] = []
    attention = nn.MultiheadAttention(8, 2)
    model = convert(nn.ModuleDict({"own": Own(2, 2), "deep": nn.Sequential(attention, nn.Dropout()), "none": None}))
    for mode in (False, True):
        assert model.train(mode) is model
        assert {part.training for part in model.modules()} == {mode}
    assert model.eval() is model
    assert not any(part.training for part in model.modules())
    assert attention.train().training
    assert not model.training
    assert calls == [False, True, False]
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        model.train("on")  # type: ignore[arg-type]


def test_a_part_that_is_kept_in_evaluation_stays_there() -> None:
    frozen = nn.BatchNorm1d(8).eval()
    frozen.train = lambda mode=True: frozen  # type: ignore[method-assign]
    convert(nn.ModuleList([nn.MultiheadAttention(8, 2), frozen])).train()
    assert not frozen.training


@pytest.mark.parametrize("make", [lambda: pyg.SAGEConv(4, 3), lambda: pyg.TransformerConv(4, 3, heads=2)])
def test_tensors_without_numbers_give_their_shapes_as_before(make) -> None:
    layer = convert(make()).to("meta")
    x, edges = torch.empty(4, 4, device="meta"), EDGES.to("meta")
    assert layer(x, edges).shape == make()(torch.ones(4, 4), EDGES).shape
    assert nn.Sequential(layer)[0](x, edges).is_meta
