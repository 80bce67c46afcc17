import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from benchmarks.memory import CLEAR, peak_above
from edgewise import Graph, ShapeError, causal
from edgewise.kernels import collect, collect_messages, ends, messages
from edgewise.layers import EGNN, AttentionEGNN, MessageNetwork, RadialField, VelocityEGNN

WAYS = ["sum", "mean", messages.BACK]


def sized(monkeypatch, block):
    monkeypatch.setattr(messages, "BLOCK", block)


def some_graph():
    """20 receivers, 15 senders, 64 edges in parallel, some nodes alone: blocks of 4 edges and more."""
    generator = torch.Generator().manual_seed(0)
    senders, receivers = (torch.randint(n, (64,), generator=generator) for n in (14, 19))
    receivers[:20] = 5  # more edges than a block holds
    order = receivers.argsort(stable=True)
    offsets = torch.cat([torch.zeros(1), torch.bincount(receivers, minlength=20).cumsum(0)]).long()
    return Graph.from_csr(offsets, senders[order], num_senders=15)


def call(layer, graph, a, b, e, reduce=WAYS):
    def message(a_i, b_j, e_ij):
        m_ij = torch.tanh(layer(a_i * b_j)) * e_ij
        return m_ij, m_ij.square(), a_i - m_ij

    return collect_messages(graph, layer, message, [a], [b], [e], reduce)


def arguments():
    torch.manual_seed(1)
    tensors = [torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (20, 15, 64)]
    return nn.Linear(3, 3).double(), some_graph(), tensors


@pytest.mark.parametrize("block", [1, 4, 16])
def test_blocks_are_the_equation_with_its_gradient(monkeypatch, block):
    sized(monkeypatch, block)
    layer, graph, tensors = arguments()
    a, b, e = tensors
    a_i, b_j = ends(graph, a, b)
    m_ij = torch.tanh(layer(a_i * b_j)) * e
    back = torch.zeros(15, 3, dtype=torch.float64).index_add(0, graph.senders, a_i - m_ij)
    expected = collect(graph, m_ij), collect(graph, m_ij.square(), "mean"), back
    found = call(layer, graph, *tensors)
    assert found[0].grad_fn is not None and "_Collect" in type(found[0].grad_fn).__name__
    with torch.no_grad():
        unseen = call(layer, graph, *tensors)
    weights = [torch.randn_like(y) for y in expected]
    inputs = [*tensors, *layer.parameters()]
    grads, exact = (torch.autograd.grad(ys, inputs, weights) for ys in (found, expected))
    for one, other in zip((*found, *unseen, *grads), (*expected, *expected, *exact), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_first_and_second_derivatives_of_blocks(monkeypatch):
    sized(monkeypatch, 4)
    layer, graph, tensors = arguments()
    inputs = (*tensors, layer.weight, layer.bias)

    def run(a, b, e, weight, bias):  # the layer's own weights, which the check moves in place
        return call(layer, graph, a, b, e)

    assert gradcheck(run, inputs, fast_mode=True)
    assert gradgradcheck(run, inputs, fast_mode=True)


def test_one_tensor_at_both_ends_and_a_result_that_nobody_reads(monkeypatch):
    sized(monkeypatch, 1)
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
    x = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
    y, _ = collect_messages(graph, nn.Identity(), lambda x_i, x_j: (x_i * x_j, x_i), [x], [x], reduce=["sum", "sum"])
    assert y.flatten().tolist() == [4.0, 2.0, 8.0]
    assert torch.autograd.grad(y.sum(), x)[0].flatten().tolist() == [6.0, 5.0, 3.0]


def test_the_weights_of_the_forward_pass_are_differentiated(monkeypatch):
    """A backward pass outside of functional_call reads the weights that the forward pass had."""
    sized(monkeypatch, 1)
    graph, x = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2), torch.tensor([[1.0], [3.0]])

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.0]))

        def forward(self):
            return collect_messages(graph, self, lambda x_j: (x_j * self.w**2,), senders=[x])[0].sum()

    layer, w = Square(), torch.tensor([5.0], requires_grad=True)
    assert torch.autograd.grad(functional_call(layer, {"w": w}, ()), w)[0].item() == 40.0
    assert torch.autograd.grad(layer(), layer.w)[0].item() == 8.0


def layers():
    return [MessageNetwork(3, 4), EGNN(3, 4), AttentionEGNN(3, 4), VelocityEGNN(3, 4), RadialField(4)]


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: type(layer).__name__)
def test_layers_in_blocks_and_at_once_agree(monkeypatch, layer):
    layer = layer.double()
    graph = Graph.from_edge_index(torch.randint(12, (2, 60), generator=torch.Generator().manual_seed(2)), num_nodes=12)
    sizes = {MessageNetwork: [3], RadialField: [3, 3], VelocityEGNN: [3, 3, 3]}.get(type(layer), [3, 3])
    inputs = [torch.randn(12, size, dtype=torch.float64, requires_grad=True) for size in sizes]

    def everything():
        y = layer(graph, *inputs)
        ys = y if isinstance(y, tuple) else (y,)
        total = sum((one * one).sum() for one in ys)
        return (*ys, *torch.autograd.grad(total, [*inputs, *layer.parameters()]))

    at_once = everything()
    sized(monkeypatch, 7)
    for one, other in zip(everything(), at_once, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_a_rule_graph_and_two_members_of_a_batch(monkeypatch):
    sized(monkeypatch, 4)
    x = torch.randn(8, 2)
    (y,) = collect_messages(causal(8), nn.Identity(), lambda x_j: (x_j,), senders=[x])
    assert torch.allclose(y, x.cumsum(0), atol=1e-6)
    (y,) = collect_messages(causal(8), nn.Identity(), lambda x_j: (x_j,), senders=[x.expand(2, 8, 2)])
    assert torch.allclose(y, x.cumsum(0).expand(2, 8, 2), atol=1e-6)


def test_what_does_not_fit_is_refused():
    graph, x = causal(3), torch.zeros(3, 1)
    with pytest.raises(ShapeError, match="no reduction 'max'"):
        collect_messages(graph, nn.Identity(), lambda x_j: (x_j,), senders=[x], reduce=["max"])
    with pytest.raises(ShapeError, match=r"tensor 1 of the messages is \[4, 1\], but must be \[\*, 3, C\]"):
        collect_messages(graph, nn.Identity(), lambda x_i, x_j: (x_j,), [x], [torch.zeros(4, 1)])


@pytest.mark.skipif(not CLEAR.exists(), reason="the system does not reset its high-water mark")
def test_training_holds_the_messages_of_a_block_only():
    graph = Graph.from_edge_index(torch.randint(2000, (2, 120_000)), num_nodes=2000)
    layer, h, x = EGNN(64, 64), torch.randn(2000, 64), torch.randn(2000, 3)

    def step():
        layer(graph, h, x)[0].sum().backward()

    step()
    wide = 120_000 * 64 * 4 / 2**20  # one tensor of all messages, of which a plain layer keeps more than ten
    assert peak_above(step) < 4 * wide
