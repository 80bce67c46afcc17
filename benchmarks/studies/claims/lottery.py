"""The hardware lottery: one model, its weights and its data, trained to the end by three ways to compute attention.

python -m benchmarks.studies.claims.lottery

Two layers of attention (width 16, 2 heads) say to which of four communities the nodes of a random graph belong, for 40
steps of Adam: with scores of all pairs and a mask (`scaled_dot_product_attention`, the dense way), with gathered and
scattered edges (PyTorch Geometric's `softmax` and `scatter`), and by the kernel that Edgewise chooses. Seconds of the
whole training, of the processor on one thread, over the number of nodes and of neighbours; the losses must be the same
at every step.
"""

import math
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import attend, plans
from edgewise.graphs import Graph

SIZES: dict[int, tuple[int, ...]] = {256: (4, 16, 64, 256), 1024: (4, 16, 64, 256), 4096: (4, 16, 64, 256)}
STEPS, WIDTH, HEADS, CLASSES, SEED = 40, 16, 2, 4, 0

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v [N, H, C] -> [N, H, C]


def drawn(nodes: int, neighbours: int, seed: int = SEED) -> tuple[Graph, Tensor, Tensor]:
    """A graph of four communities, noisy features and labels; each node has as many neighbours, most of its kind."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (nodes,), generator=generator)
    nearer = 2.0 * (labels[:, None] == labels) + torch.rand(nodes, nodes, generator=generator) * 3
    senders = nearer.topk(min(neighbours, nodes), -1).indices
    receivers = torch.arange(nodes)[:, None].expand_as(senders)
    graph = Graph.from_edge_index(torch.stack([senders.flatten(), receivers.flatten()]), num_nodes=nodes)
    x = functional.one_hot(labels, CLASSES) + 2.0 * torch.randn(nodes, CLASSES, generator=generator)
    return graph, x, labels


def dense(graph: Graph) -> Attention:
    """All pairs, those without an edge masked."""
    mask = graph.dense_mask()

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).squeeze(0).transpose(0, 1)

    return run


def gathered(graph: Graph) -> Attention:
    """Keys and values gathered onto the edges, a softmax by receiver, messages scattered."""
    from torch_geometric.utils import scatter, softmax

    (senders, receivers), n = graph.edge_index(), graph.num_receivers

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q[receivers] * k[senders]).sum(-1) / math.sqrt(q.shape[-1])
        weights = softmax(scores, receivers, num_nodes=n)
        return scatter(weights.unsqueeze(-1) * v[senders], receivers, 0, n, "sum")

    return run


def chosen(graph: Graph) -> Attention:
    """Whichever kernel the planner takes for this graph."""
    return lambda q, k, v: attend(graph, q, k, v)


WAYS: dict[str, Callable[[Graph], Attention]] = {"dense": dense, "gather-scatter": gathered, "chosen": chosen}


class Network(nn.Module):
    """Two residual layers of attention between linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.say = nn.Linear(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.maps = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))

    def forward(self, x: Tensor, attention: Attention) -> Tensor:
        h = self.read(x)
        for linear in self.maps:
            q, k, v = linear(h).unflatten(-1, (HEADS, -1)).chunk(3, -1)
            h = h + attention(q, k, v).flatten(-2)
        return self.say(torch.relu(h))


def trained(
    way: str, data: tuple[Graph, Tensor, Tensor], steps: int = STEPS, seed: int = SEED
) -> tuple[list[float], float]:
    """The loss before each step, and the seconds that all steps took, after one that counts for nothing."""
    graph, x, labels = data
    torch.manual_seed(seed)
    model, attention = Network(), WAYS[way](graph)
    functional.cross_entropy(model(x, attention), labels).backward()
    model.zero_grad()
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
    began = time.process_time()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x, attention), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, time.process_time() - began


def one(nodes: int, neighbours: int, steps: int = STEPS) -> dict[str, float]:
    """Seconds of each way, the last loss, and the largest difference between two ways at any step."""
    data = drawn(nodes, neighbours)
    runs = {way: trained(way, data, steps) for way in WAYS}
    found = {way: seconds for way, (_, seconds) in runs.items()}
    losses = torch.tensor([own for own, _ in runs.values()], dtype=torch.float64)
    return found | {"loss": losses[0, -1].item(), "apart": (losses.amax(0) - losses.amin(0)).max().item()}


def kernel(nodes: int, neighbours: int) -> str:
    """The name of the kernel that is chosen."""
    graph, x, _ = drawn(nodes, neighbours)
    with plans() as seen:
        Network()(x, chosen(graph))
    return seen[0].choice


def crossover(neighbours: tuple[int, ...], table: list[dict[str, float]]) -> float | None:
    """How many neighbours make gathering as slow as all pairs, between two measured numbers; None if it never is."""
    slower = [math.log(row["gather-scatter"] / row["dense"]) for row in table]
    for (n, m), (a, b) in zip(pairwise(neighbours), pairwise(slower), strict=True):
        if a < 0 <= b:
            return float(n * (m / n) ** (-a / (b - a)))
    return None


Table = dict[int, list[dict[str, float]]]


def measure(sizes: dict[int, tuple[int, ...]] = SIZES, steps: int = STEPS) -> Table:
    print("| nodes, neighbours | density | dense | gather-scatter | chosen | its kernel | last loss | apart |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    table: Table = {}
    for nodes, several in sizes.items():
        table[nodes] = []
        for neighbours in several:
            row = one(nodes, neighbours, steps)
            table[nodes].append(row)
            seconds = " | ".join(f"{row[way]:.2f} s" for way in WAYS)
            first = f"| {nodes:,}, {neighbours:,} | {100 * neighbours / nodes:.3g} % | {seconds} "
            print(f"{first}| {kernel(nodes, neighbours)} | {row['loss']:.4f} | {row['apart']:.0e} |", flush=True)
    for nodes, rows in table.items():
        found = crossover(sizes[nodes], rows)
        says = "nowhere" if found is None else f"{found:.0f} neighbours, {100 * found / nodes:.0f} % of the pairs"
        print(f"{nodes:,} nodes: gathering is as slow as all pairs at {says}")
    return table


def main() -> None:
    torch.set_num_threads(1)
    measure()


if __name__ == "__main__":
    main()
