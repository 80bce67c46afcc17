"""What a task asks of a model: widths and lengths only, so that any model can be built for any task."""

from __future__ import annotations

from dataclasses import dataclass

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
        acceleration: Where nodes are particles: typical change of a velocity from one frame to the next. Tells a
            simulator how large its answers are.

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
    acceleration: float = 1.0

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"a model's {name} must be at least 1, not {value}")
