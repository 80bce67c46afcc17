"""Floor 3: layers, one file per family, each class one paper; all are called `layer(graph, x)`."""

from torch import nn

from edgewise.layers.attention import KeyValueCache, MultiHeadAttention
from edgewise.layers.egnn import EGNN, AttentionEGNN, EdgeMLP, MessageNetwork, VelocityEGNN
from edgewise.layers.gat import GAT, GATv2
from edgewise.layers.gcn import GCN, renormalised
from edgewise.layers.geometry import displacements, lengths, squared_lengths
from edgewise.layers.gin import GIN
from edgewise.layers.linear import Linear, SparseFeatures, dropout
from edgewise.layers.mlp import ACTIVATIONS, MLP, probabilities
from edgewise.layers.positions import Learned, Rotary, Sinusoidal, positions
from edgewise.layers.radial import RadialField
from edgewise.layers.randomized import RandomizedLinear, RandomizedMLP
from edgewise.layers.readout import READOUTS, AttentionReadout, MaxReadout, MeanReadout, SumReadout
from edgewise.layers.sage import SAGELSTM, SAGEMean, SAGEPool
from edgewise.layers.schnet import SchNet
from edgewise.layers.tables import chosen
from edgewise.layers.transformer import NORMS, BatchNorm, FeedForward, GatedFeedForward, PostNormBlock, PreNormBlock

LAYERS: dict[str, type[nn.Module]] = {
    "multi-head-attention": MultiHeadAttention,
    "pre-norm-block": PreNormBlock,
    "post-norm-block": PostNormBlock,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "gcn": GCN,
    "sage-mean": SAGEMean,
    "sage-pool": SAGEPool,
    "sage-lstm": SAGELSTM,
    "gat": GAT,
    "gatv2": GATv2,
    "gin": GIN,
    "mean-readout": MeanReadout,
    "sum-readout": SumReadout,
    "max-readout": MaxReadout,
    "attention-readout": AttentionReadout,
    "message-network": MessageNetwork,
    "egnn": EGNN,
    "velocity-egnn": VelocityEGNN,
    "attention-egnn": AttentionEGNN,
    "radial-field": RadialField,
    "schnet": SchNet,
}

__all__ = [
    "ACTIVATIONS",
    "EGNN",
    "GAT",
    "GCN",
    "GIN",
    "LAYERS",
    "MLP",
    "NORMS",
    "READOUTS",
    "SAGELSTM",
    "AttentionEGNN",
    "AttentionReadout",
    "BatchNorm",
    "EdgeMLP",
    "FeedForward",
    "GATv2",
    "GatedFeedForward",
    "KeyValueCache",
    "Learned",
    "Linear",
    "MaxReadout",
    "MeanReadout",
    "MessageNetwork",
    "MultiHeadAttention",
    "PostNormBlock",
    "PreNormBlock",
    "RadialField",
    "RandomizedLinear",
    "RandomizedMLP",
    "Rotary",
    "SAGEMean",
    "SAGEPool",
    "SchNet",
    "Sinusoidal",
    "SparseFeatures",
    "SumReadout",
    "VelocityEGNN",
    "chosen",
    "displacements",
    "dropout",
    "lengths",
    "positions",
    "probabilities",
    "renormalised",
    "squared_lengths",
]
