"""Inputs and gradients of the native backend may lie in memory in any way."""

import pytest
import torch

from kernels.drawn import attention, covering, messages, product, random_graph


def laid_out(x, how):
    """The same numbers, elsewhere in memory."""
    if how == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "heads first" and x.ndim > 1:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if how == "sliced":
        return torch.cat([x, x], -1)[..., : x.shape[-1]]
    if how == "every other row":
        return torch.stack([x, x], 1).flatten(0, 1)[::2]
    if how == "off by one":
        return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    return x[:1].expand(x.shape)


LAYOUTS = ("transposed", "heads first", "sliced", "every other row", "off by one", "expanded")


@pytest.mark.parametrize(("how", "dtype"), covering(LAYOUTS, [torch.float32, torch.float64, torch.bfloat16]))
def test_inputs_may_lie_in_memory_in_any_way(how, dtype):
    graph = random_graph(6, 6, 20)
    for leaves, call in (
        attention(graph, "gated", "edge", 4, 4, 8, 8),
        attention(graph, "dot", "edge", 3, 3, 5, 7),
        product(graph, "max", "heads", 3, 8),
        product(graph, "sum", "", 1, 9),
        product(graph, "mean", "edge", 1, 9),
        messages(graph, "mean", 9),
    ):
        elsewhere = {name: laid_out(leaf.to(dtype), how) for name, leaf in leaves.items()}
        packed = {name: leaf.contiguous() for name, leaf in elsewhere.items()}
        assert torch.equal(call(elsewhere, "native"), call(packed, "native"))
        for name in leaves:  # with a gradient to this one only
            found, expected = (
                torch.autograd.grad(call(x | {name: x[name].requires_grad_()}, "native").square().sum(), x[name])[0]
                for x in ({key: value.detach() for key, value in y.items()} for y in (elsewhere, packed))
            )
            assert torch.equal(found, expected), name


def test_the_gradient_of_a_result_may_be_expanded_or_transposed():
    graph = random_graph(6, 6, 20)
    for leaves, call in (attention(graph, "dot", "", 2, 2, 4, 4), product(graph, "max", "heads", 2, 4)):
        leaf = leaves.get("v", leaves.get("x")).requires_grad_()
        for dy in (torch.ones(1, 1, 1).expand(6, 2, 4), torch.randn(4, 2, 6).transpose(0, 2)):
            expected, found = (
                torch.autograd.grad(call(leaves, "native"), leaf, given.double())[0] for given in (dy.contiguous(), dy)
            )
            assert torch.equal(found, expected)
