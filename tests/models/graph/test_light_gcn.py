"""LightGCN against its equation, against PyTorch Geometric's, and what it refuses."""

import pytest
import torch

from edgewise import Graph
from edgewise.models import Features, LightGCN, LightGCNSettings


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_outputs_and_gradients_are_those_of_pytorch_geometric(depth: int) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    draw = torch.Generator().manual_seed(0)
    user, item = torch.randint(5, (20,), generator=draw), torch.randint(5, 12, (20,), generator=draw)
    index = torch.cat([torch.stack([user, item]), torch.stack([item, user])], 1)
    model = LightGCN(LightGCNSettings(depth), Features(inputs=12, outputs=3)).double()
    peer = pyg.LightGCN(12, 3, depth).double()
    with torch.no_grad():
        peer.embedding.weight.copy_(model.embed.weight.T)
    y = model(Graph.from_edge_index(index, 12), torch.eye(12, dtype=torch.float64))
    right = peer.get_embedding(index)
    torch.testing.assert_close(y, right, rtol=1e-9, atol=1e-9)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (right * weight).sum().backward()
    torch.testing.assert_close(model.embed.weight.grad.T, peer.embedding.weight.grad, rtol=1e-9, atol=1e-9)
