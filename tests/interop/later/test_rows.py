"""Of a sampled batch only those rows are computed that are read; whatever is read is right."""

import gc
from copy import deepcopy
from itertools import pairwise
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import ConfigError
from edgewise.interop import convert
from edgewise.interop.dropout import OwnFunctions
from edgewise.interop.later import rows
from edgewise.interop.later.rows import Beginning, begun, read_rows
from edgewise.interop.later.tensor import Later, ordinary

pyg = pytest.importorskip("torch_geometric.nn")

SEEDS, FIRST, NODES = 20, 90, 500  # nodes that are read, and those with edges
WIDTH = 24


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SPARED", 0)


def sampled() -> Tensor:
    """Edges of two hops: of seeds from the next nodes, and of those from the last."""
    hops = [torch.stack([torch.randint(0, FIRST, (100,)), torch.randint(0, SEEDS, (100,))])]
    hops.append(torch.stack([torch.randint(0, NODES, (400,)), torch.randint(SEEDS, FIRST, (400,))]))
    return torch.cat(hops, 1)


class SAGE(nn.Module):
    def __init__(self, *widths: int, dropout: float = 0.0, **options: Any) -> None:
        super().__init__()
        sizes = pairwise(widths)
        self.convs = nn.ModuleList([pyg.SAGEConv(a, b, **options) for a, b in sizes])
        self.dropout, self.seen = dropout, list[Tensor]()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.seen = []
        for conv in self.convs:
            x = conv(x, edge_index)
            self.seen.append(x)
            if conv is not self.convs[-1]:
                x = functional.dropout(x.relu_(), self.dropout, self.training)
        return x


def known(x: Tensor) -> int:
    """How many rows of a result were computed."""
    assert type(x) is Beginning
    return x.numbers.known  # type: ignore[attr-defined]


@pytest.mark.parametrize("widths", [(WIDTH, 16, 4), (WIDTH, 32, 16, 4), (WIDTH, 32, 40, 8)], ids=str)
@pytest.mark.parametrize("aggr", ["mean", "sum"])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("read", [1, SEEDS, FIRST, NODES])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)], ids=str)
def test_rows_and_gradients(widths: Any, aggr: str, trained: bool, read: int, dtype: Any, tolerance: float) -> None:
    torch.manual_seed(0)
    edge_index, theirs = sampled(), SAGE(*widths, aggr=aggr).to(dtype)
    ours, x = convert(deepcopy(theirs)), torch.randn(NODES, WIDTH, dtype=dtype).requires_grad_(trained)
    results = []
    for model in (ours, theirs):
        y = model(x, edge_index)
        if model is ours and widths == (WIDTH, 16, 4):
            assert (known(ours.seen[0]), known(y)) == (FIRST, SEEDS)
        y = y[:read]
        results.append((y, torch.autograd.grad(y.square().sum(), [*model.parameters(), *([x] if trained else [])])))
    (y, grads), (exact, expected) = results
    assert type(y) is Tensor
    torch.testing.assert_close(y, exact, atol=tolerance, rtol=tolerance)
    for a, b in zip(grads, expected, strict=True):
        scale = float(b.abs().max().clamp(min=1))
        assert not isinstance(a, Later)
        torch.testing.assert_close(a / scale, b / scale, atol=tolerance, rtol=tolerance)
    if read <= SEEDS and len(widths) == 3:
        assert (known(ours.seen[0]), known(ours.seen[1])) == (FIRST, SEEDS)


@pytest.mark.parametrize("all_first", [False, True])
def test_dropout_drops_the_same_whatever_is_read(all_first: bool) -> None:
    torch.manual_seed(0)
    edge_index, model, x = sampled(), convert(SAGE(WIDTH, 16, 4, dropout=0.5)), torch.randn(NODES, WIDTH)
    found = []
    for whole in (all_first, not all_first):
        torch.manual_seed(1)
        y = model(x, edge_index)
        y = ordinary(y)[:SEEDS] if whole else y[:SEEDS]
        found.append((y, torch.autograd.grad(y.square().sum(), list(model.parameters()))))
    torch.testing.assert_close(found[0][0], found[1][0])
    for a, b in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(a, b)
    y = begun(torch.ones(40, 9, requires_grad=True) * 1, 100, lambda w: w.expand(60, 9), torch.ones(1, 9))
    with OwnFunctions():
        torch.manual_seed(3)
        dropped = functional.dropout(y, 0.4)
        torch.manual_seed(3)
        exact = functional.dropout(torch.ones(100, 9), 0.4)
    assert type(dropped) is Beginning and torch.equal(dropped[:40], exact[:40])
    assert torch.equal(ordinary(dropped), exact)


def test_rows_that_are_read_after_the_optimizers_step_are_those_of_before() -> None:
    torch.manual_seed(0)
    edge_index, theirs, x = sampled(), SAGE(WIDTH, 16, 4), torch.randn(NODES, WIDTH)
    model = convert(deepcopy(theirs))
    y, exact = model(x, edge_index), theirs(x, edge_index)
    y[:SEEDS].sum().backward()
    torch.optim.SGD(model.parameters(), 0.5).step()
    assert known(y) == SEEDS
    torch.testing.assert_close(ordinary(y), exact, atol=1e-5, rtol=1e-5)


def test_features_that_were_written_meanwhile() -> None:
    edge_index, model, x = sampled(), convert(SAGE(WIDTH, 16, 4)), torch.randn(NODES, WIDTH)
    y = model(x, edge_index)
    x.add_(1.0)
    assert torch.isfinite(y[:SEEDS]).all()
    with pytest.raises(ConfigError, match="read them first, or write to a copy"):
        y.sum()


def test_a_result_that_is_written_after_the_next_layer_has_read_it_has_no_gradient() -> None:
    edge_index, model, x = sampled(), convert(SAGE(WIDTH, 16, 4)), torch.randn(NODES, WIDTH)
    y = model.convs[0](x, edge_index)
    z = model.convs[1](y, edge_index)[:SEEDS]
    y.relu_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_written_result_leaves_what_follows_from_it_as_it_was() -> None:
    torch.manual_seed(0)
    edge_index, theirs, x = sampled(), SAGE(WIDTH, 16, 4), torch.randn(NODES, WIDTH)
    model, found = convert(deepcopy(theirs)), []
    for one in (model, theirs):
        y = one.convs[0](x, edge_index)
        z = one.convs[1](y, edge_index)
        y.detach().zero_()
        found.append(ordinary(z).detach())
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_second_derivatives() -> None:
    torch.manual_seed(0)
    edge_index, model = sampled(), convert(SAGE(6, 5, 2)).double()
    x = torch.randn(NODES, 6, dtype=torch.float64)
    names = [name for name, _ in model.named_parameters()]
    weights = [t.detach().requires_grad_() for t in model.parameters()]

    def loss(*given: Tensor) -> Tensor:
        y = torch.func.functional_call(model, dict(zip(names, given, strict=True)), (x, edge_index))
        return y[:3].pow(3).sum() + y[SEEDS : SEEDS + 2].pow(2).sum()

    assert torch.autograd.gradcheck(loss, weights) and torch.autograd.gradgradcheck(loss, weights)


def test_one_side_of_a_result_without_gradient_is_computed_at_once() -> None:
    edge_index, model, x = sampled(), convert(SAGE(WIDTH, 16, 4)), torch.randn(NODES, WIDTH)
    with torch.no_grad():
        assert type(model(x, edge_index)) is Tensor
    model.convs[1].requires_grad_(False)
    assert type(model(x, edge_index)) is Tensor
    whole = torch.randint(0, NODES, (2, 3_000))
    assert type(convert(SAGE(WIDTH, 16, 4))(x, whole)) is Tensor


@pytest.mark.parametrize("name", ["GCNConv", "GATConv", "GATv2Conv", "TransformerConv", "SAGEConv"])
def test_other_layers_read_it(name: str) -> None:
    torch.manual_seed(0)
    edge_index, x = sampled(), torch.randn(NODES, WIDTH)
    theirs = nn.ModuleList([pyg.SAGEConv(WIDTH, 16), getattr(pyg, name)(16, 4)])
    ours, found = convert(deepcopy(theirs)), []
    for model in (ours, theirs):
        y = model[1](model[0](x, edge_index), edge_index)[:SEEDS]
        found.append((y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_the_same_bits_on_any_number_of_threads() -> None:
    torch.manual_seed(0)
    edge_index, model, x = sampled(), convert(SAGE(WIDTH, 16, 4, dropout=0.3)), torch.randn(NODES, WIDTH)
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            torch.manual_seed(1)
            y = model(x, edge_index)
            first, whole = y[:SEEDS], ordinary(y)
            found.append((whole, *torch.autograd.grad(first.square().sum(), list(model.parameters()))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_nothing_stays_in_memory() -> None:
    edge_index, model, x = sampled(), convert(SAGE(WIDTH, 16, 4, dropout=0.3)), torch.randn(NODES, WIDTH)
    gc.collect()
    gc.disable()
    try:
        y = model(x, edge_index)
        alive = [ref(t.numbers) for t in model.seen]  # type: ignore[attr-defined]
        y[:SEEDS].sum().backward()
        del y
        model.seen = []
        assert not [r for r in alive if r() is not None]
    finally:
        gc.enable()


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 192, 299, 300])
def test_rows_up_to_the_last_that_is_not_zero(count: int) -> None:
    g = torch.zeros(300, 4)
    g[:count:2] = 1.0
    if count:
        g[count - 1, 2] = torch.nan
    assert read_rows(g) == count
    assert read_rows(g[:0]) == 0
