"""SAGEConv of sampled batches: the last nodes hear nobody, nobody reads them, and products leave them out."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.interop import convert
from edgewise.interop.geometric.batches import affine, heard, maps, sums_first

pyg = pytest.importorskip("torch_geometric.nn")

SEEDS, FIRST, NODES = 20, 90, 500  # nodes that are read, and those with edges
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
OPTIONS: list[dict[str, Any]] = [{}, {"aggr": "sum"}, {"aggr": "max"}, {"bias": False}, {"normalize": True}]


def sampled() -> Tensor:
    """Edges of two hops: of seeds from the next nodes, and of those from the last."""
    hops = [torch.stack([torch.randint(0, FIRST, (100,)), torch.randint(0, SEEDS, (100,))])]
    hops.append(torch.stack([torch.randint(0, NODES, (400,)), torch.randint(SEEDS, FIRST, (400,))]))
    return torch.cat(hops, 1)


class SAGE(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(48, 32, **options), pyg.SAGEConv(32, 4, **options)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        y: Tensor = self.convs[1](functional.relu_(self.convs[0](x, edge_index)), edge_index)
        return y


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("read", [0, SEEDS, NODES])
def test_batches_of_two_hops(dtype: torch.dtype, options: Any, trained: bool, read: int) -> None:
    torch.manual_seed(0)
    edge_index, theirs = sampled(), SAGE(**options).to(dtype)
    ours = convert(deepcopy(theirs))
    x = torch.randn(48, NODES, dtype=dtype).T.requires_grad_(trained)  # not contiguous
    results = []
    for model in (ours, theirs):
        y = model(x, edge_index)
        leaves = [*model.parameters(), *([x] if trained else [])]
        results.append((y, torch.autograd.grad(y[:read].square().sum(), leaves)))
    (y, grads), (exact, expected) = results
    torch.testing.assert_close(y, exact, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    for a, b in zip(grads, expected, strict=True):
        scale = float(b.abs().max().clamp(min=1))
        torch.testing.assert_close(a / scale, b / scale, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_bfloat16_is_as_near_to_the_exact_result_as_plain_layers_are() -> None:
    torch.manual_seed(0)
    edge_index, model, x = sampled(), SAGE(), torch.randn(NODES, 48)
    weights, found = list(model.parameters()), []
    for like, converted in ((torch.float64, False), (torch.bfloat16, False), (torch.bfloat16, True)):
        one = deepcopy(model).to(like)
        one = convert(one) if converted else one
        y = one(x.to(like), edge_index)[:SEEDS]
        found.append([y, *torch.autograd.grad(y.sum(), list(one.parameters()))])
    assert len(found[0]) == 1 + len(weights)
    for exact, plain, ours in zip(*found, strict=True):
        assert (ours - exact).norm() <= 1.5 * (plain - exact).norm() + 1e-6


@pytest.mark.parametrize("edge_index", [torch.zeros(2, 0, dtype=torch.int64), torch.tensor([[1, 2], [0, 0]])], ids=str)
@pytest.mark.parametrize("nodes", [0, 3])
def test_hardly_any_edges_and_features_that_nothing_trains(edge_index: Tensor, nodes: int) -> None:
    edge_index = edge_index[:, : nodes // 2 * 2]
    theirs = pyg.SAGEConv(6, 4)
    ours, x = convert(deepcopy(theirs)), torch.randn(nodes, 6)
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index))


def test_features_of_which_few_are_not_zero_are_summed_after_the_product() -> None:
    x = torch.zeros(40, 400)
    x[torch.arange(40), torch.arange(40)] = 1.0
    edge_index = torch.randint(0, 40, (2, 90))
    theirs = pyg.SAGEConv(400, 8)
    ours = convert(deepcopy(theirs))
    for _ in range(6):
        torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index), atol=1e-5, rtol=1e-5)


def test_last_rows_are_left_out_of_the_backward_pass() -> None:
    x = torch.randn(300, 5)
    x[-1] = torch.nan
    W = torch.randn(3, 5, requires_grad=True)
    for y in (affine(x, W, None), maps(x, W, torch.randn(3, 5), None)[0]):
        (dW,) = torch.autograd.grad(y[:7].sum(), W)
        torch.testing.assert_close(dW, x[:7].sum(0).expand(3, 5))


@pytest.mark.parametrize(("count", "bias"), [(None, True), (1_100, True), (7, False), (0, True)])
def test_products_with_long_rows(count: int | None, bias: bool) -> None:
    x, W, b = torch.randn(1_500, 2_100), torch.randn(50, 2_100), torch.randn(50)
    sums, W_sum = torch.randn(5, 2_100), torch.randn(50, 2_100)
    exact = (x.double() @ W.double().T)[:count] + bias * b
    exact[:5] += (sums.double() @ W_sum.double().T)[: len(exact)]
    y = affine(x, W, b if bias else None, W_sum, sums[: len(exact)], count)
    assert y.shape == exact.shape and y.dtype == torch.float32
    assert not len(y) or (y - exact).abs().max() <= 1e-5 * exact.abs().max()


def test_second_derivatives() -> None:
    def inputs(*shapes: tuple[int, ...]) -> list[Tensor]:
        return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def at_first(*given: Tensor) -> Tensor:
        x, W, b, W_sum, sums = given
        return affine(x, W, b, W_sum, sums)[:2].square()

    def of_both(*given: Tensor) -> Tensor:
        Wx, Rx = maps(*given)
        return Wx[:4].square().sum() + Rx[:2].pow(3).sum()

    assert torch.autograd.gradgradcheck(at_first, inputs((6, 3), (2, 3), (2,), (2, 4), (5, 4)))
    assert torch.autograd.gradgradcheck(of_both, inputs((6, 3), (2, 3), (2, 3), (2,)))
    assert torch.autograd.gradcheck(of_both, inputs((6, 3), (2, 3), (2, 3), (2,)))


def test_receivers_up_to_the_last_that_hears_somebody() -> None:
    graph = Graph.from_edge_index(torch.tensor([[5, 4, 3], [0, 2, 2]]), 6)
    assert heard(graph).num_receivers == 3
    assert heard(graph).num_senders == 6
    assert heard(graph).senders.tolist() == graph.senders.tolist()
    whole = Graph.from_edge_index(torch.tensor([[5], [5]]), 6)
    assert heard(whole) is whole


def test_what_is_summed_first() -> None:
    torch.manual_seed(0)
    batch, whole = Graph.from_edge_index(sampled(), NODES), Graph.from_edge_index(torch.randint(0, 50, (2, 900)), 50)
    assert sums_first(batch, torch.empty(NODES, 48), 32)
    assert not sums_first(whole, torch.empty(50, 300), 16)


@pytest.mark.parametrize("outputs", [64, 16])
@pytest.mark.parametrize("name", ["lin_l", "lin_r"])
def test_maps_with_hooks_and_of_other_classes_are_called(name: str, outputs: int) -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    edge_index, x = sampled(), torch.randn(NODES, 48)
    hooked, calls = convert(pyg.SAGEConv(48, outputs)), []
    getattr(hooked, name).register_forward_hook(lambda *_: calls.append(1))
    hooked(x, edge_index)
    assert calls == [1]
    other = pyg.SAGEConv(48, outputs)
    setattr(other, name, Doubled(48, outputs, bias=name == "lin_l"))
    exact = other(x, edge_index)
    torch.testing.assert_close(convert(other)(x, edge_index), exact, atol=1e-5, rtol=1e-5)


def test_functions_transformed_and_lower_precision() -> None:
    torch.manual_seed(0)
    edge_index, theirs = sampled(), SAGE()
    ours, x = convert(deepcopy(theirs)), torch.randn(NODES, 48)
    loss = [torch.func.grad(lambda x, m=m: m(x, edge_index)[:SEEDS].sum())(x) for m in (ours, theirs)]
    torch.testing.assert_close(loss[0], loss[1], atol=1e-5, rtol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(ours(x, edge_index).float(), theirs(x, edge_index).float(), atol=5e-2, rtol=5e-2)
