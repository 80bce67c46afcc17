"""A model that answers each node's own features, so that what it is given shows in what it says; a small MNIST."""

import pytest
import torch
from torch import Tensor, nn

from edgewise.graphs import Graph
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks import mnist
from tasks.miniature import SIZES


class Echo(nn.Module):
    """Outputs are fixed linear maps of the node features, or of one-hot tokens; averaged where asked."""

    def __init__(self, inputs: int, outputs: int, tokens: bool = False, whole_graph: bool = False) -> None:
        super().__init__()
        self.register_buffer("weight", torch.linspace(-1, 1, inputs * outputs).view(inputs, outputs))
        self.tokens, self.whole_graph = tokens, whole_graph

    def forward(self, graph: Graph, x: Tensor | SparseFeatures) -> Tensor:
        assert not self.training
        assert graph.num_receivers == x.shape[1 if self.tokens or self.whole_graph else 0]
        if isinstance(x, SparseFeatures):
            x = x.to_dense()
        y = self.weight[x] if self.tokens else x @ self.weight
        return y.mean(-2, keepdim=True) if self.whole_graph else y


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """MNIST has as few images as `write_mnist` writes."""
    for name, size in SIZES.items():
        monkeypatch.setitem(mnist.__globals__, name, size)


@pytest.fixture
def echo() -> type[Echo]:
    return Echo
