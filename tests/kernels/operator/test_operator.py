"""An `Operator` is one definition: eager autograd, the library's operator and torch.compile agree."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from edgewise.kernels.operator.operator import Operator

CALLS = []


def _scaled_sum(x, others, factor):
    CALLS.append("compute")
    return factor * (x + sum(others))


def _save(ctx, inputs, output):
    _, _, ctx.factor = inputs


scaled_sum = Operator(
    "tested_scaled_sum",
    "(Tensor x, Tensor[] others, float factor) -> Tensor",
    _scaled_sum,
    lambda x, others, factor: torch.empty_like(x),
    _save,
    lambda ctx, dy: (ctx.factor * dy, None, None),
)
plain = Operator(
    "tested_plain_sum",
    "(Tensor x, Tensor[] others, float factor) -> Tensor",
    _scaled_sum,
    lambda x, others, factor: torch.empty_like(x),
)


def inputs():
    return torch.randn(3, requires_grad=True), [torch.randn(3), torch.randn(3)], 2.0


def test_eagerly_it_computes_and_differentiates():
    x, others, factor = inputs()
    y = scaled_sum(x, others, factor)
    assert torch.equal(y, 2 * (x + others[0] + others[1]))
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2, 2, 2]


def test_the_library_operator_is_the_same():
    x, others, factor = inputs()
    y = torch.ops.edgewise.tested_scaled_sum(x, others, factor)
    assert torch.equal(y, scaled_sum(x, others, factor))
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2, 2, 2]
    torch.library.opcheck(torch.ops.edgewise.tested_scaled_sum.default, inputs())


def test_without_a_gradient_it_has_none():
    x, others, factor = inputs()
    with torch.no_grad():
        expected = scaled_sum(x, others, factor)
    assert torch.equal(plain(x.detach(), others, factor), expected)
    assert plain.function is None


def test_fake_tensors_have_a_shape_and_compute_nothing():
    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(3))
        CALLS.clear()
        y = scaled_sum(x, [x, x], 2.0)
    assert y.shape == (3,)
    assert CALLS == []


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
