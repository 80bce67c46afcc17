"""Features that come again: their non-zeros and their sums are found once, with the same results and gradients."""

from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.interop import convert
from edgewise.interop.geometric import features, sums
from edgewise.interop.geometric.edges import graph_of

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


def known_words(dtype: torch.dtype = torch.float32) -> Tensor:
    x = words(dtype)
    mapped_again(x, nn.Linear(400, 3, dtype=dtype))
    return x


def test_dropout_of_known_words_has_its_share_its_scale_and_its_generator() -> None:
    x = torch.zeros(200, 400)
    x[:, ::40] = 2.0
    mapped_again(x, nn.Linear(400, 3))
    torch.manual_seed(3)
    y = features.dropped(x, 0.25)
    assert y is not None
    kept = y[x != 0]
    assert 0.7 < float((kept != 0).double().mean()) < 0.8
    torch.testing.assert_close(kept[kept != 0], torch.tensor(2.0 / 0.75).expand(int((kept != 0).sum())))
    assert not y[x == 0].any()
    assert not torch.equal(features.dropped(x, 0.25), y)
    torch.manual_seed(3)
    assert torch.equal(features.dropped(x, 0.25), y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_dropout_leaves_of_words_is_known(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    y, linear = features.dropped(known_words(dtype), 0.5), nn.Linear(400, 3, dtype=dtype)
    assert y is not None
    calls, own = [], features.aggregate
    monkeypatch.setattr(features, "aggregate", lambda *args: calls.append(1) or own(*args))
    out = features.mapped(linear, y)
    assert calls
    g = torch.randn_like(out)
    grads = torch.autograd.grad((out * g).sum(), list(linear.parameters()))
    exact = linear(y)
    torch.testing.assert_close(out, exact, rtol=0, atol=1e-5)
    for one, right in zip(grads, torch.autograd.grad((exact * g).sum(), list(linear.parameters())), strict=True):
        torch.testing.assert_close(one, right, rtol=0, atol=1e-4)
    y[0] = 1.0
    torch.testing.assert_close(features.mapped(linear, y), linear(y))


@pytest.mark.parametrize("kind", ["new", "trained", "written since", "dense"])
def test_dropout_of_other_features_is_drawn_elsewhere(kind: str) -> None:
    x = torch.rand(30, 400) if kind == "dense" else words() if kind == "new" else known_words()
    if kind == "written since":
        x[0, 0] = 1.0
    if kind == "trained":
        x.requires_grad_()
    if kind == "dense":
        mapped_again(x, nn.Linear(400, 3))
    assert features.dropped(x, 0.5) is None


def test_a_model_drops_words_by_their_non_zeros() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GCNConv(400, 3)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(functional.dropout(x, 0.5, self.training))
            return self.conv(seen[-1], EDGES)

    seen: list[Tensor] = []
    net, x = convert(Net()), words().T.contiguous().T  # in another order in memory
    for _ in range(features.AGAIN + 2):
        net(x).sum().backward()
    assert [features._calls(y) == [features.AGAIN] for y in seen] == [False] * (features.AGAIN - 1) + [True] * 3
    for y in seen:
        assert torch.equal(y[y != 0], 2 * x[y != 0])
        assert 0.3 < float((y != 0).sum() / (x != 0).sum()) < 0.7
    net.eval()
    assert net(x).shape == (30, 3)
    assert seen[-1] is x


WIDER = {
    "GCN": lambda: pyg.GCNConv(5, 8),
    "GCN by weights": lambda: pyg.GCNConv(5, 8),
    "SAGE": lambda: pyg.SAGEConv(5, 8),
    "SAGE of sums": lambda: pyg.SAGEConv(5, 8, aggr="sum"),
    "SAGE of maxima": lambda: pyg.SAGEConv(5, 8, aggr="max"),
    "narrower SAGE": lambda: pyg.SAGEConv(5, 2),
    "of two kinds": lambda: pyg.HeteroConv({("a", r, "a"): pyg.SAGEConv(5, 3) for r in "xy"}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", WIDER)
def test_sums_of_features_that_come_again_are_kept(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Tensor | None] = []
    real = features.kept
    monkeypatch.setattr(sums, "kept", lambda *args: found.append(real(*args)) or found[-1])
    torch.manual_seed(0)
    layer, x, weight = WIDER[name]().to(dtype), torch.randn(30, 5, dtype=dtype), torch.rand(90, dtype=dtype)
    inputs = (x, EDGES, weight) if "weights" in name else (x, EDGES)
    if name == "of two kinds":
        inputs = {"a": x}, {("a", r, "a"): EDGES.roll(n, 1) for n, r in enumerate("xy")}

    def with_gradients(module: nn.Module) -> list[Tensor]:
        y = module(*inputs)
        y = y if isinstance(y, Tensor) else y["a"]
        return [y, *torch.autograd.grad(y.square().sum(), list(module.parameters()))]

    right, twin = with_gradients(layer), convert(layer)
    with torch.inference_mode():
        for _ in range(features.AGAIN):
            twin(*inputs)
    for _ in range(3):
        for own, theirs in zip(with_gradients(twin), right, strict=True):
            torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-4 if dtype == torch.float32 else 1e-10)
    kinds = 2 if name == "of two kinds" else 1  # of which the first leaves no room for the other
    assert found[0] is None and found[-kinds] is not None and found[-kinds] is found[-2 * kinds]
    before = twin(*inputs)
    x.mul_(2)  # written: everything anew
    after = twin(*inputs)
    if isinstance(after, dict):
        before, after = before["a"], after["a"]
    assert found[-1] is None and not torch.allclose(before, after)


def test_sums_are_not_kept_of_trained_new_or_few_rows_and_go_with_the_edges() -> None:
    x, graph = torch.randn(30, 5), graph_of(EDGES, 30, 30)

    def last(x: Tensor, edges: Tensor = EDGES, **options: Any) -> Tensor | None:
        for _ in range(features.AGAIN):
            found = features.kept(options.get("graph", graph), edges, x, "sum", options.get("weight"))
        return found

    expected = torch.zeros(30, 5).index_add(0, EDGES[1], x[EDGES[0]])
    torch.testing.assert_close(last(x), expected)
    assert last(x.clone().requires_grad_()) is None
    assert last(x, weight=torch.ones(90).requires_grad_()) is None
    assert all(features.kept(graph, EDGES, x.clone(), "sum") is None for _ in range(6))
    assert last(x[:10], torch.randint(10, (2, 9)), graph=graph_of(torch.randint(10, (2, 9)), 10, 30)) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert last(x) is None
    edges = EDGES.clone()
    assert last(x, edges) is None  # as large as x is what is kept already
    x = x.clone()
    kept = ref(last(x, edges))
    assert kept() is not None
    few = torch.tensor([[20], [1]])
    assert last(x, few, graph=graph_of(few, 30, 3)) is None
    del edges
    assert last(x, EDGES.clone()) is not None  # in place of what has gone
    assert kept() is None
    wide = torch.randn(30, 5)
    both = [torch.randint(15, (2, 40)) for _ in range(3)]
    held = [last(wide, index, graph=graph_of(index, 30, 15)) is not None for index in both]
    assert held == [True, True, False]


def test_kept_sums_are_those_of_the_number_of_receivers() -> None:
    x, edges = torch.randn(30, 4), torch.stack([EDGES[0], EDGES[1] % 5])
    for receivers in (5, 5, 5, 5, 5, 7, 5):
        graph = graph_of(edges, 30, receivers)
        found = features.kept(graph, edges, x, "sum")
        assert found is None or len(found) == receivers
    assert found is not None
