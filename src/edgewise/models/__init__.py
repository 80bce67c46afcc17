"""Floor 4: the few assemblies of layers; a model is built from its settings and the task's signature."""

from typing import Any

from torch import nn

from edgewise.configuration import chosen
from edgewise.models.graph.autoencoder import GraphAutoEncoder, GraphAutoEncoderSettings
from edgewise.models.graph.deep_sets import DeepSets, DeepSetsSettings
from edgewise.models.graph.gnn import GNN, GRAPH_LAYERS, GNNSettings
from edgewise.models.graph.network import (
    GraphNetworkEnsemble,
    GraphNetworkEnsembleSettings,
    GraphNetworkModel,
    GraphNetworkSettings,
)
from edgewise.models.graph.pooled_transformer import MinCutSettings, PooledTransformer, PooledTransformerSettings
from edgewise.models.graph.smoothing import energy_by_depth
from edgewise.models.graph.transformer import ATTENTIONS, ENCODINGS, GraphTransformer, GraphTransformerSettings
from edgewise.models.hub.folder import from_hugging_face, to_hugging_face
from edgewise.models.kernel_regression import KernelRegressionModel, KernelRegressionSettings
from edgewise.models.mlp import MLPSettings, Perceptron, RandomizedMLPSettings, RandomizedPerceptron
from edgewise.models.particles.forecast import Particles, ParticlesSettings
from edgewise.models.particles.potential import Potential, PotentialSettings
from edgewise.models.particles.simulator import Simulator, SimulatorSettings
from edgewise.models.signature import Atoms, Features, MovingParticles, Penalised, Signature, TokenPairs, Tokens
from edgewise.models.text.bert import BERT, BERTSettings
from edgewise.models.text.encoder_decoder import EncoderDecoder, EncoderDecoderSettings
from edgewise.models.text.recurrent import Recurrent, RecurrentSettings
from edgewise.models.text.transformer import Transformer, TransformerSettings
from edgewise.models.text.translation import Hypothesis, translate
from edgewise.models.vision.group_cnn import GroupCNN, GroupCNNSettings
from edgewise.models.vision.swin import Swin, SwinSettings

MODELS: dict[str, tuple[type[Any], type[nn.Module]]] = {
    "mlp": (MLPSettings, Perceptron),
    "transformer": (TransformerSettings, Transformer),
    "bert": (BERTSettings, BERT),
    "deep-sets": (DeepSetsSettings, DeepSets),
    "recurrent": (RecurrentSettings, Recurrent),
    "swin": (SwinSettings, Swin),
    "encoder-decoder": (EncoderDecoderSettings, EncoderDecoder),
    "gnn": (GNNSettings, GNN),
    "graph-network": (GraphNetworkSettings, GraphNetworkModel),
    "graph-network-ensemble": (GraphNetworkEnsembleSettings, GraphNetworkEnsemble),
    "particles": (ParticlesSettings, Particles),
    "simulator": (SimulatorSettings, Simulator),
    "pooled-transformer": (PooledTransformerSettings, PooledTransformer),
    "graph-transformer": (GraphTransformerSettings, GraphTransformer),
    "kernel-regression": (KernelRegressionSettings, KernelRegressionModel),
    "potential": (PotentialSettings, Potential),
    "randomized-mlp": (RandomizedMLPSettings, RandomizedPerceptron),
    "group-cnn": (GroupCNNSettings, GroupCNN),
    "graph-autoencoder": (GraphAutoEncoderSettings, GraphAutoEncoder),
}


def model_named(name: str) -> tuple[type[Any], type[nn.Module]]:
    """The settings and the model of that name; an unknown name is a ConfigError that lists the known ones."""
    return chosen("model", name, MODELS)


__all__ = [
    "ATTENTIONS",
    "BERT",
    "ENCODINGS",
    "GNN",
    "GRAPH_LAYERS",
    "MODELS",
    "Atoms",
    "BERTSettings",
    "DeepSets",
    "DeepSetsSettings",
    "EncoderDecoder",
    "EncoderDecoderSettings",
    "Features",
    "GNNSettings",
    "GraphAutoEncoder",
    "GraphAutoEncoderSettings",
    "GraphNetworkEnsemble",
    "GraphNetworkEnsembleSettings",
    "GraphNetworkModel",
    "GraphNetworkSettings",
    "GraphTransformer",
    "GraphTransformerSettings",
    "GroupCNN",
    "GroupCNNSettings",
    "Hypothesis",
    "KernelRegressionModel",
    "KernelRegressionSettings",
    "MLPSettings",
    "MinCutSettings",
    "MovingParticles",
    "Particles",
    "ParticlesSettings",
    "Penalised",
    "Perceptron",
    "PooledTransformer",
    "PooledTransformerSettings",
    "Potential",
    "PotentialSettings",
    "RandomizedMLPSettings",
    "RandomizedPerceptron",
    "Recurrent",
    "RecurrentSettings",
    "Signature",
    "Simulator",
    "SimulatorSettings",
    "Swin",
    "SwinSettings",
    "TokenPairs",
    "Tokens",
    "Transformer",
    "TransformerSettings",
    "energy_by_depth",
    "from_hugging_face",
    "model_named",
    "to_hugging_face",
    "translate",
]
