"""Floor 3: layers, one file per family, each class one paper; all are called `layer(graph, x)`."""

from torch import nn

from edgewise.layers.attention import KeyValueCache, MultiHeadAttention
from edgewise.layers.edge_conv import DynamicEdgeConv, EdgeConv
from edgewise.layers.encodings import (
    CliqueEncoding,
    EigenspaceEncoding,
    LaplacianEncoding,
    RandomWalkEncoding,
    SignInvariantEncoding,
)
from edgewise.layers.gat import GAT, GATv2
from edgewise.layers.gated_gcn import GatedGCN
from edgewise.layers.gcn import GCN, renormalised
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
from edgewise.layers.linear import Linear, SparseFeatures, dropout
from edgewise.layers.mlp import ACTIVATIONS, MLP, probabilities
from edgewise.layers.monet import DegreeCoordinates, MoNet
from edgewise.layers.positions import Learned, Rotary, Sinusoidal, positions
from edgewise.layers.readout import READOUTS, AttentionReadout, MaxReadout, MeanReadout, SumReadout
from edgewise.layers.sage import SAGELSTM, SAGEMean, SAGEPool
from edgewise.layers.smoothing import JumpingKnowledge, PairNorm, VirtualNode, dirichlet_energy, drop_edges
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
}

__all__ = [
    "ACTIVATIONS",
    "GAT",
    "GCN",
    "GIN",
    "GPS",
    "LAYERS",
    "MLP",
    "NORMS",
    "READOUTS",
    "SAGELSTM",
    "AttentionReadout",
    "BatchNorm",
    "CentralityEncoding",
    "CliqueEncoding",
    "DegreeCoordinates",
    "DynamicEdgeConv",
    "EdgeConv",
    "EdgeUpdate",
    "EigenspaceEncoding",
    "FeedForward",
    "GATv2",
    "GatedFeedForward",
    "GatedGCN",
    "GraphAttention",
    "GraphNetwork",
    "GraphormerAttention",
    "HadamardAttention",
    "JumpingKnowledge",
    "KernelAttention",
    "KeyValueCache",
    "LaplacianEncoding",
    "Learned",
    "Linear",
    "MaxReadout",
    "MeanReadout",
    "MoNet",
    "MultiHeadAttention",
    "NodeUpdate",
    "PairNorm",
    "PostNormBlock",
    "PreNormBlock",
    "RandomWalkEncoding",
    "Rotary",
    "SAGEMean",
    "SAGEPool",
    "SignInvariantEncoding",
    "Sinusoidal",
    "SparseFeatures",
    "SumReadout",
    "VirtualNode",
    "WholeUpdate",
    "chosen",
    "dirichlet_energy",
    "drop_edges",
    "dropout",
    "positions",
    "probabilities",
    "renormalised",
]
