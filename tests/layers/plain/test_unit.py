import pytest
import torch
from torch.nn import functional

from edgewise import Graph, causal
from edgewise.layers import AngularHash, LSHAttention, SAGEMean
from edgewise.layers.plain.linear import unit
from edgewise.models import GNN, Features, GNNSettings


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_lengths_are_1_and_nothing_stays_nothing(dtype):
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0], [60000.0, 60000.0], [1e-4, 0.0]]).to(dtype).requires_grad_()
    y = unit(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, functional.normalize(x.double(), dim=-1).to(dtype))
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert dx.isfinite().all() and (dx[1] == 1).all()  # not 1e12: a node of zeros would outweigh all others


def test_nodes_of_zeros_stay_finite_in_float16():
    graph, zeros = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3), torch.zeros(3, 2).half()
    assert (SAGEMean(2, 2, normalize=True).half()(graph, zeros) == 0).all()
    model = GNN(GNNSettings(layer="sage-mean", width=4, depth=2, norm="unit", dropout=0.0), Features(2, 2))
    assert model.half()(graph, zeros).isfinite().all()
    layer = LSHAttention(4, 2, AngularHash(2, buckets=2), size=2).half()
    assert layer(causal(3), torch.zeros(3, 4).half()).isfinite().all()
