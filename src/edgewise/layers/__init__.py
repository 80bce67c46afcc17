"""Floor 3: layers, one file per family, each class one paper; all are called `layer(graph, x)`."""

from torch import nn

from edgewise.layers.attention import Cache, KeyValueCache, MultiHeadAttention, RecurrentState
from edgewise.layers.edge_conv import DynamicEdgeConv, EdgeConv
from edgewise.layers.egnn import EGNN, AttentionEGNN, EdgeMLP, MessageNetwork, VelocityEGNN
from edgewise.layers.encodings import (
    CliqueEncoding,
    EigenspaceEncoding,
    LaplacianEncoding,
    RandomWalkEncoding,
    SignInvariantEncoding,
)
from edgewise.layers.fastgcn import FastGCN
from edgewise.layers.gat import GAT, GATv2
from edgewise.layers.gated_gcn import GatedGCN
from edgewise.layers.gcn import GCN, renormalised
from edgewise.layers.geometry import displacements, gaussians, lengths, squared_lengths
from edgewise.layers.gin import GIN
from edgewise.layers.gps import GPS
from edgewise.layers.graph_attention import (
    CentralityEncoding,
    GraphAttention,
    GraphormerAttention,
    HadamardAttention,
    KernelAttention,
)
from edgewise.layers.graph_network import EdgeUpdate, GraphNetwork, NodeUpdate, WholeUpdate
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
from edgewise.layers.monet import DegreeCoordinates, MoNet
from edgewise.layers.positions import Learned, Rotary, Sinusoidal, positions
from edgewise.layers.radial import RadialField
from edgewise.layers.randomized import RandomizedLinear, RandomizedMLP
from edgewise.layers.readout import READOUTS, AttentionReadout, MaxReadout, MeanReadout, SumReadout
from edgewise.layers.relative import ALiBiAttention, Buckets, ShawAttention, T5Attention, TransformerXLAttention
from edgewise.layers.sage import SAGELSTM, SAGEMean, SAGEPool, at_receivers
from edgewise.layers.schnet import SchNet
from edgewise.layers.smoothing import JumpingKnowledge, PairNorm, VirtualNode, dirichlet_energy, drop_edges
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
    "fast-gcn": FastGCN,
    "sage-mean": SAGEMean,
    "sage-pool": SAGEPool,
    "sage-lstm": SAGELSTM,
    "gat": GAT,
    "gatv2": GATv2,
    "gin": GIN,
    "gated-gcn": GatedGCN,
    "monet": MoNet,
    "edge-conv": EdgeConv,
    "dynamic-edge-conv": DynamicEdgeConv,
    "graph-network": GraphNetwork,
    "laplacian-encoding": LaplacianEncoding,
    "sign-invariant-encoding": SignInvariantEncoding,
    "eigenspace-encoding": EigenspaceEncoding,
    "random-walk-encoding": RandomWalkEncoding,
    "clique-encoding": CliqueEncoding,
    "centrality-encoding": CentralityEncoding,
    "graph-attention": GraphAttention,
    "graphormer-attention": GraphormerAttention,
    "kernel-attention": KernelAttention,
    "hadamard-attention": HadamardAttention,
    "gps": GPS,
    "pair-norm": PairNorm,
    "virtual-node": VirtualNode,
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
    "GPS",
    "LAYERS",
    "MLP",
    "NORMS",
    "READOUTS",
    "SAGELSTM",
    "ALiBiAttention",
    "AttentionEGNN",
    "AttentionReadout",
    "BatchNorm",
    "Buckets",
    "Cache",
    "CentralityEncoding",
    "ClassicalHopfield",
    "CliqueEncoding",
    "ContinuousHopfield",
    "DegreeCoordinates",
    "DenseHopfield",
    "DynamicEdgeConv",
    "EdgeConv",
    "EdgeMLP",
    "EdgeUpdate",
    "EigenspaceEncoding",
    "FactorisedAttention",
    "FastGCN",
    "FeedForward",
    "GATv2",
    "GatedFeedForward",
    "GatedGCN",
    "GraphAttention",
    "GraphNetwork",
    "GraphormerAttention",
    "HadamardAttention",
    "HopfieldAttention",
    "HopfieldLookup",
    "HopfieldPooling",
    "JumpingKnowledge",
    "KernelAttention",
    "KernelRegression",
    "KeyValueCache",
    "LaplacianEncoding",
    "Learned",
    "Linear",
    "LinearAttention",
    "MaxReadout",
    "MeanReadout",
    "MessageNetwork",
    "MoNet",
    "MultiHeadAttention",
    "NodeUpdate",
    "PairNorm",
    "PerformerAttention",
    "PositiveFeatures",
    "PostNormBlock",
    "PreNormBlock",
    "RadialField",
    "RandomWalkEncoding",
    "RandomizedLinear",
    "RandomizedMLP",
    "ReLUFeatures",
    "RecurrentState",
    "Rotary",
    "SAGEMean",
    "SAGEPool",
    "SchNet",
    "ShawAttention",
    "SignInvariantEncoding",
    "Sinusoidal",
    "SparseFeatures",
    "SumReadout",
    "T5Attention",
    "TransformerXLAttention",
    "TrigonometricFeatures",
    "VelocityEGNN",
    "VirtualNode",
    "WholeUpdate",
    "at_receivers",
    "chosen",
    "dirichlet_energy",
    "displacements",
    "drop_edges",
    "dropout",
    "gaussians",
    "lengths",
    "positions",
    "probabilities",
    "renormalised",
    "retrieve",
    "squared_lengths",
]
