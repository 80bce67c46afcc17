"""Recurrent networks: the baseline that reads a sequence one position after the other, on PyTorch's own cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor, nn

from edgewise.configuration import Count, OneOf, Settings, Share, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.graphs.rule import Causal
from edgewise.layers import Linear
from edgewise.layers.plain.linear import Embedding
from edgewise.layers.plain.sides import check_nodes
from edgewise.models.signature import Features, Signature, Tokens, accepted
from edgewise.models.text.generation import generate


@dataclass(frozen=True)
class RecurrentSettings(Settings):
    """What a recurrent network can be.

    Args:
        cell: The recurrent cell.
        width: Channels of the embedding and of the state.
        depth: Layers, each of which reads the states of the one below.
        dropout: Probability for what each layer but the last passes on.
    """

    cell: Annotated[str, OneOf(CELLS)] = "lstm"
    width: Count = 128
    depth: Count = 1
    dropout: Share = 0.0


CELLS: dict[str, Callable[..., nn.RNNBase]] = {"plain": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class State:
    """The cache of decoding: the state after the last position, however many there were; None before the first."""

    def __init__(self) -> None:
        self.value: Any = None


class Recurrent(nn.Module):
    """A recurrent network: each position reads those before it through one state of fixed size.

    Equation    plain: h_t = tanh(W x_t + U h_{t−1} + b)
                lstm:  i, f, o = σ(W_• x_t + U_• h_{t−1} + b_•),  h_t = o ⊙ tanh c_t,
                       c_t = f ⊙ c_{t−1} + i ⊙ tanh(W x_t + U h_{t−1} + b)
                gru:   r, z = σ(W_• x_t + U_• h_{t−1} + b_•),
                       h_t = (1 − z) ⊙ tanh(W x_t + b + r ⊙ (U h_{t−1} + c)) + z ⊙ h_{t−1}
                many to many: output_t = V h_t + d;  many to one: output = V h_T + d;  one to many: `generate`
    Symbols     embed gives x_t; cells = W, U, b of all layers; head = V, d
    Shapes      tokens x [*, T] int64 or features x [*, T, inputs] -> [*, T, outputs], for a task on whole graphs
                [*, 1, outputs]
    Errors      ConfigError for a sequence without positions where one output is wanted, and for a graph other than
                `causal`: the state holds the whole past, and nothing else
    Edge cases  with `caches`, x holds the new positions only
    Cost        O(T width²) time in T steps that cannot run side by side; O(T width) memory, decoding O(width)
    Reference   Elman, 1990; Hochreiter & Schmidhuber, 1997; Cho et al., 2014

    Example
        >>> import torch
        >>> from edgewise.graphs import causal
        >>> model = Recurrent(RecurrentSettings(cell="gru", width=8), Tokens(65, 65, length=4))
        >>> model(causal(4), torch.zeros(2, 4, dtype=torch.int64)).shape
        torch.Size([2, 4, 65])
    """

    def __init__(self, settings: RecurrentSettings, signature: Signature) -> None:
        super().__init__()
        width = settings.width
        cell = chosen("cell", settings.cell, CELLS)
        passed_on = settings.dropout if settings.depth > 1 else 0.0
        self.settings, self.signature = settings, accepted(self, signature, Features, Tokens)
        self.embed = (Embedding if isinstance(signature, Tokens) else Linear)(signature.inputs, width)
        self.cells = cell(width, width, settings.depth, batch_first=True, dropout=passed_on)
        self.head = nn.Linear(width, signature.outputs)

    def forward(self, graph: Graph, x: Tensor, caches: Sequence[State] | None = None) -> Tensor:
        if not isinstance(graph.rule, Causal) or graph.num_senders != graph.offset + graph.num_receivers:
            raise ConfigError(f"a recurrent network reads the whole past and nothing else: choose causal, not {graph}")
        embedded = self.embed(x)
        check_nodes(graph, embedded, name="what the network reads")
        lead, (length, width) = embedded.shape[:-2], embedded.shape[-2:]
        if length == 0:
            if self.signature.whole_graph:
                raise ConfigError("a sequence without positions has no last state to read")
            return self.head(embedded)
        state = caches[0].value if caches else None
        h, state = self.cells(embedded.reshape(-1, length, width), state)
        if caches:
            caches[0].value = state
        h = h[:, -1:] if self.signature.whole_graph else h
        return self.head(h.reshape(*lead, *h.shape[1:]))

    def caches(self, graph: Graph) -> list[State]:
        """The cache of decoding, still empty."""
        return [State()]

    generate = generate  # model.generate(tokens, steps, pattern, ...)
