"""Floor 4: the few assemblies of layers; a model is built from its settings and the task's signature."""

from typing import Any

from torch import nn

from edgewise.layers import chosen
from edgewise.models.gnn import GNN, GRAPH_LAYERS, GNNSettings, energy_by_depth
from edgewise.models.graph_network import GraphNetworkModel, GraphNetworkSettings
from edgewise.models.graph_transformer import ATTENTIONS, ENCODINGS, GraphTransformer, GraphTransformerSettings
from edgewise.models.kernel_regression import KernelRegressionModel, KernelRegressionSettings
from edgewise.models.mlp import MLPSettings, Perceptron, RandomizedMLPSettings, RandomizedPerceptron
from edgewise.models.particles import Particles, ParticlesSettings
from edgewise.models.signature import Signature
from edgewise.models.simulator import Simulator, SimulatorSettings
from edgewise.models.transformer import Transformer, TransformerSettings

MODELS: dict[str, tuple[type[Any], type[nn.Module]]] = {
    "mlp": (MLPSettings, Perceptron),
    "transformer": (TransformerSettings, Transformer),
    "gnn": (GNNSettings, GNN),
    "graph-network": (GraphNetworkSettings, GraphNetworkModel),
    "particles": (ParticlesSettings, Particles),
    "simulator": (SimulatorSettings, Simulator),
    "graph-transformer": (GraphTransformerSettings, GraphTransformer),
    "kernel-regression": (KernelRegressionSettings, KernelRegressionModel),
    "randomized-mlp": (RandomizedMLPSettings, RandomizedPerceptron),
}


def model_named(name: str) -> tuple[type[Any], type[nn.Module]]:
    """The settings and the model of that name; an unknown name is a ConfigError that lists the known ones."""
    return chosen("model", name, MODELS)


__all__ = [
    "ATTENTIONS",
    "ENCODINGS",
    "GNN",
    "GRAPH_LAYERS",
    "MODELS",
    "GNNSettings",
    "GraphNetworkModel",
    "GraphNetworkSettings",
    "GraphTransformer",
    "GraphTransformerSettings",
    "KernelRegressionModel",
    "KernelRegressionSettings",
    "MLPSettings",
    "Particles",
    "ParticlesSettings",
    "Perceptron",
    "RandomizedMLPSettings",
    "RandomizedPerceptron",
    "Signature",
    "Simulator",
    "SimulatorSettings",
    "Transformer",
    "TransformerSettings",
    "energy_by_depth",
    "model_named",
]
