"""What each of four ranks finds of every layer on a partition: `ranks.py FOLDER`; with NAMES, of these layers on two.

In groups of two, three and four ranks, each computes a layer on its part and on the whole graph, and writes by how much
its outputs, the gradients of its rows and those of the weights differ, and how many bytes it has sent.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from edgewise import Dot, RelativeBias, aggregate, attend, layers
from edgewise.graphs import Graph, Partition, blocks, causal, complete, strided, window
from edgewise.graphs.partition import Halo, bounds_of, partitioned
from edgewise.kernels import partitioned as on_ranks
from edgewise.models import MODELS, Features, Tokens
from edgewise.training.ranks import share_norms
from forked import ended, ranks

NODES, WIDTH = 29, 6
Case = tuple[Callable[[], nn.Module], Graph]


class Biased(layers.MultiHeadAttention):
    def score(self, graph, q, k):  # type: ignore[no-untyped-def]
        return Dot() + RelativeBias(torch.linspace(-1, 1, 9).to(q.dtype).expand(2, -1))


class OneHead(nn.Module):
    """Attention without weights of its own, on several sequences at once."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        q = (self.scale * torch.stack([x, 2 * x])).unsqueeze(-2)
        return attend(graph, q, q, q.flip(-1)).sum(0).squeeze(-2)


class ManyHeads(nn.Module):
    """Attention whose heads two, three and four ranks can share; two of them have the same keys."""

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        q = x.unsqueeze(-2) * torch.linspace(0.1, 1, 24, dtype=x.dtype)[:, None]
        k = torch.stack([q[:, ::2].flip(-1), q[:, 1::2]])
        return attend(graph, torch.stack([q, 2 * q]), k, k * k).sum(0).flatten(-2)


class Encoded(nn.Module):
    """Encodings of the whole graph's structure. The Laplacian's signs are drawn: what remains does not depend on them,
    if only all ranks have the same ones."""

    def __init__(self) -> None:
        super().__init__()
        kinds = (layers.SignInvariantEncoding, layers.RandomWalkEncoding, layers.CliqueEncoding)
        self.all = nn.ModuleList(kind(WIDTH, 3) for kind in kinds)
        self.signed = layers.LaplacianEncoding(WIDTH, 1)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        signed = aggregate(graph, self.signed(graph, 0 * x)).square()
        for encoding in self.all:
            x = encoding(graph, x)
        return x + signed


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gcn, self.norm = layers.GCN(WIDTH, WIDTH), layers.BatchNorm(WIDTH)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return self.norm(self.gcn(graph, x)).tanh()


def moving(layer: nn.Module) -> nn.Module:
    """A layer that reads features and positions, and may return both, read as one tensor."""

    class Moving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            moved = self.layer(graph, x, x[:, :3])
            return moved if isinstance(moved, Tensor) else torch.cat(moved, -1)

    return Moving()


def model(name: str, signature: object, **settings: object) -> nn.Module:
    kind, build = MODELS[name]
    return build(kind(**settings), signature)


def graph() -> Graph:
    edges = torch.randint(NODES, (2, 90), generator=torch.Generator().manual_seed(3))
    return Graph.from_edge_index(edges, NODES)


def attention(**options: object) -> nn.Module:
    return layers.MultiHeadAttention(WIDTH, 2, **options)


CASES: dict[str, Case] = {
    "gcn": (lambda: layers.GCN(WIDTH, 5), graph()),
    "gat": (lambda: layers.GAT(WIDTH, 4, heads=2), graph()),
    "gatv2": (lambda: layers.GATv2(WIDTH, 4, heads=2), graph()),
    "gin": (lambda: layers.GIN(layers.MLP([WIDTH, 8, 5])), graph()),
    "sage-pool": (lambda: layers.SAGEPool(WIDTH, 5, 7), graph()),
    "monet": (lambda: layers.MoNet(WIDTH, 5, 3, coordinates=layers.DegreeCoordinates(2)), graph()),
    "egnn": (lambda: moving(layers.EGNN(WIDTH, 8)), graph()),
    "schnet": (lambda: moving(layers.SchNet(WIDTH, 8, gaussians=5)), window(NODES, 3).remove_self_loops()),
    "graph transformer": (lambda: model("graph-transformer", Features(WIDTH, 3), width=8, heads=2), graph()),
    "attention": (attention, graph()),
    "causal": (attention, causal(NODES)),
    "heads": (ManyHeads, causal(NODES)),
    "window": (attention, window(NODES, 3)),
    "past": (lambda: layers.MultiHeadAttention(8, 2, rotary=layers.Rotary(4)), window(NODES, 3, sides="past")),
    "apart": (attention, window(NODES, 2, dilation=3)),
    "strided": (attention, strided(NODES, 4)),
    "complete": (lambda: attention(key_value_heads=1), complete(NODES)),
    "around": (lambda: OneHead(0.5), complete(NODES)),
    "biased around": (lambda: Biased(WIDTH, 2), complete(NODES)),
    "biased": (lambda: Biased(WIDTH, 2), window(NODES, 6)),
    "sequences": (OneHead, causal(NODES)),
    "gpt": (lambda: model("transformer", Tokens(11, 5, length=NODES), width=8, depth=2, heads=2), causal(NODES)),
    "encodings": (Encoded, graph()),
    "batch norm": (Normed, graph()),
    "readout": (lambda: layers.MeanReadout(), Graph.batch([window(17, 2), complete(4), causal(8)])),
    "one readout": (lambda: layers.AttentionReadout(WIDTH), graph()),
}


# Receivers and senders are other nodes.
CROSS: dict[str, tuple[Graph, Dot]] = {
    "pairs": (blocks([6, 2], senders=[3, 3]), Dot()),
    "distances": (complete(8, 6), Dot() + RelativeBias(torch.linspace(-1, 1, 9).expand(12, -1))),
    "a longer past": (causal(8, senders=10), Dot()),
    "capped": (causal(8, senders=10), Dot(cap=2.0)),
}


def across(whole: Graph, score: Dot, group: dist.ProcessGroup) -> float:
    """How far attention of one rank's receivers to senders that are other nodes is from the whole's."""
    torch.manual_seed(0)
    part, rank = Partition.of(whole, group), dist.get_rank(group)
    q, k, v = (torch.randn(count, 12, 3) for count in (whole.num_receivers, *[whole.num_senders] * 2))
    held = bounds_of(whole.num_senders, dist.get_world_size(group))
    own, mine = slice(*part.bounds[rank : rank + 2]), slice(*held[rank : rank + 2])
    with partitioned():
        y = attend(part, q[own], k[mine], v[mine], score)
    return float((y - attend(whole, q, k, v, score)[own]).abs().max())


def compared(case: Case, group: dist.ProcessGroup, dtype: torch.dtype) -> dict[str, object]:
    """One rank's differences from the whole, and what it sent in the second of two steps: the first also exchanges
    what is cached with the graph."""
    make, whole = case
    torch.manual_seed(0)
    layer, alone = make().to(dtype), make().to(dtype)
    alone.load_state_dict(layer.state_dict())
    share_norms(layer, group)
    width = 8 if isinstance(layer, layers.MultiHeadAttention) and layer.output.in_features == 8 else WIDTH
    tokens = hasattr(layer, "embed") and isinstance(layer.embed, nn.Embedding)
    x = torch.randint(11, (NODES,)) if tokens else torch.randn(NODES, width, dtype=dtype)
    part, rank = Partition.of(whole, group), dist.get_rank(group)
    first, last = part.bounds[rank : rank + 2]
    x_all, x_own = x.clone(), x[first:last].clone()
    if not tokens:
        x_all.requires_grad_(), x_own.requires_grad_()
    y_all = alone(whole, x_all)
    weight = torch.randn(y_all.shape, dtype=dtype)
    (y_all * weight).sum().backward()
    rows = part if len(y_all) == NODES else part.membership()
    mine = slice(rows.bounds[rank], rows.bounds[rank + 1])
    torch.manual_seed(rank)  # what a rank draws is its own
    for _ in range(2):
        layer.zero_grad()
        x_own.grad, Halo.sent = None, 0
        with partitioned():  # as training reads it
            y = layer(part, x_own)
        (y * weight[mine]).sum().backward()
    differences = {"outputs": (y, y_all[mine])}
    if not tokens:
        differences["gradients"] = (x_own.grad, x_all.grad[first:last])
    for name, parameter in layer.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        dist.all_reduce(gradient, group=group)
        differences[name] = (gradient, dict(alone.named_parameters())[name].grad)
    furthest = {name: float((a - b).abs().max()) if a.numel() else 0.0 for name, (a, b) in differences.items()}
    scale = max(float(b.abs().max()) for _, b in differences.values() if b.numel())
    return {"furthest": max(furthest.values()) / max(1.0, scale), "sent": Halo.sent, "edges": part.num_edges}


def main(folder: Path, names: list[str]) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = {size: dist.new_group(range(size)) for size in (2, 3, 4)}
    found = {}
    for size, group in groups.items():
        for name, case in CASES.items():
            if names and (name not in names or size > 2):
                continue
            for dtype in (torch.float32, torch.float64) if rank < size else ():
                found[f"{name} {size} {str(dtype)[6:]}"] = compared(case, group, dtype)
        for name, (whole, score) in CROSS.items() if rank < size and not names else ():
            found[f"{name} {size}"] = across(whole, score, group)
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    on_ranks.SCORES = 150  # so that a rank's queries are read in several parts
    ended(ranks(4, partial(main, Path(sys.argv[1]), sys.argv[2:])))
