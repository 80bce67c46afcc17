"""What a task needs of a model, and what some models can do beside `model(graph, x)`, whatever their kind."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from edgewise.configuration import Count, Natural, require
from edgewise.errors import ConfigError, a_kind
from edgewise.graphs import Graph
from edgewise.layers.plain.linear import SparseFeatures


@dataclass(frozen=True)
class Signature:
    """The shapes that a model has to fit: what all kinds of input have in common.

    Args:
        inputs: Feature width C of every node, or the vocabulary's size where the inputs are tokens.
        outputs: Width of every output: classes, vocabulary, or regression targets.
        length: The largest number of positions of a graph; None where positions mean nothing.
        whole_graph: One output per graph (a readout) rather than one per node.
        classes: Whether the outputs are scores of classes, of which one is right; else quantities or embeddings.

    Errors      a width or length below one is a `ConfigError`.
    """

    inputs: int
    outputs: int
    length: int | None = None
    whole_graph: bool = False
    classes: bool = field(default=True, kw_only=True, repr=False, compare=False)

    kind: ClassVar[str] = ""
    """The inputs in words, for messages."""

    def __post_init__(self) -> None:
        require(self, Count, inputs=self.inputs, outputs=self.outputs)
        if self.length is not None:
            require(self, Count, length=self.length)
        widths = {name: getattr(self, name, 0) for name in ("edges", "whole", "kinds")}
        require(self, Natural, **widths)


@dataclass(frozen=True)
class Features(Signature):
    """Nodes with features [*, N, C].

    Args:
        edges: Width of the features of every edge; the model is then called model(graph, x, e). 0: there are none.
        whole: Width of the features of every graph as a whole; the model is then called model(graph, x, e, u), with e
            None where edges have no features. 0: there are none.
        kinds: Number of types of nodes: the last inputs are a node's type, one-hot. 0: all are of one.
        weighted: Whether the one feature of an edge is its weight, by which its sender counts.

    Errors      also a negative width.
    """

    edges: int = 0
    whole: int = 0
    kinds: int = field(default=0, repr=False)
    weighted: bool = field(default=False, kw_only=True, repr=False)

    kind = "features of nodes"

    def types(self, x: Tensor | SparseFeatures) -> Tensor | None:
        """The type of each node [N] int64, as its features [N, inputs] have it; None where all are of one."""
        if not self.kinds:
            return None
        x = x if isinstance(x, Tensor) else x.to_dense()
        return x[..., -self.kinds :].argmax(-1)


@dataclass(frozen=True)
class MovingParticles(Features):
    """Features that begin with a position and a velocity; the outputs are positions.

    Args:
        space: Dimensions of space D: the features are a position, a velocity and `known` numbers more.
        acceleration: Typical change of a velocity from one frame to the next: the scale of a simulator's outputs.

    Errors      also inputs or outputs that do not fit the space.
    """

    space: int = field(kw_only=True)
    acceleration: float = 1.0
    classes: bool = field(default=False, kw_only=True, repr=False, compare=False)

    kind = "particles with a position and a velocity"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space < 1 or self.known < 0 or self.outputs != self.space:
            widths = f"inputs={self.inputs} and outputs={self.outputs}"
            raise ConfigError(
                f"particles in space={self.space} have at least 2 space inputs, space outputs: not {widths}"
            )

    @property
    def known(self) -> int:
        """How many numbers are known of a particle beside its position and its velocity."""
        return self.inputs - 2 * self.space


@dataclass(frozen=True)
class Atoms(Features):
    """Features that are a position, the edges of the periodic cell and an atomic number, for an energy and a force.

    Args:
        space: Dimensions of space D: 2 D + 1 inputs, 1 + D outputs.
        radius: Distance within which atoms are neighbours.
        edges: D where each edge says how far its sender's image is from the sender itself: cells may then have any
            shape and size, and the features, a position and an atomic number, are D + 1.

    Errors      also inputs or outputs that do not fit the space; a radius that is not above 0 and finite.
    """

    space: int = field(kw_only=True)
    radius: float = field(kw_only=True)
    classes: bool = field(default=False, kw_only=True, repr=False, compare=False)

    kind = "atoms"

    def __post_init__(self) -> None:
        super().__post_init__()
        least = self.space + 1
        widths = {0: (least + self.space, least), self.space: (least, least)}  # by those of the edges
        if self.space < 1 or widths.get(self.edges) != (self.inputs, self.outputs):
            told = f"inputs={self.inputs} and outputs={self.outputs}, edges={self.edges}"
            right = "2 space + 1 inputs, or space + 1 with edges=space, and 1 + space outputs"
            raise ConfigError(f"atoms in space={self.space} have {right}: not {told}")
        if not 0 < self.radius < inf:
            raise ConfigError(f"a model's radius must be above 0 and finite, not {self.radius}")


@dataclass(frozen=True)
class Tokens(Signature):
    """Integers [*, N] below `inputs`, each embedded.

    Args:
        places: Whether the model is called model(graph, x, rows) and has outputs for those rows of x alone, [*, R].
    """

    places: bool = field(default=False, kw_only=True, repr=False, compare=False)

    kind = "tokens"


@dataclass(frozen=True)
class TokenPairs(Signature):
    """The tokens of sources and, after them, of targets, on an `EncoderDecoderGraph`; the outputs are the targets'."""

    kind = "pairs of a source and a target"


S = TypeVar("S", bound=Signature)
OUTPUTS = {True: "one output per graph", False: "one output per node"}


def accepted(
    model: nn.Module,
    signature: Signature,
    *kinds: type[S],
    whole_graph: bool | None = None,
    length: bool = False,
    knows: tuple[str, ...] = (),
) -> S:
    """The signature, if the model fits it; else a `ConfigError` that says what the model reads or returns instead.

    Symbols     kinds = the kinds of input that the model reads; whole_graph = whether it has one output per graph or
                (None) either; length = whether it needs the largest number of positions; knows = the features that it
                reads beside the nodes': "edges", "whole"; "weights" of edges; "places" = that it computes the
                outputs of some nodes alone

    Example
        >>> accepted(nn.Identity(), Features(3, 2), Tokens)
        Traceback (most recent call last):
        edgewise.errors.ConfigError: Identity reads tokens, and this task has features of nodes: choose another model
    """
    if not isinstance(signature, kinds):
        misfit = f"reads {' or '.join(kind.kind for kind in kinds)}, and this task has {signature.kind}"
    elif whole_graph not in (None, signature.whole_graph):
        misfit = f"has {OUTPUTS[not signature.whole_graph]}, and this task wants {OUTPUTS[signature.whole_graph]}"
    elif getattr(signature, "weighted", False) and "weights" not in knows:
        misfit = "has no place for weights of edges, and this task has some"
    elif getattr(signature, "places", False) and "places" not in knows:
        misfit = "has outputs for all tokens, and this task asks for those of some"
    elif unread := [name for name in ("edges", "whole") if getattr(signature, name, 0) and name not in knows]:
        misfit = f"reads no features of {'edges' if 'edges' in unread else 'whole graphs'}, and this task has some"
    elif length and signature.length is None:
        misfit = "needs graphs of a known length, and this task's have none"
    else:
        return signature
    raise ConfigError(f"{type(model).__name__} {misfit}: choose another model")


def check_readout(readout: str, signature: Signature) -> None:
    """A readout exactly where the task wants one output per graph, else a `ConfigError`."""
    if signature.whole_graph and readout == "none":
        raise ConfigError("the task wants one output per graph: choose a readout, for example readout='mean'")
    if readout != "none" and not signature.whole_graph:
        raise ConfigError(f"the task wants one output per node: readout={readout!r} must be 'none'")


class Penalised(NamedTuple):
    """What a model returns in training mode if it has a loss of its own; in evaluation mode it returns the outputs.

    Args:
        outputs: What the task's loss reads.
        penalty: Added to the task's loss, a mean over the batch's examples as that is.
    """

    outputs: Tensor
    penalty: Tensor


class OfMembers(NamedTuple):
    """What a model of several members returns in training mode; in evaluation mode it returns one output.

    Args:
        members: What each member returns. The loss is the mean of theirs.
    """

    members: tuple[Tensor | Penalised, ...]


@runtime_checkable
class Decoding(Protocol):
    """A module that decodes from caches."""

    training: bool

    def caches(self, graph: Graph) -> Sequence[Any]: ...

    def modules(self) -> Iterator[nn.Module]: ...

    def train(self, mode: bool = True) -> Any: ...

    def eval(self) -> Any: ...


@runtime_checkable
class LanguageModel(Decoding, Protocol):
    """A model that can generate: it continues from the caches that it returned."""

    signature: Signature

    def __call__(self, graph: Graph, x: Tensor, *, caches: Sequence[Any] | None = None) -> Tensor: ...


@runtime_checkable
class Clustering(Protocol):
    """A model that assigns nodes to clusters."""

    def clusters(self, graph: Graph, x: Tensor) -> Tensor:
        """To how large a part each node belongs to each cluster: [*, N, K]."""


@runtime_checkable
class Attribution(Protocol):
    """A model that says which nodes an output of a graph is due to."""

    def relevance(self, graph: Graph, x: Tensor, output: int) -> Tensor:
        """How much each node contributes to an output of its own graph: [N]."""


@runtime_checkable
class Latent(Protocol):
    """A model with codes of images: a normal distribution for each, and an image for each code."""

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ² [*, latent] of images [*, pixels]."""

    def decode(self, z: Tensor) -> Tensor:
        """The logits [*, pixels] of codes [*, latent]."""


def latent_model(model: nn.Module) -> Latent:
    """The model, if it has codes; any other is a ConfigError."""
    if not isinstance(model, Latent):
        raise ConfigError(f"{a_kind(model)} has no codes: choose model=variational-autoencoder")
    return model


def language_model(model: nn.Module) -> LanguageModel:
    """The model, if it can generate; any other is a ConfigError."""
    if not isinstance(model, LanguageModel):
        raise ConfigError(f"{a_kind(model)} cannot generate: it reads a text as a whole, and has no cache")
    return model


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Within it a module is in evaluation mode; afterwards each of its parts is in the mode that it was in."""
    with modes_kept(model):
        model.eval()
        yield


@contextmanager
def modes_kept(model: Any) -> Iterator[None]:
    """Afterwards each part of a module is in the mode that it was in before, training or evaluation."""
    modes = [(part, part.training) for part in model.modules()]
    try:
        yield
    finally:
        model.train(modes[0][1])  # which a part may have overridden, to do more
        for part, training in modes:
            if part.training != training:  # a module's attributes are slow to set
                part.training = training
