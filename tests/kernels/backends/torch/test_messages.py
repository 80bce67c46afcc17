"""Networks spelt out in PyTorch, as layers call them."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from edgewise import Graph, collect, use_backend
from edgewise.kernels import EdgeNetwork
from edgewise.layers import EGNN, AttentionEGNN


def test_one_tensor_at_both_ends_and_a_result_that_nobody_reads():
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
    x = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
    m_ij = EdgeNetwork((), torch.square, receivers=x, senders=x, activated=True)
    y, _ = collect(graph, m_ij.then([(torch.ones(1, 1), None)]), backend="segment")
    assert y.flatten().tolist() == [25.0, 9.0, 36.0]
    assert torch.autograd.grad(y.sum(), x)[0].flatten().tolist() == [16.0, 18.0, 22.0]


def test_the_weights_of_the_forward_pass_are_differentiated():
    """A backward pass outside of functional_call reads the weights that the forward pass had."""
    graph, x = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2), torch.tensor([[1.0], [3.0]])

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(1, 1))

        def forward(self):
            return collect(graph, EdgeNetwork(((self.w, None),), torch.square, senders=x)).square().sum()

    layer, w = Square(), torch.tensor([[5.0]], requires_grad=True)
    assert torch.autograd.grad(functional_call(layer, {"w": w}, ()), w)[0].item() == 10 * 82
    assert torch.autograd.grad(layer(), layer.w)[0].item() == 2 * 82


@pytest.mark.parametrize("layer", [EGNN(3, 4), AttentionEGNN(3, 4)], ids=lambda layer: type(layer).__name__)
def test_layers_on_segment_and_as_planned_agree(layer):
    layer = layer.double()
    graph = Graph.from_edge_index(torch.randint(12, (2, 60), generator=torch.Generator().manual_seed(2)), num_nodes=12)
    inputs = [torch.randn(12, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]

    def everything():
        ys = layer(graph, *inputs)
        return (*ys, *torch.autograd.grad(sum((y * y).sum() for y in ys), [*inputs, *layer.parameters()]))

    with use_backend("segment"):
        plain = everything()
    for one, other in zip(plain, everything(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
