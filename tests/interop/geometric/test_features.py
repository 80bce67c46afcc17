"""Sparse features that come again are multiplied by their non-zeros, with the same results and gradients."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.interop import convert
from edgewise.interop.geometric import features

pyg = pytest.importorskip("torch_geometric.nn")

EDGES = torch.randint(30, (2, 90), generator=torch.Generator().manual_seed(0))
LAYERS = {
    "GCN": lambda: pyg.GCNConv(400, 8),
    "SAGE": lambda: pyg.SAGEConv(400, 8),
    "GAT": lambda: pyg.GATConv(400, 4, heads=2),
    "GATv2": lambda: pyg.GATv2Conv(400, 4, heads=2),
    "transformer": lambda: pyg.TransformerConv(400, 4, heads=2),
}


def words(dtype: torch.dtype = torch.float32) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.rand(30, 400, generator=draw, dtype=dtype) * (torch.rand(30, 400, generator=draw) < 0.01)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_on_words_gives_what_it_gave(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    few = features._few
    monkeypatch.setattr(features, "_few", lambda x: found.append(few(x)) or found[-1])
    torch.manual_seed(0)
    layer, x = LAYERS[name](), words()
    right = layer(x, EDGES)
    g = torch.randn_like(right)
    exact = torch.autograd.grad((right * g).sum(), list(layer.parameters()))
    twin = convert(layer)
    for _ in range(features.AGAIN + 1):
        y = twin(x, EDGES)
        torch.testing.assert_close(y, right, rtol=0, atol=1e-5)
        grads = torch.autograd.grad((y * g).sum(), list(layer.parameters()))
        for own, theirs in zip(grads, exact, strict=True):
            torch.testing.assert_close(own, theirs, rtol=0, atol=1e-4)
    assert found and all(isinstance(one, features.SparseFeatures) for one in found)


def mapped_again(x: Tensor, linear: nn.Linear) -> Tensor:
    for _ in range(features.AGAIN):
        y = features.mapped(linear, x)
    return y


def test_features_written_since_are_read_anew() -> None:
    x, linear = words(), nn.Linear(400, 3)
    mapped_again(x, linear)
    x[3, 5] = 7.0
    torch.testing.assert_close(mapped_again(x, linear), linear(x))


@pytest.mark.parametrize("rows", [0, 1])
def test_no_words_give_the_bias(rows: int) -> None:
    x, linear = torch.zeros(rows, 400), nn.Linear(400, 3)
    torch.testing.assert_close(mapped_again(x, linear), linear.bias.expand(rows, 3))


def test_what_is_not_finite_stays_so() -> None:
    x, linear = words(), nn.Linear(400, 3)
    x[2, 4], x[5, 6] = torch.nan, torch.inf
    y = mapped_again(x, linear)
    assert torch.equal(y.isfinite(), linear(x).isfinite())


@pytest.mark.parametrize("kind", ["dense", "trained", "another dtype", "one of many"])
def test_others_go_through_the_layer_itself(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "aggregate", None)
    linear, x = nn.Linear(400, 3), words().requires_grad_(kind == "trained")
    if kind == "dense":
        x = torch.rand(30, 400)
    if kind == "one of many":
        x = x.expand(2, 30, 400)
    if kind == "another dtype":
        with pytest.raises(RuntimeError, match="dtype"):
            mapped_again(x.double(), linear)
    else:
        assert torch.equal(mapped_again(x, linear), linear(x))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # of features that have no gradient
@pytest.mark.parametrize("kind", ["hook", "hook before", "gradient's hook", "another class"])
def test_a_layer_that_does_more_is_called(kind: str) -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    linear, x, seen = (Doubled if kind == "another class" else nn.Linear)(400, 3), words(), []
    if kind == "hook":
        linear.register_forward_hook(lambda *_: seen.append(kind))
    if kind == "hook before":
        linear.register_forward_pre_hook(lambda *_: seen.append(kind))
    if kind == "gradient's hook":
        linear.register_full_backward_pre_hook(lambda *_: seen.append(kind))
    y = mapped_again(x, linear)
    y.sum().backward()
    if kind == "another class":
        torch.testing.assert_close(y, 2 * functional.linear(x, linear.weight, linear.bias))
    else:
        assert seen == [kind] * (1 if kind == "gradient's hook" else features.AGAIN)
