"""Whole layers that read features of edges, beside PyTorch Geometric's, as they come and under torch.compile.

    python -m benchmarks.whole.edge_features 20000 200000 [LAYER ...]

One process and one thread; the contenders take turns, and their results are compared with float64 first. CPU time of a
forward and backward pass, the median of the rounds; the most memory beyond what is there before it; and the relative
errors of the result and of its gradient to x, those of PyTorch's operations in parentheses.
"""

import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.inputs import power_law
from benchmarks.memory import give_back, peak_above
from edgewise.graphs import Graph
from edgewise.kernels import Dot, EdgeInput, EdgeVectors, attend
from edgewise.layers import GAT, GINE, MLP, GatedGCN, GATv2
from edgewise.layers.plain.linear import Linear

WIDTH, HEADS, EDGES = 64, 4, 16
ROUNDS = 7

Layer = Callable[[Tensor, Tensor], Tensor]


def transformer(graph: Graph) -> tuple[nn.Module, nn.Module]:
    """TransformerConv, and the same by `attend`."""
    from torch_geometric.nn import TransformerConv

    peer = TransformerConv(WIDTH, WIDTH // HEADS, HEADS, edge_dim=EDGES)

    class Ours(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nodes, self.edge = Linear(WIDTH, 4 * WIDTH), peer.lin_edge
            theirs = (peer.lin_query, peer.lin_key, peer.lin_value, peer.lin_skip)
            self.nodes.weight.data = torch.cat([linear.weight.data for linear in theirs])
            self.nodes.bias.data = torch.cat([linear.bias.data for linear in theirs])

        def forward(self, x: Tensor, e: Tensor) -> Tensor:
            *ends, root = self.nodes(x).chunk(4, -1)
            q, k, v = (end.unflatten(-1, (HEADS, -1)) for end in ends)
            e_ij = EdgeInput((self.edge.weight, None), e)
            return attend(graph, q, k, v, Dot() + EdgeVectors(e_ij, e_ij)).flatten(-2) + root

    return peer, Ours()


def gat(graph: Graph) -> tuple[nn.Module, nn.Module]:
    """GATConv."""
    from torch_geometric.nn import GATConv

    peer = GATConv(WIDTH, WIDTH // HEADS, HEADS, edge_dim=EDGES, add_self_loops=False)
    layer = GAT(WIDTH, WIDTH // HEADS, HEADS, edges=EDGES)
    assert layer.edge is not None
    with torch.no_grad():
        peer.lin.weight.copy_(layer.W.weight), peer.lin_edge.weight.copy_(layer.edge.weight)
        peer.att_dst[0], peer.att_src[0], peer.att_edge[0] = layer.a_receiver, layer.a_sender, layer.a_sender
    return peer, layer


def gatv2(graph: Graph) -> tuple[nn.Module, nn.Module]:
    """GATv2Conv."""
    from torch_geometric.nn import GATv2Conv

    peer = GATv2Conv(WIDTH, WIDTH // HEADS, HEADS, edge_dim=EDGES, add_self_loops=False)
    layer = GATv2(WIDTH, WIDTH // HEADS, HEADS, edges=EDGES)
    assert layer.edge is not None
    with torch.no_grad():
        for side, weight in zip((peer.lin_r, peer.lin_l), layer.W.weight.chunk(2), strict=True):
            side.weight.copy_(weight), side.bias.zero_()
        peer.lin_edge.weight.copy_(layer.edge.weight)
        peer.att[0] = layer.a
    return peer, layer


def gine(graph: Graph) -> tuple[nn.Module, nn.Module]:
    """GINEConv."""
    from torch_geometric.nn import GINEConv

    layer = GINE(MLP([WIDTH, WIDTH, WIDTH]), edges=EDGES)
    assert layer.edge is not None
    first, second = layer.mlp.linears
    peer = GINEConv(nn.Sequential(first, nn.ReLU(), second), train_eps=True, edge_dim=EDGES)
    peer.lin.load_state_dict(layer.edge.state_dict())
    return peer, layer


def gated(graph: Graph) -> tuple[nn.Module, nn.Module]:
    """GatedGCN with normalised gates, on PyTorch Geometric's message passing."""
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import scatter

    layer = GatedGCN(WIDTH, WIDTH, EDGES)
    assert layer.edges is not None
    C: nn.Module = layer.edges

    class Peer(MessagePassing):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__(aggr="add", node_dim=0)
            self.nodes, self.edges = layer.nodes, C

        def forward(self, x: Tensor, edge_index: Tensor, e: Tensor) -> Tensor:
            A, B, D, E = self.nodes(x).chunk(4, -1)
            return A + self.propagate(edge_index, B=B, D=D, E=E, e=self.edges(e))

        def message(self, B_j: Tensor, D_i: Tensor, E_j: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
            gates = torch.sigmoid(D_i + E_j + e)
            return gates * B_j, gates

        def aggregate(self, found: tuple[Tensor, Tensor], index: Tensor, dim_size: int) -> Tensor:
            y, total = (scatter(m, index, 0, dim_size, "sum") for m in found)
            return y / (total + 1e-6)

    return Peer(), layer


LAYERS = {"transformer": transformer, "gat": gat, "gatv2": gatv2, "gine": gine, "gated-gcn": gated}


def contenders(name: str, graph: Graph) -> Iterator[tuple[str, Layer, nn.Module]]:
    """Edgewise, PyTorch Geometric, and that compiled."""
    torch.manual_seed(1)
    peer, ours = LAYERS[name](graph)
    edge_index = graph.edge_index()
    plain = isinstance(ours, GAT | GATv2 | GINE | GatedGCN)
    yield "edgewise", (lambda x, e: ours(graph, x, e)) if plain else ours, ours
    yield "pyg", lambda x, e: peer(x, edge_index, e), peer
    compiled = torch.compile(peer, fullgraph=True, dynamic=False)
    yield "compiled", lambda x, e: compiled(x, edge_index, e), peer


def exact(name: str, graph: Graph, *inputs: Tensor) -> list[Tensor]:
    """The result of PyTorch Geometric's layer and its gradient to x, in float64."""
    _, (_, run, module), _ = contenders(name, graph)
    x, e, dy = (t.detach().double() for t in inputs)
    module.double()
    y = run(x.requires_grad_(), e)
    return [y.detach(), torch.autograd.grad(y, x, dy)[0]]


def check(found: dict[str, list[Tensor]], truth: list[Tensor]) -> str:
    """The relative errors of Edgewise's result and gradient, at most twice those of PyTorch beside."""

    def errors(who: str) -> list[float]:
        return [float((t - exact).norm() / exact.norm()) for t, exact in zip(found[who], truth, strict=True)]

    pairs = list(zip(errors("edgewise"), map(max, errors("pyg"), errors("compiled")), strict=True))
    assert all(ours <= 2 * theirs + 1e-6 for ours, theirs in pairs), pairs
    return ", ".join(f"{ours:.0e} ({theirs:.0e})" for ours, theirs in pairs)


def study(name: str, graph: Graph) -> None:
    """One line of the table."""
    generator = torch.Generator().manual_seed(2)
    x, e, dy = (
        torch.randn(n, c, generator=generator)
        for n, c in ((graph.num_receivers, WIDTH), (graph.num_edges, EDGES), (graph.num_receivers, WIDTH))
    )
    x.requires_grad_()
    steps: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {}
    seconds: dict[str, list[float]] = {}
    megabytes: dict[str, float] = {}
    found: dict[str, list[Tensor]] = {}
    for who, run, module in contenders(name, graph):
        leaves = [x, *module.parameters()]

        def step(run: Layer = run, leaves: list[Tensor] = leaves) -> tuple[Tensor, Tensor]:
            y = run(x, e)
            return y, torch.autograd.grad(y, leaves, dy, allow_unused=True)[0]

        found[who], steps[who], seconds[who] = [t.detach() for t in step()], step, []
        step()
        give_back()
        megabytes[who] = peak_above(step)
    errors = check(found, exact(name, graph, x, e, dy))
    for _ in range(ROUNDS):
        for who, step in steps.items():
            start = time.process_time()
            step()
            seconds[who].append(time.process_time() - start)
    took = {who: median(own) for who, own in seconds.items()}
    own, eager, compiled = (f"{1e3 * took[who]:.0f} ms" for who in took)
    ratios = f"{took['pyg'] / took['edgewise']:.1f} × | {took['compiled'] / took['edgewise']:.1f} ×"
    memory = f"{megabytes['edgewise']:.0f} | {megabytes['compiled']:.0f}"
    print(f"| {name} | {own} | {eager} | {compiled} | {ratios} | {memory} | {errors} |", flush=True)


def main() -> None:
    nodes, edges, *names = sys.argv[1:]
    torch.set_num_threads(1)
    graph = power_law(int(nodes), int(edges)).add_self_loops()
    print("| layer | Edgewise | PyG | compiled | over PyG | over compiled | MB | MB of compiled | errors |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names or LAYERS:
        study(name, graph)


if __name__ == "__main__":
    main()
