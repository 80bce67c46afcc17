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
from edgewise.interop import conversion, convert, revert
from interop.geometric.parity import outputs

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


def test_what_was_converted_is_reverted_with_its_weights() -> None:
    module = nn.ModuleList([pyg.GCNConv(4, 3), nn.TransformerEncoderLayer(4, 2), nn.Linear(4, 2)])
    kinds, weights = [type(part) for part in module.modules()], list(module.parameters())
    assert [type(part) for part in convert(module).modules()] != kinds
    assert [type(part) for part in revert(module).modules()] == kinds and not conversion(module).twins
    assert all(after is before for after, before in zip(module.parameters(), weights, strict=True))
    with pytest.raises(ConfigError, match=r"revert takes a torch.nn.Module, not list"):
        revert([])


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


def test_a_subclass_may_compute_something_else_and_stays() -> None:
    class Own(pyg.GCNConv):  # type: ignore[misc, name-defined]
        def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
            return -x_j

    with pytest.warns(UserWarning, match="Own is a class of its own, of GCNConv"):
        convert(Own(4, 3))


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True), "add_bias_kv=True"),
        (lambda: nn.MultiheadAttention(4, 2, add_zero_attn=True), "add_zero_attn=True"),
        (lambda: nn.Linear(2, 2), "no layer of this module has a twin"),
    ],
)
def test_options_without_a_twin(layer: Any, why: str) -> None:
    with pytest.warns(UserWarning, match=why):
        convert(layer())


def test_convert_takes_modules() -> None:
    with pytest.raises(ConfigError, match=r"takes a torch.nn.Module, not int"):
        convert(3)  # type: ignore[type-var]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_call_that_a_twin_does_not_know_runs_as_before() -> None:
    layer = pyg.GCNConv(4, 3)
    adjacency = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(4), (4, 4)).to_sparse_csr()
    x = torch.randn(4, 4)
    before = layer(x, adjacency)
    torch.testing.assert_close(convert(layer)(x, adjacency), before)


def test_the_package_needs_no_other_library() -> None:
    code = "import sys, edgewise.interop; assert not {'torch_geometric', 'transformers'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pytorch_s_own_layers_under_autocast_and_as_copies() -> None:
    x = torch.randn(1, 30, 8)
    for layer, inputs in (
        (nn.MultiheadAttention(8, 2, batch_first=True), (x, x, x)),
        (nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (x,)),
    ):
        twin = edgewise.convert(deepcopy(layer))
        for copied in (deepcopy(twin), pickle.loads(pickle.dumps(twin))):  # noqa: S301
            assert conversion(copied).twins == conversion(twin).twins
        for bfloat16 in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                for ours, right in zip(outputs(twin(*inputs)), outputs(layer(*inputs)), strict=True):
                    assert ours.dtype == right.dtype
                    torch.testing.assert_close(ours.float(), right.float(), atol=5e-2, rtol=5e-2)


@pytest.mark.parametrize("make", [lambda: pyg.SAGEConv(4, 3), lambda: pyg.TransformerConv(4, 3, heads=2)])
def test_tensors_without_numbers_give_their_shapes_as_before(make) -> None:
    layer = convert(make()).to("meta")
    x, edges = torch.empty(4, 4, device="meta"), EDGES.to("meta")
    assert layer(x, edges).shape == make()(torch.ones(4, 4), EDGES).shape
    assert nn.Sequential(layer)[0](x, edges).is_meta


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_converted_model_is_scripted_with_its_own_code_and_parameters() -> None:
    layer = convert(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval())
    x = torch.randn(2, 5, 8)
    scripted = torch.jit.script(layer)
    torch.testing.assert_close(scripted(x), layer(x))
    assert scripted.linear1.weight is layer.linear1.weight
