"""Relational convolution beside PyTorch Geometric's, over numbers of relations at equal edges.

    python -m benchmarks.whole.relations 20000 200000 [RELATIONS ...]

One process and one thread; the contenders take turns, and their results are compared first. CPU time of a forward and
backward pass, the median of the rounds, and the most memory beyond what is there before it. PyTorch Geometric has two
forms, a loop over the relations (`RGCNConv`) or a matrix for each edge (`FastRGCNConv`): the faster one counts.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.inputs import power_law
from benchmarks.memory import give_back, peak_above
from edgewise.graphs import Graph
from edgewise.layers import RGCN

WIDTH, ROUNDS = 64, 7
RELATIONS = ("1", "10", "140")


def contenders(
    graph: Graph, kinds: Tensor, relations: int, bases: int
) -> Iterator[tuple[str, Callable[..., Tensor], nn.Module]]:
    """Edgewise, and both forms of the peer with the same weights."""
    from torch_geometric.nn import FastRGCNConv, RGCNConv

    torch.manual_seed(1)
    ours, edge_index = RGCN(WIDTH, WIDTH, relations, bases), graph.edge_index()
    yield "edgewise", lambda x: ours(graph, x, kinds), ours
    for name, kind in (("loop", RGCNConv), ("gathered", FastRGCNConv)):
        peer = kind(WIDTH, WIDTH, relations, bases or None)
        with torch.no_grad():
            peer.weight.copy_(ours.maps.weight.unflatten(0, (bases or relations, WIDTH)).transpose(1, 2))
            peer.root.copy_(ours.own.weight.T), peer.bias.copy_(ours.own.bias)
            if ours.mix is not None:
                peer.comp.copy_(ours.mix)
        yield name, lambda x, peer=peer: peer(x, edge_index, kinds), peer


def forward_backward(run: Callable[..., Tensor], x: Tensor, dy: Tensor, leaves: list[Tensor]) -> tuple[Tensor, Tensor]:
    y = run(x)
    return y, torch.autograd.grad(y, leaves, dy)[0]


def study(graph: Graph, relations: int, bases: int) -> None:
    """One line of the table."""
    generator = torch.Generator().manual_seed(2)
    x, dy = (torch.randn(graph.num_receivers, WIDTH, generator=generator) for _ in range(2))
    kinds = torch.randint(relations, (graph.num_edges,), generator=generator)
    x.requires_grad_()
    steps: dict[str, partial[tuple[Tensor, Tensor]]] = {}
    seconds: dict[str, list[float]] = {}
    megabytes: dict[str, float] = {}
    found: dict[str, list[Tensor]] = {}
    for who, run, module in contenders(graph, kinds, relations, bases):
        if who == "gathered" and graph.num_edges * WIDTH**2 > 1 << 28:
            continue  # a matrix for each edge: more than a gigabyte, and seconds
        step = partial(forward_backward, run, x, dy, [x, *module.parameters()])
        found[who], steps[who], seconds[who] = [t.detach() for t in step()], step, []
        step()
        give_back()
        megabytes[who] = peak_above(step)
    for theirs in found.values():
        for ours, right in zip(found["edgewise"], theirs, strict=True):
            assert (ours - right).norm() <= 1e-5 * right.norm(), relations
    for _ in range(ROUNDS):
        for who, step in steps.items():
            start = time.process_time()
            step()
            seconds[who].append(time.process_time() - start)
    took = {who: median(own) for who, own in seconds.items()}
    best = min((who for who in took if who != "edgewise"), key=took.__getitem__)
    times = " | ".join(f"{1e3 * took[who]:.0f} ms" if who in took else "-" for who in ("edgewise", "loop", "gathered"))
    memory = f"{megabytes['edgewise']:.0f} MB | {megabytes[best]:.0f} MB"
    print(f"| {relations} | {bases or '-'} | {times} | {took[best] / took['edgewise']:.1f} × | {memory} |", flush=True)


def main() -> None:
    nodes, edges, *relations = sys.argv[1:]
    torch.set_num_threads(1)
    graph = power_law(int(nodes), int(edges))
    print("| relations | bases | Edgewise | RGCNConv | FastRGCNConv | over the faster | memory | of the faster |")
    print("|---|---|---|---|---|---|---|---|")
    for count in relations or RELATIONS:
        for bases in (0, 8) if int(count) > 8 else (0,):
            study(graph, int(count), bases)


if __name__ == "__main__":
    main()
