"""PyTorch Geometric: the propagation of TransformerConv, GATConv, GATv2Conv or a weighted sum, without linear maps."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.contenders import cora
from benchmarks.inputs import Attention, Epoch, Inputs, Product, Sampling
from edgewise.kernels import Additive, GatedAdditive


def refuses(inputs: Inputs) -> str | None:
    """Needs the package; has no sampler without extensions, and a batch is one graph."""
    if find_spec("torch_geometric") is None:
        return "needs torch_geometric"
    if isinstance(inputs, Sampling):
        return "its sampler needs compiled extensions"
    return "takes flat nodes" if isinstance(inputs, Attention) and inputs.v.ndim > 3 else None


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """Eager."""
    return ready(inputs, lambda module: module)


def compiled(inputs: Inputs) -> Callable[[], Any]:
    """The whole propagation as one graph under torch.compile, shapes fixed."""
    return ready(inputs, lambda module: torch.compile(module, fullgraph=True, dynamic=False))


def ready(inputs: Inputs, transform: Callable[[nn.Module], Callable[..., Tensor]]) -> Callable[[], Any]:
    """The case in PyTorch Geometric, its module transformed once."""
    if isinstance(inputs, Epoch):
        return _epoch(inputs, transform)
    assert isinstance(inputs, Attention | Product)
    edge_index = inputs.graph.edge_index()  # sorted by receiver
    if isinstance(inputs, Product):
        run, x, weight = transform(weighted_sum()), inputs.x, inputs.weight
        return lambda: run(edge_index, x, weight)
    q, k, v, score = inputs.q, inputs.k, inputs.v, inputs.score
    if isinstance(score, Additive):
        run = transform(additive(score.slope))
        q, k = q.squeeze(-1), k.squeeze(-1)  # as GATConv keeps its halves
        return lambda: run(edge_index, q, k, v)
    if isinstance(score, GatedAdditive):
        run, a = transform(gated(score.slope)), score.a
        return lambda: run(edge_index, q, k, a)
    run = transform(dot_product())
    return lambda: run(edge_index, q, k, v)


def dot_product() -> nn.Module:
    """The propagation of TransformerConv."""
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import softmax

    class DotProduct(MessagePassing):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__(aggr="add", node_dim=0)

        def forward(self, edge_index: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return self.propagate(edge_index, q=q, k=k, v=v)

        def message(self, q_i: Tensor, k_j: Tensor, v_j: Tensor, index: Tensor, size_i: int | None) -> Tensor:
            alpha = (q_i * k_j).sum(dim=-1) / q_i.shape[-1] ** 0.5
            return v_j * softmax(alpha, index, None, size_i).unsqueeze(-1)

    return DotProduct()


def additive(slope: float) -> nn.Module:
    """The propagation of GATConv."""
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import softmax

    class AdditiveAttention(MessagePassing):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__(aggr="add", node_dim=0)

        def forward(self, edge_index: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            alpha = self.edge_updater(edge_index, q=q, k=k, size=None)
            return self.propagate(edge_index, v=v, alpha=alpha)

        def edge_update(self, q_i: Tensor, k_j: Tensor, index: Tensor, size_i: int | None) -> Tensor:
            return softmax(functional.leaky_relu(q_i + k_j, slope), index, None, size_i)

        def message(self, v_j: Tensor, alpha: Tensor) -> Tensor:
            return alpha.unsqueeze(-1) * v_j

    return AdditiveAttention()


def gated(slope: float) -> nn.Module:
    """The propagation of GATv2Conv."""
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import softmax

    class GatedAttention(MessagePassing):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__(aggr="add", node_dim=0)

        def forward(self, edge_index: Tensor, q: Tensor, k: Tensor, a: Tensor) -> Tensor:
            return self.propagate(edge_index, q=q, k=k, a=a)

        def message(self, q_i: Tensor, k_j: Tensor, a: Tensor, index: Tensor, size_i: int | None) -> Tensor:
            alpha = (functional.leaky_relu(q_i + k_j, slope) * a).sum(dim=-1)
            return k_j * softmax(alpha, index, None, size_i).unsqueeze(-1)

    return GatedAttention()


def weighted_sum() -> nn.Module:
    """The propagation of GCNConv."""
    from torch_geometric.nn import MessagePassing

    class WeightedSum(MessagePassing):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__(aggr="add", node_dim=0)

        def forward(self, edge_index: Tensor, x: Tensor, weight: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, weight=weight)

        def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
            return weight.unsqueeze(-1) * x_j

    return WeightedSum()


def _epoch(inputs: Epoch, transform: Callable[[nn.Module], Callable[..., Tensor]]) -> Callable[[], Any]:
    data = cora.load()
    model = _gcn(data) if inputs.layer == "gcn" else _gat(data)
    x, edge_index, run = data.x.to_dense(), data.graph.edge_index(), transform(model)
    return cora.epoch(data, inputs.layer, model, lambda: run(x, edge_index))


def _gcn(data: cora.Cora) -> nn.Module:
    from torch_geometric.nn import GCNConv

    class GCN(nn.Module):
        """Two GCNConv layers of width 16."""

        def __init__(self) -> None:
            super().__init__()
            self.first = GCNConv(data.signature.inputs, 16, cached=True)
            self.second = GCNConv(16, data.signature.outputs, cached=True)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = functional.relu(self.first(functional.dropout(x, 0.5, self.training), edge_index))
            return self.second(functional.dropout(h, 0.5, self.training), edge_index)

    model = GCN()
    with torch.no_grad():
        model(data.x.to_dense(), data.graph.edge_index())  # fills both caches, outside of what is compiled
    return model


def _gat(data: cora.Cora) -> nn.Module:
    from torch_geometric.nn import GATConv
    from torch_geometric.utils import add_self_loops

    loops, _ = add_self_loops(data.graph.edge_index(), num_nodes=data.graph.num_receivers)

    class GAT(nn.Module):
        """Eight heads of 8, then one of 7; the self-loops are added once, not in every step."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("loops", loops)
            self.first = GATConv(data.signature.inputs, 8, heads=8, dropout=0.6, add_self_loops=False)
            self.second = GATConv(64, data.signature.outputs, concat=False, dropout=0.6, add_self_loops=False)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = functional.elu(self.first(functional.dropout(x, 0.6, self.training), self.loops))
            return self.second(functional.dropout(h, 0.6, self.training), self.loops)

    return GAT()
