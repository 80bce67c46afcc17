"""Memory, bytes on the way and seconds of models whose graph some ranks share.

    python -m benchmarks.ranks                                          one process
    torchrun --standalone --nproc-per-node 2 -m benchmarks.ranks        two ranks

Each model trains two steps on a sequence of `--nodes` tokens or a network of eight times as many nodes. Memory is what
a process needs at most beside what the same model needed on a small graph just before. Linux only.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.memory import peak_above
from edgewise.configuration import Choice
from edgewise.graphs import Graph, Partition, causal, complete, window
from edgewise.graphs.partition.halo import Halo
from edgewise.layers import EGNN
from edgewise.models import MODELS, Features, Tokens

WIDTH, DEPTH, DEGREE, NEAR = 64, 4, 10, 50
Case = tuple[Callable[[], nn.Module], Callable[[int], Graph]]


class Particles(nn.Module):
    """Some layers of EGNN, whose first features are where the particles are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EGNN(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, graph: Graph, h: Tensor) -> Tensor:
        x = h[:, :3]
        for layer in self.layers:
            h, x = layer(graph, h, x)
        return h + x.sum(-1, keepdim=True)


def model(name: str, **settings: object) -> Callable[[], nn.Module]:
    kind, build = MODELS[name]
    options = kind(width=WIDTH, depth=DEPTH, **settings)
    signature = Tokens(256, 256) if name == "transformer" else Features(WIDTH, 16)
    return lambda: build(options, signature)


def network(nodes: int) -> Graph:
    """Each node listens to ten of those near it."""
    receivers = torch.arange(8 * nodes).repeat_interleave(DEGREE)
    senders = (receivers + torch.randint(-NEAR, NEAR + 1, receivers.shape)).clamp(0, 8 * nodes - 1)
    return Graph.from_edge_index(torch.stack([senders, receivers]), 8 * nodes)


def gnn(layer: Choice | str) -> Callable[[], nn.Module]:
    return model("gnn", layer=layer, dropout=0.0)


TEXT = model("transformer", heads=4, positions="rotary")
CASES: dict[str, Case] = {
    "causal": (TEXT, causal),
    "window": (TEXT, lambda n: window(8 * n, 64, sides="past")),
    "complete": (TEXT, complete),
    "gcn": (gnn("gcn"), network),
    "gat": (gnn(Choice("gat", {"heads": 4})), network),
    "gin": (gnn("gin"), network),
    "egnn": (Particles, network),
    "graph-transformer": (model("graph-transformer"), network),
}


def steps(net: nn.Module, whole: Graph, rank: int, size: int) -> tuple[float, int]:
    """Two steps on this rank's part: the seconds and the bytes sent of the second."""
    first, last = whole.num_receivers * rank // size, whole.num_receivers * (rank + 1) // size
    tokens = hasattr(net, "embed") and isinstance(net.embed, nn.Embedding)
    x = torch.randint(256, (1, last - first)) if tokens else torch.randn(last - first, WIDTH)
    graph: Graph = Partition.of(whole) if size > 1 else whole
    del whole
    for _ in range(2):
        Halo.sent, started = 0, time.perf_counter()
        y = net(graph, x).flatten(0, -2)
        nn.functional.cross_entropy(y, torch.randint(y.shape[-1], y.shape[:1])).backward()
        net.zero_grad()
    return time.perf_counter() - started, Halo.sent


class Measured:
    """What the steps on a large graph take, which is made within."""

    def __init__(self, net: nn.Module, graph_of: Callable[[int], Graph], nodes: int) -> None:
        self.net, self.graph_of, self.nodes = net, graph_of, nodes
        self.found = (0.0, 0)

    def run(self, rank: int, size: int) -> None:
        self.found = steps(self.net, self.graph_of(self.nodes), rank, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=[*CASES])
    parser.add_argument("--nodes", type=int, default=4096)
    options = parser.parse_args()
    torch.set_num_threads(1)
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if size > 1:
        dist.init_process_group("gloo")
    for name in options.cases:
        make, graph_of = CASES[name]
        torch.manual_seed(0)
        net = make()
        steps(net, graph_of(64), rank, size)
        measured = Measured(net, graph_of, options.nodes)
        megabytes = peak_above(partial(measured.run, rank, size))
        seconds, sent = measured.found
        print(f"{name}, rank {rank} of {size}: {megabytes:.1f} MB, {sent:,} bytes sent, {seconds:.2f} s", flush=True)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
