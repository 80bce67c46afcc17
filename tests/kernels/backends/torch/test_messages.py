"""Networks spelt out in PyTorch: in blocks of edges they are what they are at once, in a block's memory."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from benchmarks.memory import CLEAR, peak_above
from edgewise import Graph, causal, collect, use_backend
from edgewise.kernels import EdgeNetwork, maps_of
from edgewise.kernels.backends.torch import messages
from edgewise.layers import EGNN, AttentionEGNN, MessageNetwork, RadialField, VelocityEGNN
from kernels.networks import case, with_gradients


def sized(monkeypatch, block):
    """Blocks of that many edges, whatever the memory."""
    monkeypatch.setattr(messages, "BLOCK", block)
    monkeypatch.setattr(messages, "AT_ONCE", 0)


def some_graph():
    """20 receivers, 15 senders, 64 edges in parallel, some nodes alone: blocks of 4 edges and more."""
    generator = torch.Generator().manual_seed(0)
    senders, receivers = (torch.randint(n, (64,), generator=generator) for n in (14, 19))
    receivers[:20] = 5  # more edges than a block holds
    order = receivers.argsort(stable=True)
    offsets = torch.cat([torch.zeros(1), torch.bincount(receivers, minlength=20).cumsum(0)]).long()
    return Graph.from_csr(offsets, senders[order], num_senders=15)


def gated(reduce="mean", **options):
    torch.manual_seed(1)
    gate = (torch.randn(1, 3), torch.randn(1))
    options = {"edges": 2, "scale": 3, "gate": gate, "readout": 1} | options
    return case(some_graph(), [3, 3, 1], torch.tanh, reduce=reduce, **options)


@pytest.mark.parametrize("reduce", ["sum", "mean", None])
@pytest.mark.parametrize("block", [1, 4, 16])
def test_blocks_are_the_equation_with_its_gradient(monkeypatch, block, reduce):
    call = gated(reduce)
    expected = with_gradients(call, "reference")
    sized(monkeypatch, block)
    found = with_gradients(call, "segment")
    assert found[0].grad_fn is not None and "_Blocks" in type(found[0].grad_fn).__name__
    with torch.no_grad():
        unseen = call("segment")
    for one, other in zip((*found, *unseen), (*expected, *expected[:2]), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_first_and_second_derivatives_of_blocks(monkeypatch):
    sized(monkeypatch, 4)
    call = gated()
    assert gradcheck(lambda *t: call.of(t)("segment"), call.leaves, fast_mode=True)
    assert gradgradcheck(lambda *t: call.of(t)("segment"), call.leaves, fast_mode=True)


def test_one_tensor_at_both_ends_and_a_result_that_nobody_reads(monkeypatch):
    sized(monkeypatch, 1)
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
    x = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
    m_ij = EdgeNetwork((), torch.square, receivers=x, senders=x, activated=True)
    y, _ = collect(graph, m_ij.then([(torch.ones(1, 1), None)]), backend="segment")
    assert y.flatten().tolist() == [25.0, 9.0, 36.0]
    assert torch.autograd.grad(y.sum(), x)[0].flatten().tolist() == [16.0, 18.0, 22.0]


def test_the_weights_of_the_forward_pass_are_differentiated(monkeypatch):
    """A backward pass outside of functional_call reads the weights that the forward pass had."""
    sized(monkeypatch, 1)
    graph, x = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2), torch.tensor([[1.0], [3.0]])

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(1, 1))

        def forward(self):
            m_ij = EdgeNetwork(((self.w, None),), torch.square, senders=x)
            return collect(graph, m_ij, backend="segment").square().sum()

    layer, w = Square(), torch.tensor([[5.0]], requires_grad=True)
    assert torch.autograd.grad(functional_call(layer, {"w": w}, ()), w)[0].item() == 10 * 82
    assert torch.autograd.grad(layer(), layer.w)[0].item() == 2 * 82


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

    with use_backend("segment"):
        at_once = everything()
        sized(monkeypatch, 7)
        in_blocks = everything()
    for one, other, planned in zip(in_blocks, at_once, everything(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
        torch.testing.assert_close(one, planned, rtol=0, atol=1e-10)


def test_a_rule_graph_and_two_members_of_a_batch(monkeypatch):
    sized(monkeypatch, 4)
    x, identity = torch.rand(8, 2), maps_of([nn.Linear(2, 2, bias=False)])
    identity[0][0].data.copy_(torch.eye(2))
    y = collect(causal(8), EdgeNetwork(identity, torch.relu, senders=x), backend="segment")
    assert torch.allclose(y, x.cumsum(0), atol=1e-6)
    y = collect(causal(8), EdgeNetwork(identity, torch.relu, senders=x.expand(2, 8, 2)), backend="segment")
    assert torch.allclose(y, x.cumsum(0).expand(2, 8, 2), atol=1e-6)


@pytest.mark.parametrize("options", [{"reduce": "max"}, {"reduce": "min"}, {"dropout": 0.5}])
def test_what_blocks_cannot_do_runs_at_once(monkeypatch, options):
    sized(monkeypatch, 4)
    assert "_Blocks" not in type(gated(**options)("segment")[0].grad_fn).__name__


@pytest.mark.skipif(not CLEAR.exists(), reason="the system does not reset its high-water mark")
@pytest.mark.parametrize("kind", [EGNN, AttentionEGNN])
def test_training_holds_the_messages_of_a_block_only(kind):
    graph = Graph.from_edge_index(torch.randint(2000, (2, 120_000)), num_nodes=2000)
    layer, h, x = kind(64, 64), torch.randn(2000, 64), torch.randn(2000, 3)

    def step():
        layer(graph, h, x)[0].sum().backward()

    step()
    wide = 120_000 * 64 * 4 / 2**20  # one tensor of all messages, of which a plain layer keeps more than ten
    assert peak_above(step) < 4 * wide
