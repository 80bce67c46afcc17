"""What some models can do beside `model(graph, x)`: a task checks for it by these protocols, whatever the model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from edgewise.errors import ConfigError, a_kind
from edgewise.graphs import Graph
from edgewise.models.signature import Signature


@runtime_checkable
class LanguageModel(Protocol):
    """A model that can generate: it continues from the caches that it returned."""

    signature: Signature
    training: bool

    def __call__(self, graph: Graph, x: Tensor, caches: Sequence[Any] | None = None) -> Tensor: ...

    def caches(self, graph: Graph) -> Sequence[Any]: ...

    def modules(self) -> Iterator[nn.Module]: ...

    def train(self, mode: bool = True) -> Any: ...

    def eval(self) -> Any: ...


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
    """Within it a module is in evaluation mode; afterwards each of its parts is in the mode that it was in.

    >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())  # a norm that is frozen
    >>> with evaluating(model):
    ...     print(model.training)
    False
    >>> [part.training for part in model]
    [True, False]
    """
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
            part.training = training
