"""Results whose numbers come later behave as ordinary tensors do, whatever is done with them."""

import io
import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import ConfigError
from edgewise.interop.later import rows, tensor
from edgewise.interop.later.pairs import table
from edgewise.interop.later.rows import begun
from edgewise.interop.later.tensor import Later, ordinary

ROWS, WIDTH, FIRST = 12, 4, 5
Make = Callable[[Tensor], Tensor]


def as_table(x: Tensor) -> Tensor:
    return table(x * 2)


def as_beginning(x: Tensor) -> Tensor:
    return begun(x[:FIRST] * 2, len(x), lambda x: x[FIRST:] * 2, x)


MAKERS: dict[str, Make] = {"table": as_table, "beginning": as_beginning}


def written(y: Tensor) -> Tensor:
    y.mul_(3.0)
    return y


def view_written(y: Tensor) -> Tensor:
    part = y[:3]
    part.add_(1.0)
    return y * 2


def whole_written_after_a_view(y: Tensor) -> Tensor:
    part = y[1:4]
    y.add_(5.0)
    return part


def relu_in_place(y: Tensor) -> Tensor:
    return functional.relu_(y) * 2


def read_before_it_is_written(y: Tensor) -> Tensor:
    z = torch.relu(y)
    y.add_(1.0)
    return torch.cat([z, y])


def detached_and_written(y: Tensor) -> Tensor:
    other = y.detach()
    other.add_(1.0)
    return y + other


def in_the_middle(y: Tensor) -> Tensor:
    y[2, 1] = 7.0
    y[3:5] = y[:2] * 2
    return y


def lower_precision(y: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return y[:, 0].float() + y.sum(1).float()


READ: list[Callable[[Tensor], Tensor]] = [
    lambda y: y[:3],
    lambda y: y[FIRST - 1 : FIRST + 2],
    lambda y: y[2:3, 1],
    lambda y: y[-1],
    lambda y: y.T @ y,
    lambda y: torch.relu(y)[:2],
    lambda y: torch.relu(y),
    lambda y: torch.relu(torch.relu(y)[:FIRST]),
    lambda y: torch.cat([y, y]),
    lambda y: y.view(-1),
    lambda y: functional.log_softmax(y, 1)[:2],
    lambda y: torch.zeros_like(y) + torch.ones_like(y) * y,
    lambda y: y.clone().t(),
    lambda y: torch.zeros(ROWS, WIDTH).add_(y),
    lambda y: torch.stack(list(y.unbind(0))),
    lambda y: y[torch.tensor([0, -1, 3])],
    lambda y: y[y > 0],
    written,
    view_written,
    whole_written_after_a_view,
    relu_in_place,
    read_before_it_is_written,
    detached_and_written,
    in_the_middle,
    lower_precision,
]


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor, "LARGE", 0)
    monkeypatch.setattr(rows, "SPARED", 0)


def given() -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("read", READ, ids=range(len(READ)))
def test_operations_and_their_gradients(make: Make, read: Callable[[Tensor], Tensor]) -> None:
    found = []
    for like in (make, lambda x: x * 2):
        x = given()
        y = like(x)
        if like is make:
            assert isinstance(y, Later) and y.shape == (ROWS, WIDTH) and y.requires_grad
        z = read(y)
        assert like is not make or z is y or not isinstance(ordinary(z), Later)
        (dx,) = torch.autograd.grad(z.square().sum(), x)
        found.append((ordinary(z), ordinary(dx)))
    (z, dx), (exact, expected) = found
    assert torch.equal(z, exact)
    torch.testing.assert_close(dx, expected)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_ways_out(make: Make) -> None:
    x = given()
    exact = (x * 2).detach()
    y = make(x).detach()
    assert isinstance(y, Later) and not y.requires_grad
    assert np.array_equal(y.numpy(), exact.numpy()) and np.array_equal(np.asarray(make(x).detach()), exact.numpy())
    assert y.tolist() == exact.tolist() and repr(y) == repr(exact) and float(y[0, 0]) == float(exact[0, 0])
    for other in (deepcopy(y), copy(y), pickle.loads(pickle.dumps(y))):  # noqa: S301
        assert torch.equal(other, exact) and not isinstance(other, Later)
    torch.save(y, file := io.BytesIO())
    file.seek(0)
    assert torch.equal(torch.load(file), exact)
    assert torch.equal(torch.from_dlpack(make(x).detach()), exact)
    with pytest.raises(RuntimeError, match="requires grad"):
        make(x).numpy()
    with torch.no_grad():
        assert torch.equal(make(x) * 1, exact)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_its_shape_stays(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"clone\(\) it first"):
        make(given()).unsqueeze_(0)
    assert make(given()).clone().unsqueeze_(0).shape == (1, ROWS, WIDTH)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_result_that_is_written_after_its_product_has_no_gradient(make: Make) -> None:
    y, W = make(given()), torch.randn(WIDTH, 2, requires_grad=True)
    z = y @ W
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_second_derivatives_and_hooks(make: Make) -> None:
    x, seen = given().double().detach().requires_grad_(), []

    def twice(x: Tensor) -> Tensor:
        return torch.relu(make(x))[:3].pow(3).sum() + make(x).pow(2).sum()

    assert torch.autograd.gradcheck(twice, x) and torch.autograd.gradgradcheck(twice, x)
    y = make(x)
    y.register_hook(lambda g: seen.append(ordinary(g).clone()))
    y.retain_grad()
    y[:2].sum().backward()
    expected = torch.zeros(ROWS, WIDTH, dtype=torch.float64)
    expected[:2] = 1
    assert torch.equal(seen[0], expected) and torch.equal(ordinary(y.grad), expected)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_compiled_function_reads_it(make: Make) -> None:
    torch._dynamo.reset()
    x = given()
    compiled = torch.compile(lambda y: (y[:2] * 3).sum(), backend="eager")
    (dx,) = torch.autograd.grad(compiled(make(x)), x)
    assert torch.equal(ordinary(dx)[:2], torch.full((2, WIDTH), 6.0)) and not ordinary(dx)[2:].any()


def test_what_is_in_tuples_and_dictionaries_is_ordinary_too() -> None:
    y: Any = as_table(given())
    mixed = ordinary({"a": (y, None), "b": 3})
    assert not isinstance(mixed["a"][0], Later) and mixed["a"][1] is None and mixed["b"] == 3
    same = (1, 2)
    assert ordinary(same) is same
