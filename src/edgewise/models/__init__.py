"""Floor 4: the few assemblies of layers; a model is built from its settings and the task's signature.

A line below is a public name's one entry: `MODELS` holds the modules, by the names of the settings that they are built
from: `GraphNetworkSettings` are those of "graph-network".
"""

import re
from typing import Any, get_type_hints

from torch import nn

from edgewise.configuration import chosen
from edgewise.models.ensemble import Consistent as Consistent
from edgewise.models.ensemble import ConsistentSettings as ConsistentSettings
from edgewise.models.ensemble import Ensemble as Ensemble
from edgewise.models.ensemble import EnsembleSettings as EnsembleSettings
from edgewise.models.ensemble import RandomPropagation as RandomPropagation
from edgewise.models.ensemble import RandomPropagationSettings as RandomPropagationSettings
from edgewise.models.graph.autoencoder import GraphAutoencoder as GraphAutoencoder
from edgewise.models.graph.autoencoder import GraphAutoencoderSettings as GraphAutoencoderSettings
from edgewise.models.graph.deep_sets import DeepSets as DeepSets
from edgewise.models.graph.deep_sets import DeepSetsSettings as DeepSetsSettings
from edgewise.models.graph.gnn import GNN as GNN
from edgewise.models.graph.gnn import GNNSettings as GNNSettings
from edgewise.models.graph.graph_layers import GRAPH_LAYERS as GRAPH_LAYERS
from edgewise.models.graph.higher import PairNetwork as PairNetwork
from edgewise.models.graph.higher import PairNetworkSettings as PairNetworkSettings
from edgewise.models.graph.higher import SubgraphNetwork as SubgraphNetwork
from edgewise.models.graph.higher import SubgraphNetworkSettings as SubgraphNetworkSettings
from edgewise.models.graph.light_gcn import LightGCN as LightGCN
from edgewise.models.graph.light_gcn import LightGCNSettings as LightGCNSettings
from edgewise.models.graph.network import GraphNetworkModel as GraphNetworkModel
from edgewise.models.graph.network import GraphNetworkSettings as GraphNetworkSettings
from edgewise.models.graph.pooled_transformer import MinCutSettings as MinCutSettings
from edgewise.models.graph.pooled_transformer import PooledTransformer as PooledTransformer
from edgewise.models.graph.pooled_transformer import PooledTransformerSettings as PooledTransformerSettings
from edgewise.models.graph.transformer import ATTENTIONS as ATTENTIONS
from edgewise.models.graph.transformer import ENCODINGS as ENCODINGS
from edgewise.models.graph.transformer import GraphTransformer as GraphTransformer
from edgewise.models.graph.transformer import GraphTransformerSettings as GraphTransformerSettings
from edgewise.models.hub.pretrained import from_hugging_face as from_hugging_face
from edgewise.models.hub.pretrained import hugging_face_graph as hugging_face_graph
from edgewise.models.hub.pretrained import to_hugging_face as to_hugging_face
from edgewise.models.kernel_regression import KernelRegressionModel as KernelRegressionModel
from edgewise.models.kernel_regression import KernelRegressionSettings as KernelRegressionSettings
from edgewise.models.memory import Memory as Memory
from edgewise.models.memory import MemorySettings as MemorySettings
from edgewise.models.mlp import MLPSettings as MLPSettings
from edgewise.models.mlp import Perceptron as Perceptron
from edgewise.models.mlp import RandomizedMLPSettings as RandomizedMLPSettings
from edgewise.models.mlp import RandomizedPerceptron as RandomizedPerceptron
from edgewise.models.particles.forecast import Particles as Particles
from edgewise.models.particles.forecast import ParticlesSettings as ParticlesSettings
from edgewise.models.particles.potential import Potential as Potential
from edgewise.models.particles.potential import PotentialSettings as PotentialSettings
from edgewise.models.particles.simulator import Simulator as Simulator
from edgewise.models.particles.simulator import SimulatorSettings as SimulatorSettings
from edgewise.models.signature import Atoms as Atoms
from edgewise.models.signature import Features as Features
from edgewise.models.signature import MovingParticles as MovingParticles
from edgewise.models.signature import OfMembers as OfMembers
from edgewise.models.signature import Penalised as Penalised
from edgewise.models.signature import Signature as Signature
from edgewise.models.signature import TokenPairs as TokenPairs
from edgewise.models.signature import Tokens as Tokens
from edgewise.models.text.bert import BERT as BERT
from edgewise.models.text.bert import BERTSettings as BERTSettings
from edgewise.models.text.encoder_decoder import BART as BART
from edgewise.models.text.encoder_decoder import BARTSettings as BARTSettings
from edgewise.models.text.encoder_decoder import EncoderDecoder as EncoderDecoder
from edgewise.models.text.encoder_decoder import EncoderDecoderSettings as EncoderDecoderSettings
from edgewise.models.text.generation import Hypothesis as Hypothesis
from edgewise.models.text.generation import translate as translate
from edgewise.models.text.recurrent import Recurrent as Recurrent
from edgewise.models.text.recurrent import RecurrentEncoderDecoder as RecurrentEncoderDecoder
from edgewise.models.text.recurrent import (
    RecurrentEncoderDecoderSettings as RecurrentEncoderDecoderSettings,
)
from edgewise.models.text.recurrent import RecurrentSettings as RecurrentSettings
from edgewise.models.text.transformer import Transformer as Transformer
from edgewise.models.text.transformer import TransformerSettings as TransformerSettings
from edgewise.models.vision.convolutional import GroupCNN as GroupCNN
from edgewise.models.vision.convolutional import GroupCNNSettings as GroupCNNSettings
from edgewise.models.vision.convolutional import ScaleCNN as ScaleCNN
from edgewise.models.vision.convolutional import ScaleCNNSettings as ScaleCNNSettings
from edgewise.models.vision.swin import Swin as Swin
from edgewise.models.vision.swin import SwinSettings as SwinSettings
from edgewise.models.vision.vae import VariationalAutoencoder as VariationalAutoencoder
from edgewise.models.vision.vae import VariationalAutoencoderSettings as VariationalAutoencoderSettings


def _entry(model: type[nn.Module]) -> tuple[str, tuple[type[Any], type[nn.Module]]]:
    """A model's name in the table, and its settings and itself: `__init__(self, settings: …Settings, signature)`."""
    settings = get_type_hints(model.__init__)["settings"]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", settings.__name__.removesuffix("Settings"))
    return words.lower(), (settings, model)


MODELS: dict[str, tuple[type[Any], type[nn.Module]]] = dict(
    _entry(model) for model in tuple(globals().values()) if isinstance(model, type) and issubclass(model, nn.Module)
)


def model_named(name: str) -> tuple[type[Any], type[nn.Module]]:
    """The settings and the model of that name; an unknown name is a ConfigError that lists the known ones."""
    return chosen("model", name, MODELS)
