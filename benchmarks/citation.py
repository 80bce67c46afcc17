"""Cora epochs beside PyTorch Geometric: GCN and GAT as in their papers, forward, backward, Adam and an evaluation.

PyTorch Geometric runs its own layers as its examples do: dense features, `cached=True` for GCN.

    EDGEWISE_DATA=<folder> python benchmarks/citation.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from harness import Step, race, report
from torch import Tensor, nn
from torch.nn import functional


def _step(model: nn.Module, logits: Callable[[], Tensor], rate: float) -> Step:
    from edgewise.tasks import TASKS

    task = TASKS["citation"]()
    train, valid = task.train_batch(1, torch.Generator()), next(task.batches("valid", 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=5e-4)

    def step() -> float:
        model.train()
        loss = functional.cross_entropy(logits()[train.rows], train.target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            functional.cross_entropy(logits()[valid.rows], valid.target)
        return loss.item()

    return step


def _ours(settings: dict[str, object], rate: float) -> Step:
    from edgewise.models import GNN, GNNSettings
    from edgewise.tasks import TASKS

    task = TASKS["citation"]()
    batch = task.train_batch(1, torch.Generator())
    model = GNN(GNNSettings(**settings), task.signature)  # type: ignore[arg-type]
    return _step(model, lambda: model(batch.graph, batch.x), rate)


class PeerGCN(nn.Module):
    """Two GCNConv layers of width 16."""

    def __init__(self, inputs: int, outputs: int) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.first, self.second = GCNConv(inputs, 16, cached=True), GCNConv(16, outputs, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = functional.relu(self.first(functional.dropout(x, 0.5, self.training), edge_index))
        return self.second(functional.dropout(h, 0.5, self.training), edge_index)


class PeerGAT(nn.Module):
    """Eight heads of 8, then one of 7."""

    def __init__(self, inputs: int, outputs: int) -> None:
        from torch_geometric.nn import GATConv

        super().__init__()
        self.first = GATConv(inputs, 8, heads=8, dropout=0.6)
        self.second = GATConv(64, outputs, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = functional.elu(self.first(functional.dropout(x, 0.6, self.training), edge_index))
        return self.second(functional.dropout(h, 0.6, self.training), edge_index)


def _peer(model_class: type[nn.Module], rate: float) -> Step:
    from edgewise.tasks import TASKS

    task = TASKS["citation"]()
    batch = task.train_batch(1, torch.Generator())
    model = model_class(task.signature.inputs, task.signature.outputs)
    x, edge_index = batch.x.to_dense(), batch.graph.edge_index()
    return _step(model, lambda: model(x, edge_index), rate)


GCN = {"layer": "gcn", "width": 16, "depth": 2, "dropout": 0.5}
GAT = {
    "layer": "gat",
    "width": 64,
    "heads": 8,
    "depth": 2,
    "dropout": 0.6,
    "attention_dropout": 0.6,
    "activation": "elu",
}

if __name__ == "__main__":
    for name, settings, peer, rate in (("GCN", GCN, PeerGCN, 0.01), ("GAT", GAT, PeerGAT, 0.005)):
        contenders = {"edgewise": partial(_ours, settings, rate), "PyG eager": partial(_peer, peer, rate)}
        report(f"{name} on Cora: an epoch, evaluation included", race(contenders))
