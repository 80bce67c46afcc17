"""Over-smoothing on Cora: networks of 2 to 64 layers, how well they classify and how much neighbours still differ.

python -m benchmarks.studies.depths [STEPS]

Trains each network once at each depth (seed 0) and prints its test accuracy and the relative Dirichlet energy of what
its last hidden layer gives, with the weights that were best on the validation data.
Only nodes' features are dropped out: where attention weights are too, what a node adds up grows from layer to layer,
and past 60 layers the first gradient is no longer finite.
"""

import sys
import tempfile
from math import isnan, nan
from pathlib import Path

import torch
from torch import Tensor

from edgewise import training
from edgewise.apps import options, recipes
from edgewise.errors import NonFiniteError
from edgewise.graphs import Graph
from edgewise.layers import SparseFeatures, dirichlet_energy
from edgewise.models import GNN, GraphTransformer
from edgewise.tasks import NodeClassification, citation

DEPTHS = (2, 4, 8, 16, 32, 64)
SHARED = {
    "model.width": "16",
    "model.dropout": "0.5",
    "train.clip": "1.0",
    "evaluation.every": "20",
    "train.checkpoints.every": "1000",
}
PAPER = SHARED | {"optimizer.learning_rate": "0.01", "optimizer.weight_decay": "0.0005", "optimizer.decay_prefix": ""}
DEEP = SHARED | {"evaluation.choose_by": "metric", "evaluation.patience": "0"}
NETWORKS = {
    "GCN": ("cora-gcn", PAPER),
    "GAT": ("cora-gat", PAPER | DEEP | {"model.layer.heads": "4", "model.layer.attention_dropout": "0.0"}),
    "residual GCN": ("cora-gcn", PAPER | {"model.connection": "residual"}),
    "GCN with PairNorm": ("cora-gcn", PAPER | {"model.norm": "pair"}),
    "graph transformer": (
        "cora-graph-transformer",
        DEEP
        | {"model.heads": "4", "model.block.name": "pre-norm", "optimizer.learning_rate": "0.002"}
        | {"model.encoding.name": "laplacian", "model.encoding.size": "16"},
    ),
}
Measured = dict[str, list[tuple[float, float]]]


def measure(recipe: str, chosen: dict[str, str], depth: int, steps: str) -> tuple[float, float]:
    """Test accuracy, and the energy of the last hidden state; not a number where training diverged."""
    config = options.configure(
        recipes.read(recipe), [*chosen.items(), ("model.depth", str(depth)), ("train.steps", steps)]
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = training.train(config, Path(folder) / "run", progress=False)
        except NonFiniteError:
            return nan, nan
        loaded = training.load_run(result.run)
    assert isinstance(loaded.task, NodeClassification) and isinstance(loaded.model, GNN | GraphTransformer)
    return result.value, last_energy(loaded.model, loaded.task.graph(), loaded.task.nodes.x)


def last_energy(model: GNN | GraphTransformer, graph: Graph, x: Tensor | SparseFeatures) -> float:
    """The relative Dirichlet energy of the last hidden state: what a GNN's output or a transformer's head reads."""
    states: list[Tensor] = []
    if isinstance(model, GNN):
        model.output.register_forward_pre_hook(lambda layer, read: states.append(read[1]))
    else:
        model.blocks[-1].register_forward_hook(lambda block, read, h: states.append(h))
    with torch.no_grad():
        model.eval()(graph, x)
    return float(dirichlet_energy(graph, states[-1], relative=True))


def energy_of_alike() -> float:
    """The relative energy of nodes that all say the same: not 0, because they have different degrees."""
    graph = citation("cora").graph()
    return float(dirichlet_energy(graph, torch.ones(graph.num_receivers, 1), relative=True))


def cell(accuracy: float, energy: float) -> str:
    """What the table says of one network at one depth."""
    return "diverges" if isnan(accuracy) else f"{100 * accuracy:.1f} %, {energy:.1e}"


def main(steps: str = "200") -> None:
    measured: Measured = {name: [] for name in NETWORKS}
    print("| network | " + " | ".join(f"{depth}" for depth in DEPTHS) + " |", flush=True)
    print("|---" * (len(DEPTHS) + 1) + "|", flush=True)
    for name, (recipe, chosen) in NETWORKS.items():
        for depth in DEPTHS:
            measured[name].append(measure(recipe, chosen, depth, steps))
        cells = [cell(*pair) for pair in measured[name]]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    alike = energy_of_alike()
    print(f"nodes that all say the same: {alike:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
