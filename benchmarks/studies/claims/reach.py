"""What attention among all nodes sees in one block, and attention among neighbours does not.

python -m benchmarks.studies.claims.reach

Random graphs of 24 nodes with three neighbours each on average. A node says of each node how many of its neighbours are
marked (none, one, two or more; three in ten are), or whether a node within two steps is (one in sixteen are). Graph
transformers of one block and width 32 differ in their attention alone: (5.18) among neighbours; Hadamard's (5.19), a
softmax over all nodes of which neighbours' parts are summed, not averaged; the kernels of GraphiT, a diffusion and a
random walk of two steps. 200 steps of Adam on 640 graphs; accuracy on 6,400 other nodes, three seeds. Without a block
each node has its own mark alone.
"""

from statistics import fmean, stdev

import torch
from torch import Tensor, nn

from edgewise import Graph
from edgewise.configuration import Choice
from edgewise.models import Features, GraphTransformer, GraphTransformerSettings

NODES, DEGREE, GRAPHS, STEPS, SEEDS = 24, 3, 32, 200, 3
WAYS = {
    "neighbours (5.18)": Choice("neighbors"),
    "Hadamard (5.19)": Choice("hadamard"),
    "diffusion kernel": Choice("kernel"),
    "kernel of a random walk": Choice("kernel", {"kernel": "random-walk", "steps": 2}),
}
NONE = "no block"
MARKED = {"marked neighbours": 0.3, "marked within two steps": 1 / 16}
Batch = tuple[Graph, Tensor, Tensor]


def drawn(question: str, graphs: int, generator: torch.Generator) -> Batch:
    """Graphs, their nodes' marks [N, 2], one-hot, and classes [N]."""
    adjacent = torch.rand(graphs, NODES, NODES, generator=generator).triu(1) > 1 - DEGREE / NODES
    adjacent = adjacent | adjacent.mT
    marked = torch.rand(graphs, NODES, generator=generator) < MARKED[question]
    around = (adjacent.float() @ marked[..., None].float())[..., 0]
    near = around + marked + (adjacent.float() @ around[..., None])[..., 0] > 0
    classes = near.long() if "within" in question else around.long().clamp(max=2)
    graph = Graph.batch([Graph.from_edge_index(own.nonzero().T, num_nodes=NODES) for own in adjacent])
    return graph, nn.functional.one_hot(marked.flatten().long(), 2).float(), classes.flatten()


def accuracy(question: str, attention: Choice | None, seed: int, steps: int = STEPS) -> float:
    generator = torch.Generator().manual_seed(seed)
    train = [drawn(question, GRAPHS, generator) for _ in range(20)]
    graph, x, classes = drawn(question, 6_400 // NODES, generator)
    torch.manual_seed(seed)
    settings = GraphTransformerSettings(
        attention=attention or Choice("neighbors"),
        encoding=Choice("none"),
        width=32,
        depth=1 if attention else 0,
        heads=4,
    )
    model = GraphTransformer(settings, Features(2, 3))
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.005 * (1 - step / steps)
        given, marks, wanted = train[step % len(train)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(given, marks), wanted).backward()
        optimizer.step()
    with torch.no_grad():
        return (model.eval()(graph, x).argmax(-1) == classes).double().mean().item()


def measure(steps: int = STEPS, seeds: int = SEEDS) -> dict[str, list[float]]:
    print(f"| attention | {' | '.join(MARKED)} |\n|---|---|---|")
    found: dict[str, list[float]] = {}
    for name, way in {NONE: None, **WAYS}.items():
        runs = [[accuracy(question, way, seed, steps) for seed in range(seeds)] for question in MARKED]
        found[name] = [fmean(own) for own in runs]
        cells = [f"{100 * fmean(own):.1f} % ± {100 * stdev(own):.1f} %" for own in runs]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return found


def main() -> None:
    torch.set_num_threads(1)
    measure()


if __name__ == "__main__":
    main()
