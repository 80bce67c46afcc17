"""GINConv whose network runs as one operation with its sum, beside PyTorch Geometric's own."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from edgewise.interop import convert
from edgewise.interop.geometric import perceptrons
from edgewise.kernels import perceptron
from interop.geometric.parity import check, graphs

pyg = pytest.importorskip("torch_geometric.nn")


def sequential(*norms: nn.Module, last: tuple[nn.Module, ...] = ()) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 6), *norms, nn.ReLU(), nn.Linear(6, 3), *last)


ONE: dict[str, Callable[[], nn.Module]] = {
    "MLP": lambda: pyg.MLP([5, 6, 3]),
    "MLP without normalisation": lambda: pyg.MLP([5, 6, 3], norm=None),
    "MLP without biases": lambda: pyg.MLP([5, 6, 3], bias=False),
    "maps": sequential,
    "batch normalisation": lambda: sequential(nn.BatchNorm1d(6)),
    "PyTorch Geometric's": lambda: sequential(pyg.BatchNorm(6)),
    "a ReLU after all": lambda: sequential(nn.BatchNorm1d(6), last=(nn.ReLU(),)),
    "a map to fewer": lambda: nn.Sequential(nn.Linear(5, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 3)),
}
SEVERAL: dict[str, Callable[[], nn.Module]] = {
    "another activation": lambda: pyg.MLP([5, 6, 3], act="tanh"),
    "another order": lambda: pyg.MLP([5, 6, 3], act_first=True),
    "three maps": lambda: pyg.MLP([5, 6, 6, 3]),
    "one map": lambda: pyg.MLP([5, 3]),
    "everything after the last map too": lambda: pyg.MLP([5, 6, 3], plain_last=False),
    "another normalisation": lambda: pyg.MLP([5, 6, 3], norm="layer_norm"),
    "no weights": lambda: sequential(nn.BatchNorm1d(6, affine=False)),
    "no running means": lambda: sequential(nn.BatchNorm1d(6, track_running_stats=False)),
    "a mean over all batches": lambda: sequential(nn.BatchNorm1d(6, momentum=None)),
    "two of them": lambda: sequential(nn.BatchNorm1d(6), nn.BatchNorm1d(6)),
    "nothing": nn.Sequential,
    "a map alone": lambda: nn.Sequential(nn.Linear(5, 3)),
    "another end": lambda: sequential(last=(nn.Tanh(),)),
}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Counts the calls that ran as one operation."""
    seen = mock.Mock()

    def watched(*args: Any) -> Tensor | None:
        y = perceptron(*args)
        if y is not None:
            seen()
        return y

    monkeypatch.setattr(perceptrons, "perceptron", watched)
    return seen


@pytest.mark.parametrize("graph", graphs().values(), ids=graphs())
@pytest.mark.parametrize("make", [*ONE.values(), *SEVERAL.values()], ids=[*ONE, *SEVERAL])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("train_eps", [True, False])
def test_results_and_gradients(
    graph: Any, make: Callable[[], nn.Module], training: bool, train_eps: bool, counted: mock.Mock
) -> None:
    torch.manual_seed(3)
    edge_index, nodes = graph
    network = make()
    refused = "Norm" if training else "LayerNorm"  # of an empty batch, by PyTorch and PyTorch Geometric themselves
    if not nodes and any(refused in type(part).__name__ for part in network.modules()):
        return
    layer = pyg.GINConv(network, eps=0.25, train_eps=train_eps).train(training)
    check(layer, torch.randn(nodes, 5), edge_index)
    assert bool(counted.call_count) == (make in ONE.values() and nodes > 0)


def test_running_means_are_counted_as_before() -> None:
    theirs = pyg.GINConv(pyg.MLP([5, 6, 3]))
    ours, edge_index = convert(deepcopy(theirs)), torch.randint(0, 20, (2, 50))
    for _ in range(3):
        x = torch.randn(20, 5)
        torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index))
    for (name, a), (_, b) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
    x = torch.randn(20, 5)
    torch.testing.assert_close(ours.eval()(x, edge_index), theirs.eval()(x, edge_index))


@pytest.mark.parametrize("training", [True, False])
def test_second_derivatives(training: bool) -> None:
    layer = convert(pyg.GINConv(pyg.MLP([3, 4, 2]), train_eps=True).double().train(training))
    edge_index = torch.randint(0, 6, (2, 14))
    names = [name for name, _ in layer.named_parameters()]

    def called(x: Tensor, *weights: Tensor) -> Tensor:
        y: Tensor = torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x, edge_index))
        return y

    inputs = [torch.randn(6, 3, dtype=torch.float64, requires_grad=True), *layer.parameters()]
    assert torch.autograd.gradcheck(called, inputs)
    assert torch.autograd.gradgradcheck(called, inputs)


def test_a_row_alone_is_refused_as_pytorch_does() -> None:
    layer, one = convert(pyg.GINConv(pyg.MLP([5, 6, 3]))), torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        layer(torch.randn(1, 5), one)


@pytest.mark.parametrize("place", ["", "lins.0", "norms.0", "norms.0.module", "act", "lins.1"])
def test_hooks_are_called(place: str, counted: mock.Mock) -> None:
    layer, calls = convert(pyg.GINConv(pyg.MLP([5, 6, 3]))), []
    layer.nn.get_submodule(place).register_forward_hook(lambda *_: calls.append(1))
    layer(torch.randn(9, 5), torch.randint(0, 9, (2, 20)))
    assert calls == [1]
    assert not counted.called


@pytest.mark.parametrize("place", ["", "lins.0", "norms.0", "norms.0.module", "act", "lins.1"])
def test_a_forward_pass_in_place_of_its_class_s_is_called(place: str, counted: mock.Mock) -> None:
    theirs = pyg.GINConv(pyg.MLP([5, 6, 3]))
    part = theirs.nn.get_submodule(place)
    part.forward = lambda *args, **named: 2 * type(part).forward(part, *args, **named)
    ours, x, edge_index = convert(deepcopy(theirs)), torch.randn(9, 5), torch.randint(0, 9, (2, 20))
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index), atol=1e-5, rtol=1e-5)
    assert not counted.called


@pytest.mark.parametrize("kind", [nn.Linear, nn.ReLU, nn.BatchNorm1d, pyg.MLP])
def test_classes_of_ones_own_are_called(kind: Any, counted: mock.Mock) -> None:
    class Own(kind):  # type: ignore[misc]
        def forward(self, *args: Any, **named: Any) -> Any:
            return 2 * super().forward(*args, **named)

    network = Own([5, 6, 3]) if kind is pyg.MLP else sequential(nn.BatchNorm1d(6))
    for part in network.modules():
        if type(part) is kind:
            part.__class__ = Own
    theirs = pyg.GINConv(network)
    ours, x, edge_index = convert(deepcopy(theirs)), torch.randn(9, 5), torch.randint(0, 9, (2, 20))
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index), atol=1e-5, rtol=1e-5)
    assert not counted.called


def test_other_inputs() -> None:
    """Features of another layout, of half precision, of receivers of their own, and dropout between the maps."""
    theirs = pyg.GINConv(pyg.MLP([5, 6, 3], norm=None))
    ours, edge_index = convert(deepcopy(theirs)), torch.randint(0, 9, (2, 20))
    strided, two = torch.randn(5, 9).T, (torch.randn(9, 5), torch.randn(9, 5))
    for x in (strided, two, torch.randn(2, 9, 5)):
        torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index), atol=1e-5, rtol=1e-5)
    x = torch.randn(9, 5).bfloat16()
    torch.testing.assert_close(ours.bfloat16()(x, edge_index), theirs.bfloat16()(x, edge_index), atol=5e-2, rtol=5e-2)
    dropped = convert(nn.ModuleList([pyg.GINConv(pyg.MLP([5, 64, 64], norm=None, dropout=0.5))]))[0]
    x = torch.randn(9, 5)
    assert not torch.equal(dropped(x, edge_index), dropped(x, edge_index))
    assert torch.equal(dropped.eval()(x, edge_index), dropped(x, edge_index))
