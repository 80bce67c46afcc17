"""GPSConv without padded batches."""

from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from edgewise.interop import conversion, convert
from edgewise.interop.geometric import attention
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
    watched = mock.Mock(wraps=attention.modules.among)
    monkeypatch.setattr(attention.modules, "among", watched)
    return watched


@pytest.mark.parametrize(
    "options",
    [{"heads": 4, "act": "tanh"}, {"norm": None}, {"norm": "graph_norm"}, {"attn_kwargs": {"bias": False}}],
)
@pytest.mark.parametrize("batch", [BATCH, None], ids=["several graphs", "one graph"])
def test_options(options: Any, batch: Tensor | None, seen: mock.Mock) -> None:
    torch.manual_seed(0)
    check(pyg.GPSConv(8, gine(), **options), torch.randn(9, 8), EDGES, batch, edge_attr=torch.randn(8, 8))
    assert seen.call_count == 4  # twice in each width of numbers


def test_other_parts() -> None:
    check(pyg.GPSConv(8, pyg.SAGEConv(8, 8), dropout=0.5).eval(), torch.randn(9, 8), EDGES, BATCH)
    check(pyg.GPSConv(8, None, heads=2), torch.randn(9, 8), EDGES, BATCH)
    stays = pyg.GPSConv(8, pyg.LEConv(8, 8))
    with pytest.warns(UserWarning, match="conv \\(LEConv has no twin"):
        ours = convert(deepcopy(stays))
    x = torch.randn(9, 8)
    torch.testing.assert_close(ours(x, EDGES, BATCH), stays(x, EDGES, BATCH), rtol=1e-5, atol=1e-5)


def test_nodes_do_not_attend_to_other_graphs() -> None:
    layer, x = convert(pyg.GPSConv(8, None, norm=None)), torch.randn(9, 8)
    changed = torch.cat([x[:3], torch.randn(3, 8), x[6:]])
    a, b = layer(x, EDGES, BATCH), layer(changed, EDGES, BATCH)
    torch.testing.assert_close(a[BATCH != 1], b[BATCH != 1])
    assert (a[BATCH == 1] != b[BATCH == 1]).any()


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
