"""PyTorch Geometric's models: graphs collated by its own loader, neighbours drawn by a sampler in numba."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.contenders import numba_sampling
from benchmarks.inputs import Sampling
from benchmarks.whole.steps.peer import Peer, described, forms, turns
from edgewise.configuration import Choice
from edgewise.tasks.graphs.prediction import GraphClassification
from edgewise.tasks.nodes.classification import SampledNodes
from edgewise.training.loop import Trainer


class GIN(nn.Module):
    """GINConv layers whose results are put side by side, a readout and a linear map."""

    def __init__(self, inputs: int, outputs: int, settings: Any, pool: Callable[..., Tensor]) -> None:
        super().__init__()
        from torch_geometric.nn import GINConv

        self.convolutions, self.norms, self.dropout, self.pool = (
            nn.ModuleList(),
            nn.ModuleList(),
            settings.dropout,
            pool,
        )
        width, wide = settings.width, inputs
        for depth in range(settings.depth):
            mlp = nn.Sequential(nn.Linear(wide, width), nn.ReLU(), nn.Linear(width, width))
            self.convolutions.append(GINConv(mlp, train_eps=True))
            self.norms.append(nn.BatchNorm1d(width) if settings.norm == "batch" else nn.Identity())
            wide = width * (depth + 1)
        self.output = nn.Linear(wide, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, size: int) -> Tensor:
        for depth, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = functional.dropout(x, self.dropout, self.training)
            y = norm(convolution(x, edge_index)).relu()
            x = torch.cat([x, y], -1) if depth else y
        return self.output(self.pool(x, batch, size))


def isomorphism(trainer: Trainer) -> list[Peer]:
    """GIN on small graphs, each batch collated anew by `torch_geometric.loader.DataLoader`."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import global_add_pool, global_max_pool

    task, (settings, signature), size = trainer.task, described(trainer), trainer.settings.batch
    assert isinstance(task, GraphClassification)
    graphs, regression = task.graphs, not task.classes
    features = graphs.x.split([member.num_receivers for member in graphs.members])
    data = [
        Data(x=features[n], edge_index=graphs.members[n].edge_index(), y=graphs.targets[n].view(1))
        for n in graphs.splits["train"].tolist()
    ]

    def batches() -> Iterator[Any]:
        while True:
            yield from DataLoader(data, batch_size=size, shuffle=True, drop_last=True)

    def loss(model: Callable[..., Any], batch: Any) -> Tensor:
        y = model(batch.x, batch.edge_index, batch.batch, size)
        return functional.mse_loss(y.squeeze(-1), batch.y) if regression else functional.cross_entropy(y, batch.y)

    pool = {"sum": global_add_pool, "max": global_max_pool}[Choice.of(settings.readout).name]
    inputs, outputs = signature.inputs, signature.outputs
    return forms("PyG", trainer, lambda: GIN(inputs, outputs, settings, pool), batches, loss, dynamic=True)


class SAGE(nn.Module):
    """SAGEConv layers on the hops of a sample."""

    def __init__(self, inputs: int, width: int, outputs: int, depth: int) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        widths = [inputs, *[width] * (depth - 1), outputs]
        self.convolutions = nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(widths))

    def forward(self, x: Tensor, hops: list[tuple[Tensor, int]]) -> Tensor:
        for depth, (convolution, (edge_index, receivers)) in enumerate(zip(self.convolutions, hops, strict=True)):
            x = convolution((x, x[:receivers]), edge_index)
            x = x.relu() if depth < len(hops) - 1 else x
        return x


def sage(trainer: Trainer) -> list[Peer]:
    """GraphSAGE on neighbours that a sampler in numba draws."""
    task, (settings, signature), size = trainer.task, described(trainer), trainer.settings.batch
    assert isinstance(task, SampledNodes)
    graph, x, labels, train, _ = task.seen()
    assert isinstance(x, Tensor)
    sampling = Sampling(graph, torch.zeros(size, dtype=torch.int64), task.fanouts)
    draw = numba_sampling.prepare(sampling)

    def batches() -> Iterator[Any]:
        for seeds in turns(len(train), size):
            sampling.seeds.copy_(train[seeds])
            nodes, drawn = draw()
            hops = []
            for offsets, senders in reversed(drawn):
                receivers = torch.repeat_interleave(offsets.diff())
                hops.append((torch.stack([senders, receivers]), len(offsets) - 1))
            yield x[nodes], hops, labels[train[seeds]]

    def loss(model: Callable[..., Any], batch: Any) -> Tensor:
        x, hops, target = batch
        return functional.cross_entropy(model(x, hops), target)

    inputs, outputs = signature.inputs, signature.outputs
    return forms(
        "PyG", trainer, lambda: SAGE(inputs, settings.width, outputs, settings.depth), batches, loss, dynamic=True
    )
