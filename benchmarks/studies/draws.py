"""How far FastGCN's estimate of a graph convolution is from it: by even draws of senders, and by their importance.

python -m benchmarks.studies.draws

256 of Cora's 2,708 papers are drawn, each time anew and with replacement, q ∝ cᵖ, c the length of a paper's column of
Â. The squared error of Â X over ‖Â X‖²: as its formula has it, of 30 draws on average, and of the mean of the 30.
"""

import torch
from torch import Tensor

from edgewise.graphs import importance, sample_layers
from edgewise.layers.graph.gcn import renormalised
from edgewise.tasks import citation

SIZE, DRAWS = 256, 30
POWERS = {"even": 0.0, "q ∝ c, `power=1`": 1.0, "q ∝ c², the paper's": 2.0}


def errors(power: float, size: int = SIZE, draws: int = DRAWS) -> tuple[float, float, float]:
    """By the formula, of the draws on average, and of their mean."""
    task = citation("cora")
    x = task.nodes.x
    x = (x if isinstance(x, Tensor) else x.to_dense()).double()
    graph, weight = renormalised(task.graph(), torch.float64)
    a, nodes = graph.to_scipy(weight.flatten()).tocsr(), torch.arange(len(x))
    q = importance(graph, weight, power)
    exact, columns = torch.from_numpy(a @ x.numpy()), torch.from_numpy(a.multiply(a).sum(0)).flatten()
    whole = exact.square().sum()
    formula = ((columns * x.square().sum(1) * q.sum() / q).sum() / whole - 1) / size
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(draws):
        sample = sample_layers(graph, weight, q, nodes, [size], generator)
        drawn = sample.graphs[0].to_scipy(sample.weights[0].flatten())
        found.append(torch.from_numpy(drawn @ x[sample.nodes].numpy()))
    estimates = torch.stack(found)
    each = (estimates - exact).square().sum((1, 2)).mean() / whole
    return float(formula), float(each), float((estimates.mean(0) - exact).square().sum() / whole)


def main() -> None:
    print(f"| draws | by the formula | measured, {DRAWS} draws | of the mean of the {DRAWS} |\n|---|---|---|---|")
    for name, power in POWERS.items():
        formula, each, mean = errors(power)
        print(f"| {name} | {formula:.2f} | {each:.2f} | {mean:.3f} |", flush=True)


if __name__ == "__main__":
    main()
