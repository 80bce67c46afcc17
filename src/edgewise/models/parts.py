"""What the settings of several models choose from: norms, activations, readouts, feed-forward networks and blocks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import layers
from edgewise.configuration import OneOf
from edgewise.graphs import Graph
from edgewise.layers.plain.linear import check_one_kind

Activation = Annotated[str, OneOf(layers.ACTIVATIONS)]
Norm = Annotated[str, OneOf(layers.NORMS)]
Readout = Annotated[str, OneOf(("none", *layers.READOUTS))]


@dataclass(frozen=True)
class PreNorm:
    """A block that normalises what each stage reads; after the last block, the result is normalised too.

    Args:
        norm: The normalisation.
        bias: Whether the linear maps of the block have one.
    """

    norm: Norm = "layer"
    bias: bool = True

    encoder: ClassVar[type[nn.Module]] = layers.PreNormBlock
    decoder: ClassVar[type[nn.Module]] = layers.PreNormDecoderBlock

    @property
    def last(self) -> str:
        """The normalisation after the last block."""
        return self.norm


@dataclass(frozen=True)
class PostNorm(PreNorm):
    """A block that normalises what each stage leaves."""

    encoder: ClassVar[type[nn.Module]] = layers.PostNormBlock
    decoder: ClassVar[type[nn.Module]] = layers.PostNormDecoderBlock

    @property
    def last(self) -> str:
        return "none"


@dataclass(frozen=True)
class OneResidual(PreNorm):
    """A block with one residual, around the attention, and one norm, after it."""

    encoder: ClassVar[type[nn.Module]] = layers.OneResidualBlock

    @property
    def last(self) -> str:
        return "none"


@dataclass(frozen=True)
class Sandwich(PreNorm):
    """A block that normalises what each stage reads and what it adds, as in Gemma 2."""

    encoder: ClassVar[type[nn.Module]] = layers.SandwichBlock


DECODER_BLOCKS: dict[str, type[PreNorm]] = {"pre-norm": PreNorm, "post-norm": PostNorm}
BLOCKS = DECODER_BLOCKS | {"one-residual": OneResidual, "sandwich": Sandwich}


def _feed_forward(activation: str) -> Callable[..., nn.Module]:
    def network(width: int, bias: bool, /, *, hidden: int | None = None) -> nn.Module:
        """A feed-forward network.

        Args:
            hidden: Its hidden width; None: 4 * width.
        """
        if activation in GATES:
            return layers.GatedFeedForward(width, hidden or 4 * width, bias, GATES[activation])
        return layers.FeedForward(width, hidden or 4 * width, activation, bias)

    return network


GATES = {"swiglu": "silu", "geglu": "gelu-tanh"}  # the gated networks, and the activation of their gates
# By the activation, or as a gated network.
FEED_FORWARDS: dict[str, Callable[..., Any]] = {name: _feed_forward(name) for name in (*layers.ACTIVATIONS, *GATES)}


def draw_weights(model: nn.Module, draw: Callable[[Tensor], object], *kinds: type[nn.Module]) -> None:
    """Draw the weights of a model's linear maps, and of these kinds of modules; biases become 0."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, *kinds)):
            draw(cast(Tensor, module.weight))
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def features_of_edges(graph: Any, e: Tensor | None, edges: int, x: Tensor | layers.SparseFeatures) -> Tensor | None:
    """Features of edges as numbers, None for the graph's own: kinds of edges, [E] int64, become one-hot, [E, edges]."""
    check_one_kind(x)
    e = graph.edge_attr if e is None and edges and isinstance(graph, Graph) else e
    kinds = edges and isinstance(e, Tensor) and e.ndim == 1 and e.dtype == torch.int64
    return functional.one_hot(e, edges).to(x.dtype) if kinds and e is not None else e
