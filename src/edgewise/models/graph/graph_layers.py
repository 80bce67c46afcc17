"""The layers of the graph network: how each is made at its place, and its options."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, cast

from torch import nn

from edgewise import layers
from edgewise.configuration import Count, Natural, OneOf, Portion, Positive
from edgewise.errors import ConfigError


class Site(NamedTuple):
    """What a layer is built from, whichever its kind: widths, whether it is the output layer of a task on nodes,
    whether another layer could read what it makes of the edges, and its number from 0."""

    inputs: int
    outputs: int
    hidden: int
    activation: str
    edges: int = 0
    last: bool = False
    kinds: int = 0
    hands_on: bool = False
    number: int = 0

    def mlp(self, inputs: int) -> layers.MLP:
        """The network of a layer that has one."""
        return layers.MLP([inputs, self.hidden, self.outputs], self.activation)


def _attention(layer: type[layers.GAT] | type[layers.GATv2]) -> Callable[..., nn.Module]:
    def build(at: Site, /, *, heads: Count = 1, output_heads: Count = 1, attention_dropout: float = 0.0) -> nn.Module:
        """Attention over the edges.

        Args:
            heads: Attention heads of the hidden layers, concatenated.
            output_heads: Attention heads of the output layer, averaged.
            attention_dropout: Probability for attention weights.
        """
        if at.last:
            return layer(at.inputs, at.outputs, output_heads, False, attention_dropout, at.edges)
        if heads < 1 or at.outputs % heads:
            raise ConfigError(f"{heads} heads do not divide a width of {at.outputs}")
        return layer(at.inputs, at.outputs // heads, heads, dropout=attention_dropout, edges=at.edges)

    return build


def _gated_gcn(at: Site, /, *, stream: bool = False) -> nn.Module:
    """Gated convolution.

    Args:
        stream: Whether each layer hands new features of the edges on to the next one.
    """
    make = layers.EdgeStream if stream and at.hands_on else layers.GatedGCN
    return make(at.inputs, at.outputs, at.edges)


def _sage_union(at: Site, /, *, reduce: Annotated[str, OneOf(("mean", "max"))] = "mean") -> nn.Module:
    """GraphSAGE with a node among its neighbours, (5.8).

    Args:
        reduce: What is made of them, "mean" or "max".
    """
    return layers.SAGEUnion(at.inputs, at.outputs, cast(Any, reduce))


def _rgcn(at: Site, /, *, bases: int = 0) -> nn.Module:
    """Relational convolution over edges of several kinds.

    Args:
        bases: Matrices whose mixtures are those of the relations, at most as many as there are relations; 0: each
            relation has one of its own.
    """
    relations = at.edges or 1
    return layers.RGCN(at.inputs, at.outputs, relations, min(bases, relations))


def _rgat(
    at: Site, /, *, heads: Count = 1, output_heads: Count = 1, bases: int = 0, attention_dropout: float = 0.0
) -> nn.Module:
    """Attention over edges of several kinds.

    Args:
        heads: Attention heads of the hidden layers, concatenated.
        output_heads: Attention heads of the output layer, concatenated.
        bases: Matrices whose mixtures are those of the relations, at most as many; 0: each has one of its own.
        attention_dropout: Probability for attention weights.
    """
    heads, relations = output_heads if at.last else heads, at.edges or 1
    if heads < 1 or at.outputs % heads:
        raise ConfigError(f"{heads} heads do not divide a width of {at.outputs}")
    return layers.RGAT(at.inputs, at.outputs // heads, relations, heads, min(bases, relations), attention_dropout)


def _hgt(at: Site, /, *, heads: Count = 1, output_heads: Count = 1, attention_dropout: float = 0.0) -> nn.Module:
    """A heterogeneous graph transformer's layer.

    Args:
        heads: Attention heads of the hidden layers.
        output_heads: Attention heads of the output layer.
        attention_dropout: Probability for attention weights.
    """
    heads = output_heads if at.last else heads
    return layers.HGT(at.inputs, at.outputs, at.edges or 1, at.kinds or 1, heads, attention_dropout)


def _gcnii(at: Site, /, *, alpha: float = 0.1, decay: float = 0.5) -> nn.Module:
    """Convolution with an initial residual, behind a plain one.

    Args:
        alpha: The share of the first hidden layer's result in what each layer reads.
        decay: λ: the weights of layer l have a share of log(λ / l + 1), at most 1.
    """
    if at.number == 0 or at.last:
        return layers.GCN(at.inputs, at.outputs)
    if at.inputs != at.outputs:
        raise ConfigError("the layer 'gcnii' keeps its width, which connection=concatenate does not: residual-jumping")
    if decay < 0:
        raise ConfigError(f"decay={decay} must be at least 0")
    return layers.GCNII(at.outputs, alpha, min(1.0, math.log(decay / at.number + 1)))


def _chebnet(at: Site, /, *, order: Count = 3) -> nn.Module:
    """Chebyshev polynomials of the Laplacian.

    Args:
        order: How many polynomials: a layer reads nodes at most one step less than that away.
    """
    return layers.ChebNet(at.inputs, at.outputs, order)


def _sgc(at: Site, /, *, steps: Natural = 2) -> nn.Module:
    """Simple graph convolution, the paper's where it is the only layer (depth 1 on nodes).

    Args:
        steps: Steps along the edges in each layer.
    """
    return layers.SGC(at.inputs, at.outputs, steps)


def _appnp(at: Site, /, *, steps: Natural = 10, alpha: Portion = 0.1) -> nn.Module:
    """Personalised propagation behind a perceptron: the layers before the last one read each node alone.

    Args:
        steps: Steps along the edges in the last layer.
        alpha: The probability of a return to the node itself in each step.
    """
    return layers.APPNP(at.inputs, at.outputs, 0 if at.hands_on else steps, alpha)


def _pna(at: Site, /, *, log_degree: Positive = 1.0) -> nn.Module:
    """Several aggregators at several scales.

    Args:
        log_degree: The mean of log(degree + 1), by which the scales are divided.
    """
    return layers.PNA(at.inputs, at.outputs, at.hidden, at.edges, log_degree)


def _monet(at: Site, /, *, kernels: Count = 3) -> nn.Module:
    """Mixture model convolution over the degrees of both ends.

    Args:
        kernels: Number of Gaussians.
    """
    return layers.MoNet(at.inputs, at.outputs, kernels, coordinates=layers.DegreeCoordinates(2))


def _dynamic_edge_conv(at: Site, /, *, neighbors: Count = 10) -> nn.Module:
    """Edge convolution over the nearest nodes in feature space.

    Args:
        neighbors: How many nodes a node attends to, itself included.
    """
    return layers.DynamicEdgeConv(at.mlp(2 * at.inputs), neighbors)


GRAPH_LAYERS: dict[str, Callable[..., nn.Module]] = {
    "gcn": lambda at, /: layers.GCN(at.inputs, at.outputs),
    "sage-mean": lambda at, /: layers.SAGEMean(at.inputs, at.outputs),
    "sage-pool": lambda at, /: layers.SAGEPool(at.inputs, at.outputs, at.hidden),
    "sage-lstm": lambda at, /: layers.SAGELSTM(at.inputs, at.outputs, at.hidden),
    "sage-union": _sage_union,
    "gat": _attention(layers.GAT),
    "gatv2": _attention(layers.GATv2),
    "gin": lambda at, /: layers.GIN(at.mlp(at.inputs)),
    "gine": lambda at, /: layers.GINE(at.mlp(at.inputs), at.edges),
    "gated-gcn": _gated_gcn,
    "rgcn": _rgcn,
    "rgat": _rgat,
    "hgt": _hgt,
    "monet": _monet,
    "edge-conv": lambda at, /: layers.EdgeConv(at.mlp(2 * at.inputs)),
    "dynamic-edge-conv": _dynamic_edge_conv,
    "fast-gcn": lambda at, /: layers.FastGCN(at.inputs, at.outputs),
    "acm": lambda at, /: layers.ACM(at.inputs, at.outputs),
    "gcnii": _gcnii,
    "chebnet": _chebnet,
    "sgc": _sgc,
    "appnp": _appnp,
    "pna": _pna,
}
RELATIONAL = ("rgcn", "rgat", "hgt")  # read kinds of edges as numbers
# Read features of edges, each with a map of its own.
EDGE_LAYERS = ("gat", "gatv2", "gine", "gated-gcn", "pna", *RELATIONAL)
# Have a place for weights of edges.
WEIGHTED_LAYERS = ("gcn", "sage-mean", "sage-union", "gin", "gcnii", "fast-gcn", "acm", "chebnet", "sgc", "appnp")
