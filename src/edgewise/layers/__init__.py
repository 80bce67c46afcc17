"""Floor 3: layers, one file per family, each class one paper; all are called `layer(graph, x)`."""

from torch import nn

from edgewise.layers.attention import Cache, KeyValueCache, MultiHeadAttention, RecurrentState
from edgewise.layers.gat import GAT, GATv2
from edgewise.layers.gcn import GCN, renormalised
from edgewise.layers.gin import GIN
from edgewise.layers.hopfield import (
    ClassicalHopfield,
    ContinuousHopfield,
    DenseHopfield,
    HopfieldAttention,
    HopfieldLookup,
    HopfieldPooling,
    retrieve,
)
from edgewise.layers.kernel_regression import KernelRegression
from edgewise.layers.linear import Linear, SparseFeatures, dropout
from edgewise.layers.linear_attention import (
    LinearAttention,
    PerformerAttention,
    PositiveFeatures,
    ReLUFeatures,
    TrigonometricFeatures,
)
from edgewise.layers.mlp import ACTIVATIONS, MLP, probabilities
from edgewise.layers.positions import Learned, Rotary, Sinusoidal, positions
from edgewise.layers.readout import READOUTS, AttentionReadout, MaxReadout, MeanReadout, SumReadout
from edgewise.layers.relative import ALiBiAttention, Buckets, ShawAttention, T5Attention, TransformerXLAttention
from edgewise.layers.sage import SAGELSTM, SAGEMean, SAGEPool
from edgewise.layers.sparse import FactorisedAttention
from edgewise.layers.tables import chosen
from edgewise.layers.transformer import NORMS, BatchNorm, FeedForward, GatedFeedForward, PostNormBlock, PreNormBlock

LAYERS: dict[str, type[nn.Module]] = {
    "multi-head-attention": MultiHeadAttention,
    "pre-norm-block": PreNormBlock,
    "post-norm-block": PostNormBlock,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "alibi-attention": ALiBiAttention,
    "t5-attention": T5Attention,
    "shaw-attention": ShawAttention,
    "transformer-xl-attention": TransformerXLAttention,
    "factorised-attention": FactorisedAttention,
    "linear-attention": LinearAttention,
    "performer-attention": PerformerAttention,
    "kernel-regression": KernelRegression,
    "hopfield-attention": HopfieldAttention,
    "hopfield-pooling": HopfieldPooling,
    "hopfield-lookup": HopfieldLookup,
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
    "ALiBiAttention",
    "AttentionReadout",
    "BatchNorm",
    "Buckets",
    "Cache",
    "ClassicalHopfield",
    "ContinuousHopfield",
    "DenseHopfield",
    "FactorisedAttention",
    "FeedForward",
    "GATv2",
    "GatedFeedForward",
    "HopfieldAttention",
    "HopfieldLookup",
    "HopfieldPooling",
    "KernelRegression",
    "KeyValueCache",
    "Learned",
    "Linear",
    "LinearAttention",
    "MaxReadout",
    "MeanReadout",
    "MultiHeadAttention",
    "PerformerAttention",
    "PositiveFeatures",
    "PostNormBlock",
    "PreNormBlock",
    "ReLUFeatures",
    "RecurrentState",
    "Rotary",
    "SAGEMean",
    "SAGEPool",
    "ShawAttention",
    "Sinusoidal",
    "SparseFeatures",
    "SumReadout",
    "T5Attention",
    "TransformerXLAttention",
    "TrigonometricFeatures",
    "chosen",
    "dropout",
    "positions",
    "probabilities",
    "renormalised",
    "retrieve",
]
