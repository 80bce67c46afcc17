"""An `Operator` is one definition: eager autograd, the library's operator and torch.compile agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck

from edgewise.kernels.operator.operator import Arguments, Operator

CALLS = []


@dataclass(slots=True)
class ScaledSum(Arguments):
    x: Tensor
    others: Sequence[Tensor]
    factor: float

    differentiable: ClassVar[tuple[str, ...]] = ("x",)

    def empty(self) -> Tensor:
        return torch.empty_like(self.x)

    def unread(self) -> tuple[str, ...]:
        return ("x", "results")


def _scaled_sum(own):
    CALLS.append("compute")
    return own.factor * (own.x + sum(own.others))


scaled = Operator("tested_scaled_sum", ScaledSum, _scaled_sum, lambda own, results, dy, needed: [own.factor * dy])


def scaled_sum(*inputs):
    return scaled(ScaledSum(*inputs))


@dataclass(slots=True)
class Dot(Arguments):
    """y = Σ x w, and Σ x, which has no gradient; one row of w may serve all of x."""

    x: Tensor
    w: Tensor | None
    sign: int

    differentiable: ClassVar[tuple[str, ...]] = ("x", "w")

    def empty(self) -> tuple[Tensor, Tensor]:
        return self.x.new_empty(self.x.shape[0]), self.x.new_empty(self.x.shape[0])


@dataclass(slots=True)
class DotGradient(Dot):
    y: Tensor
    total: Tensor
    dy: Tensor
    needed: Sequence[bool]

    def empty(self) -> tuple[Tensor, Tensor]:
        return torch.empty_like(self.x), self.x.new_empty(self.x.shape if self.needed[1] else 0)


def _dot(own):
    w = 1 if own.w is None else own.w
    return own.sign * (own.x * w).sum(1), own.x.sum(1)


def _dot_gradient(own):
    dx, dw = own.empty()
    dx.copy_(own.sign * own.dy.unsqueeze(1) * (1 if own.w is None else own.w))
    if own.needed[1]:
        dw.copy_(own.sign * own.dy.unsqueeze(1) * own.x)
    return dx, dw


dot_gradient = Operator("tested_dot_gradient", DotGradient, _dot_gradient)
dot = Operator("tested_dot", Dot, _dot, dot_gradient, lambda own: _dot(own)[0])


def inputs():
    return torch.randn(3, requires_grad=True), [torch.randn(3), torch.randn(3)], 2.0


@pytest.mark.parametrize("rows", [1, 4])
def test_a_gradient_may_be_an_operator_and_has_a_gradient_of_its_own(rows):
    x, w = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (4, rows))

    def function(*given):
        return dot(Dot(*given, -1))[0]

    assert gradcheck(function, (x, w))
    assert gradgradcheck(function, (x, w))
    torch.library.opcheck(torch.ops.edgewise.tested_dot.default, (x, w, -1))


def test_only_needed_gradients_come():
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(1, 3)
    y, total = dot(Dot(x, w, 2))
    assert not total.requires_grad
    y.sum().backward()
    assert torch.equal(x.grad, 2 * w.expand(4, 3))
    y, _ = dot(Dot(x.detach(), None, 2))
    assert not y.requires_grad


@pytest.mark.parametrize("call", [scaled_sum, torch.ops.edgewise.tested_scaled_sum])
def test_eagerly_and_from_the_library_it_computes_and_differentiates(call):
    x, others, factor = inputs()
    y = call(x, others, factor)
    assert torch.equal(y, 2 * (x + others[0] + others[1]))
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2, 2, 2]


def test_the_library_operator_is_what_pytorch_is_told_of_it():
    torch.library.opcheck(torch.ops.edgewise.tested_scaled_sum.default, inputs())


def test_fake_tensors_have_a_shape_and_compute_nothing():
    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(3))
        CALLS.clear()
        y = scaled_sum(x, [x, x], 2.0)
    assert y.shape == (3,)
    assert CALLS == []


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_it_is_one_operator_with_the_same_gradient():
    torch._dynamo.reset()
    seen = []

    def backend(module, _):
        seen.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module

    x, others, factor = inputs()
    y = torch.compile(scaled_sum, backend=backend, fullgraph=True)(x, others, factor)
    assert seen == ["edgewise.tested_scaled_sum.default"]
    assert torch.equal(y, scaled_sum(x, others, factor))
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2, 2, 2]
    torch._dynamo.reset()


class Tracked(torch.Tensor):
    """A subclass, which only the library's operator understands."""


def test_a_subclass_of_tensor_goes_through_the_library():
    x, others, factor = inputs()
    tracked = x.detach().as_subclass(Tracked)
    assert isinstance(scaled_sum(tracked, others, factor), Tracked)
