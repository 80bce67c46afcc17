"""What a task asks of a model, widths and lengths only; and what a model answers that has a loss of its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from torch import Tensor

from edgewise.errors import ConfigError


@dataclass(frozen=True)
class Signature:
    """The shapes that a model has to fit.

    Args:
        inputs: Feature width C of every node, or the vocabulary's size when the inputs are tokens.
        outputs: Width of every output: classes, vocabulary, or regression targets.
        tokens: Inputs are integers [*, N] rather than features [*, N, C].
        length: The largest number of positions a graph of this task has; None where positions mean nothing.
        whole_graph: One output per graph (a readout) rather than one per node.
        space: Dimensions of space where nodes are particles: their features begin with a position and a velocity, and
            the outputs are positions. 0: features are only numbers.
        radius: Distance within which atoms listen to one another: their features are a position, the periodic cell and
            the atomic number, the outputs an energy and a force. None: the nodes are no atoms.
        paired: Inputs are the tokens of a source and, after them, of a target, on an `EncoderDecoderGraph`; the outputs
            are the target's.
        acceleration: Where nodes are particles: typical change of a velocity from one frame to the next. Tells a
            simulator how large its answers are.
        edges: Width of what is known of every edge; the model is then called model(graph, x, e). 0: nothing is.
        whole: Width of what is known of every graph as a whole; the model is then called model(graph, x, e, u), with
            e None where nothing is known of edges. 0: nothing is.

    Errors      a width or length below one is a `ConfigError`.

    Example
        >>> Signature(inputs=65, outputs=65, tokens=True, length=64).outputs
        65
    """

    inputs: int
    outputs: int
    tokens: bool = False
    length: int | None = None
    whole_graph: bool = False
    space: int = 0
    radius: float | None = None
    paired: bool = False
    acceleration: float = 1.0
    edges: int = 0
    whole: int = 0

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"a model's {name} must be at least 1, not {value}")
        for name in ("edges", "whole"):
            if getattr(self, name) < 0:
                raise ConfigError(f"a model's {name} must be at least 0, not {getattr(self, name)}")
        if self.radius is not None and not 0 < self.radius < inf:
            raise ConfigError(f"a model's radius must be above 0 and finite, not {self.radius}")


class Penalised(NamedTuple):
    """What a model returns in training mode if it has a loss of its own; in evaluation mode it returns the outputs.

    Args:
        outputs: What the task's loss reads.
        penalty: Added to the task's loss, a mean over the batch's examples as that is.
    """

    outputs: Tensor
    penalty: Tensor
