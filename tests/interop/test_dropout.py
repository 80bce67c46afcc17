"""Dropout around converted layers is drawn by counter: with the right share, mean, gradient and generator."""

import pickle
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import edgewise
from edgewise.interop import conversion, convert
from edgewise.interop.dropout import OwnFunctions, unwatched

pyg = pytest.importorskip("torch_geometric.nn")
EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dropout = pyg.GCNConv(6, 5), nn.Dropout(0.4)

    def forward(self, x: Tensor, edge_index: Tensor, fail: bool = False) -> Tensor:
        x = functional.dropout(x, p=0.3, training=self.training)
        if fail:
            raise ValueError("it fails")
        return self.dropout(self.conv(x, edge_index))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def test_its_forward_pass_drops_by_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewise.interop import dropout as room

    drawn: list[float] = []
    own = room.dropout
    monkeypatch.setattr(room, "dropout", lambda x, p: drawn.append(p) or own(x, p))
    model, x = convert(net()), torch.randn(4, 6)
    model(x, EDGES)
    assert drawn == [0.3, 0.4]
    model.eval()(x, EDGES)
    functional.dropout(x)  # elsewhere it is PyTorch's
    assert drawn == [0.3, 0.4]


def test_in_evaluation_it_is_the_module_that_it_was() -> None:
    model, x = net().eval(), torch.randn(4, 6)
    before = model(x, EDGES)
    torch.testing.assert_close(convert(model)(x, EDGES), before)
    assert conversion(model).twins == {"conv": "GCNConv"}
    assert isinstance(model, Net) and type(model).__name__ == "Net" and edgewise.convert(model) is model


def test_the_seed_decides_and_the_mean_stays() -> None:
    model, x = convert(net()), torch.ones(4, 6)
    torch.manual_seed(3)
    first = model(x, EDGES)
    torch.manual_seed(3)
    assert torch.equal(model(x, EDGES), first) and not torch.equal(model(x, EDGES), first)
    with OwnFunctions():
        y = functional.dropout(torch.ones(200_000), 0.3)
    assert abs(float((y == 0).float().mean()) - 0.3) < 0.01 and abs(float(y.mean()) - 1) < 0.01


def test_gradients_are_those_of_what_was_kept() -> None:
    x = torch.ones(1_000, requires_grad=True)
    with OwnFunctions():
        y = functional.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_the_ends_are_pytorchs(p: float) -> None:
    with OwnFunctions():
        assert torch.equal(functional.dropout(torch.ones(5), p), torch.full((5,), 1 - p))


def test_in_place_and_what_is_wrong_are_pytorchs() -> None:
    x = torch.ones(100)
    with OwnFunctions():
        assert functional.dropout(x, 0.5, inplace=True) is x and (x == 0).any()
        with pytest.raises(ValueError, match="probability"):
            functional.dropout(x, 1.5)


def test_after_an_error_nothing_stays() -> None:
    model = convert(net())
    with pytest.raises(ValueError, match="it fails"):
        model(torch.ones(4, 6), EDGES, fail=True)
    assert torch.overrides._get_current_function_mode() is None


def test_it_is_copied_and_pickled() -> None:
    model, x = convert(net()).eval(), torch.randn(4, 6)
    for other in (deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert torch.equal(other(x, EDGES), model(x, EDGES))


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # by the compiler
def test_compiled_it_is_what_the_compiler_makes_of_it() -> None:
    model, x = convert(net()).eval(), torch.randn(4, 6)
    torch.testing.assert_close(torch.compile(model)(x, EDGES), model(x, EDGES))


def test_code_that_draws_none_runs_outside_the_mode() -> None:
    def modes() -> int:
        return int(torch._C._len_torch_function_stack())

    def failing() -> None:
        raise ValueError("inside")

    assert unwatched(modes) == 0
    with OwnFunctions():
        assert unwatched(modes) == 0
        assert modes() == 1
        with pytest.raises(ValueError, match="inside"):
            unwatched(failing)
        assert modes() == 1
        with torch.device("cpu"):  # the mode on top is another one: it stays
            assert unwatched(modes) == 2
    assert modes() == 0


@pytest.mark.parametrize("biased", [True, False])
def test_products_of_long_rows_are_what_they_are(biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewise.interop import dropout as room

    calls: list[int] = []
    own = room.affine
    monkeypatch.setattr(room, "affine", lambda *args: calls.append(1) or own(*args))
    torch.manual_seed(0)
    x, long, short = torch.randn(30, 2100, requires_grad=True), nn.Linear(2100, 64, biased), nn.Linear(64, 3)
    leaves = [x, *long.parameters(), *short.parameters()]
    right = short(long(x))
    exact = torch.autograd.grad(right.square().sum(), leaves)
    with OwnFunctions():
        y = short(long(x))
        assert calls == [1]
        assert long(x[None]).shape == (1, 30, 64)  # of three axes: PyTorch's own
    assert calls == [1]
    torch.testing.assert_close(y, right, rtol=1e-5, atol=1e-5)
    for one, other in zip(torch.autograd.grad(y.square().sum(), leaves), exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_computes_again_what_it_computed(reentrant: bool) -> None:
    class Checkpointed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.long = nn.Linear(5, 2100)

        def block(self, x: Tensor) -> Tensor:
            return functional.linear(functional.dropout(self.long(x), 0.5, self.training), self.long.weight.T)

        def forward(self, x: Tensor, edge_index: Tensor, plainly: bool = False) -> Tensor:
            x = self.conv(x, edge_index)
            return self.block(x) if plainly else checkpoint(self.block, x, use_reentrant=reentrant)

    torch.manual_seed(0)
    model, x, seen = convert(Checkpointed()), torch.randn(4, 6), []
    for plainly in (True, False):
        model.zero_grad()
        torch.manual_seed(1)
        y = model.twin_of.forward(model, x, EDGES, plainly) if plainly else model(x, EDGES)
        y.square().sum().backward()
        seen.append([y, *(p.grad for p in model.parameters())])
    torch.testing.assert_close(*seen)
