"""Layers for edges of several kinds beside PyTorch Geometric's, over numbers of relations at equal edges.

    python -m benchmarks.whole.relations 20000 200000 [RELATIONS ...] [--bases=8]
    python -m benchmarks.whole.relations 20000 200000 --hgt [RELATIONS ...]     heterogeneous graph transformer

One process and one thread; the contenders take turns, and their results are compared first. CPU time of a forward and
backward pass, the median of the rounds, and the most memory beyond what is there before it. PyTorch Geometric has two
forms of the convolution, a loop over the relations (`RGCNConv`), which is compiled too (140 of them in a minute or
two), or a matrix for each edge (`FastRGCNConv`), and one of the transformer, which is compiled too with `--compiled`:
the fastest counts.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.inputs import power_law
from benchmarks.memory import give_back, peak_above
from edgewise.graphs import Graph
from edgewise.layers import HGT, RGCN

WIDTH, HEADS, KINDS, ROUNDS = 64, 4, 4, 7
RELATIONS = ("1", "10", "140")
Contender = tuple[str, Callable[..., Tensor], nn.Module]  # name, run, weights


def convolutions(graph: Graph, kinds: Tensor, relations: int, bases: int) -> Iterator[Contender]:
    """Edgewise, and the forms of the peer with the same weights."""
    from torch_geometric.nn import FastRGCNConv, RGCNConv

    torch.manual_seed(1)
    ours, edge_index = RGCN(WIDTH, WIDTH, relations, bases), graph.edge_index()
    yield "edgewise", lambda x: ours(graph, x, kinds), ours
    for name, kind in (("loop", RGCNConv), ("gathered", FastRGCNConv)):
        if name == "gathered" and graph.num_edges * WIDTH**2 > 1 << 28:
            continue  # a matrix for each edge: more than a gigabyte, and seconds
        peer = kind(WIDTH, WIDTH, relations, bases or None)
        with torch.no_grad():
            peer.weight.copy_(ours.maps.weight.unflatten(0, (bases or relations, WIDTH)).transpose(1, 2))
            peer.root.copy_(ours.own.weight.T), peer.bias.copy_(ours.own.bias)
            if ours.mix is not None:
                peer.comp.copy_(ours.mix)
        yield name, lambda x, peer=peer: peer(x, edge_index, kinds), peer
        if name == "loop":
            run = torch.compile(peer)
            yield "compiled", lambda x, run=run: run(x, edge_index, kinds), peer


def transformers(nodes: int, edges: int, relations: int, compiled: bool) -> tuple[Graph, Iterator[Contender]]:
    """A graph of four kinds of nodes, all of which receive something, and both layers with the same weights on it."""
    draw, each = torch.Generator().manual_seed(2), nodes // KINDS
    names = [f"kind{kind}" for kind in range(KINDS)]
    links = [(names[r // KINDS % KINDS], f"relation{r}", names[r % KINDS]) for r in range(relations)]
    index = {link: torch.randint(each, (2, edges // relations), generator=draw) for link in links}
    flat = [part + each * torch.tensor([[names.index(a)], [names.index(b)]]) for (a, _, b), part in index.items()]
    graph = Graph.from_edge_index(torch.cat(flat, 1), KINDS * each)
    relation = graph.sort_edges(torch.arange(relations).repeat_interleave(edges // relations))
    types = torch.arange(KINDS).repeat_interleave(each)

    def run(peer: Callable[..., dict[str, Tensor]], x: Tensor) -> Tensor:
        return torch.cat([*peer(dict(zip(names, x.split(each), strict=True)), index).values()])

    def contenders() -> Iterator[Contender]:
        from torch_geometric.nn import HGTConv

        torch.manual_seed(1)
        peer = HGTConv(WIDTH, WIDTH, (names, links), heads=HEADS)
        ours = HGT(WIDTH, WIDTH, relations, KINDS, HEADS)
        with torch.no_grad():
            for own, theirs in ((ours.projection, peer.kqv_lin), (ours.output, peer.out_lin)):
                own.weight.copy_(torch.stack([theirs.lins[name].weight for name in names]))
                own.bias.copy_(torch.stack([theirs.lins[name].bias for name in names]))
            for weight, theirs in ((ours.attention, peer.k_rel), (ours.message, peer.v_rel)):
                weight.copy_(theirs.weight.unflatten(0, (HEADS, relations)).transpose(0, 1).mT)
        yield "edgewise", lambda x: ours(graph, x, relation, types), ours
        yield "eager", partial(run, peer), peer
        if compiled:
            yield "compiled", torch.compile(partial(run, peer)), peer

    return graph, contenders()


def forward_backward(run: Callable[..., Tensor], x: Tensor, dy: Tensor, leaves: list[Tensor]) -> tuple[Tensor, Tensor]:
    y = run(x)
    return y, torch.autograd.grad(y, leaves, dy)[0]


def study(graph: Graph, contenders: Iterator[Contender], columns: Sequence[str], first: str) -> None:
    """One line of a table, with a column for each contender, empty for one that takes no part."""
    generator = torch.Generator().manual_seed(2)
    x, dy = (torch.randn(graph.num_receivers, WIDTH, generator=generator) for _ in range(2))
    x.requires_grad_()
    steps: dict[str, partial[tuple[Tensor, Tensor]]] = {}
    seconds: dict[str, list[float]] = {}
    megabytes: dict[str, float] = {}
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for who, run, module in contenders:
        step = partial(forward_backward, run, x, dy, [x, *module.parameters()])
        y, dx = step()
        found[who], steps[who], seconds[who] = (y.detach(), dx), step, []
        step()
        give_back()
        megabytes[who] = peak_above(step)
    errors = [
        ((ours - right).norm() / right.norm()).item()
        for theirs in found.values()
        for ours, right in zip(found["edgewise"], theirs, strict=True)
    ]
    assert max(errors) <= 1e-5, errors
    for _ in range(ROUNDS):
        for who, step in steps.items():
            start = time.process_time()
            step()
            seconds[who].append(time.process_time() - start)
    took = {who: median(own) for who, own in seconds.items()}
    best = min((who for who in took if who != "edgewise"), key=took.__getitem__)
    times = " | ".join(f"{1e3 * took[who]:.0f} ms" if who in took else "" for who in columns)
    memory = f"{megabytes['edgewise']:.0f} MB | {megabytes[best]:.0f} MB"
    print(f"| {first} | {times} | {took[best] / took['edgewise']:.1f} × | {memory} | {max(errors):.0e} |", flush=True)


def main() -> None:
    nodes, edges = map(int, sys.argv[1:3])
    bases = next((int(word.removeprefix("--bases=")) for word in sys.argv if word.startswith("--bases=")), None)
    relations = [int(word) for word in sys.argv[3:] if word.isdigit()] or [int(word) for word in RELATIONS]
    torch.set_num_threads(1)
    if "--hgt" in sys.argv:
        print("| relations | Edgewise | HGTConv | compiled | over the fastest | memory | of the fastest | error |")
        for count in relations:
            found = transformers(nodes, edges, count, "--compiled" in sys.argv)
            study(*found, ("edgewise", "eager", "compiled"), str(count))
        return
    graph = power_law(nodes, edges)
    columns = ("edgewise", "loop", "compiled", "gathered")
    names = "Edgewise | RGCNConv | compiled | FastRGCNConv"
    print(f"| relations | bases | {names} | over the fastest | memory | of the fastest | error |")
    for count in relations:
        kinds = torch.randint(count, (graph.num_edges,), generator=torch.Generator().manual_seed(3))
        for own in ((0, 2, 8) if count > 8 else (0,)) if bases is None else (bases,):
            study(graph, convolutions(graph, kinds, count, own), columns, f"{count} | {own or '-'}")


if __name__ == "__main__":
    main()
