"""Floor 3: layers, one file per family, each class one paper; all are called `layer(graph, x)`."""

from torch import nn

from edgewise.layers.attention import KeyValueCache, MultiHeadAttention
from edgewise.layers.fastgcn import FastGCN
from edgewise.layers.gat import GAT, GATv2
from edgewise.layers.gcn import GCN, renormalised
from edgewise.layers.gin import GIN
from edgewise.layers.linear import Linear, SparseFeatures, dropout
from edgewise.layers.mlp import ACTIVATIONS, MLP, probabilities
from edgewise.layers.positions import Learned, Rotary, Sinusoidal, positions
from edgewise.layers.readout import READOUTS, AttentionReadout, MaxReadout, MeanReadout, SumReadout
from edgewise.layers.sage import SAGELSTM, SAGEMean, SAGEPool, at_receivers
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
    "fast-gcn": FastGCN,
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
}

__all__ = [
    "ACTIVATIONS",
    "GAT",
    "GCN",
    "GIN",
    "LAYERS",
    "MLP",
    "NORMS",
    "READOUTS",
    "SAGELSTM",
    "AttentionReadout",
    "BatchNorm",
    "FastGCN",
    "FeedForward",
    "GATv2",
    "GatedFeedForward",
    "KeyValueCache",
    "Learned",
    "Linear",
    "MaxReadout",
    "MeanReadout",
    "MultiHeadAttention",
    "PostNormBlock",
    "PreNormBlock",
    "Rotary",
    "SAGEMean",
    "SAGEPool",
    "Sinusoidal",
    "SparseFeatures",
    "SumReadout",
    "at_receivers",
    "chosen",
    "dropout",
    "positions",
    "probabilities",
    "renormalised",
]
