"""Recurrent networks on PyTorch's own cells: one reads a sequence, the other reads a source and writes a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from edgewise import layers
from edgewise.configuration import Count, OneOf, Settings, Share, chosen
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import EncoderDecoderGraph, Graph
from edgewise.graphs.checks import shown
from edgewise.graphs.forms import edges_of
from edgewise.graphs.rule import Causal
from edgewise.kernels import dropout
from edgewise.layers import Linear
from edgewise.layers.plain.linear import Embedding
from edgewise.layers.plain.sides import check_nodes
from edgewise.models.signature import Features, Signature, TokenPairs, Tokens, accepted
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


@dataclass(frozen=True)
class RecurrentEncoderDecoderSettings(Settings):
    """What a recurrent encoder-decoder can be.

    Args:
        width: Channels of the embedding and of each state; the encoder has one state for each direction.
        hidden: Channels inside the attention; None: the width.
        dropout: Probability for embeddings and for what the output reads.
        attention: Whether each target token attends to the source; otherwise all read its last states.
    """

    width: Count = 256
    hidden: Count | None = None
    dropout: Share = 0.1
    attention: bool = True


class Written:
    """The cache of decoding: the state after the last target token of each sequence; None before the first."""

    def __init__(self) -> None:
        self.state: Tensor | None = None

    def select(self, members: Tensor) -> None:
        """Continue with these sequences, int64 [n]."""
        self.state = None if self.state is None else self.state.index_select(0, members)


class LastStates(nn.Module):
    """What a decoder without attention reads of its source: the encoder's last state in each direction, at every step.

    Equation    c = [h→_S ‖ h←_1] for h_j = [h→_j ‖ h←_j] of a source of S tokens
    Shapes      as `BahdanauAttention`, with receivers x that are not read
    Reference   Cho et al., 2014; Sutskever, Vinyals & Le, 2014
    """

    def keys_and_values(self, senders: Tensor) -> layers.KeysAndValues:
        """The states themselves."""
        return senders.unsqueeze(-2), senders.unsqueeze(-2)

    def read(self, graph: Graph, x: Tensor, memory: layers.KeysAndValues) -> Tensor:
        """c of each receiver."""
        h, width = memory[1].squeeze(-2), memory[1].shape[-1] // 2
        first, last = graph.senders[graph.offsets[:-1]], graph.senders[graph.offsets[1:] - 1]
        return torch.cat([h[last, :width], h[first, width:]], -1)


class RecurrentEncoderDecoder(nn.Module):
    """A GRU reads the source in both directions; a GRU writes the target, and at each token attends to the source.

    Equation    h_j = [GRU→(E x_1, ..., E x_j) ‖ GRU←(E x_S, ..., E x_j)]
                s_0 = tanh(W_0 h←_1 + b_0),  c_i = Σ_j softmax_j(vᵀ tanh(W s_{i-1} + U h_j)) h_j
                s_i = GRU([E y_{i-1} ‖ c_i], s_{i-1}),  output_i = tanh([s_i ‖ c_i ‖ E y_{i-1}] W_t + b_t) W_o + b_o
                without attention c_i = [h→_S ‖ h←_1]
    Symbols     embed = E, of one vocabulary for both sides; encoder = GRU→ and GRU←; start = W_0, b_0; attention = v,
                W, U of `BahdanauAttention`; decoder = GRU; mix = W_t, b_t; head = W_o, b_o
    Shapes      x = [source ‖ target] [*, S + T] int64 on an `EncoderDecoderGraph` -> [*, T, outputs]
    Edge cases  pairs of any lengths are one disjoint graph; which tokens of its source the encoder's graph joins makes
                no difference, since the recurrence reads all of them
    Cost        time O((S + T) width² + T S width) of each pair, in S + T steps that cannot run side by side
    Differs     the paper's output layer is a maxout of the three; here tanh. The decoder's GRU is PyTorch's: its reset
                gate acts after the recurrent map
    Reference   Bahdanau, Cho & Bengio, "Neural machine translation by jointly learning to align and translate", 2015

    Example
        >>> model = RecurrentEncoderDecoder(RecurrentEncoderDecoderSettings(8), TokenPairs(10, 10))
        >>> pairs = EncoderDecoderGraph.of([3, 2], [2, 4])
        >>> model(pairs, torch.zeros(5 + 6, dtype=torch.int64)).shape  # an output for each position of the targets
        torch.Size([6, 10])
    """

    def __init__(self, settings: RecurrentEncoderDecoderSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, TokenPairs, whole_graph=False)
        width = settings.width
        self.embed = Embedding(signature.inputs, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.start = nn.Linear(width, width)
        attends = settings.attention
        bahdanau = layers.BahdanauAttention(width, 2 * width, settings.hidden or width) if attends else None
        self.attention = bahdanau or LastStates()
        self.decoder = nn.GRUCell(3 * width, width)
        self.mix = nn.Linear(4 * width, width)
        self.head = nn.Linear(width, signature.outputs)

    def forward(self, graph: EncoderDecoderGraph, x: Tensor) -> Tensor:
        sources, targets = graph.encoder.num_receivers, graph.decoder.num_receivers
        if not isinstance(x, Tensor) or x.shape[-1:] != (sources + targets,):
            raise ShapeError(f"x is {shown(x)}: it must hold {sources} source and then {targets} target tokens")
        if x.ndim > 1:  # the same pair of lengths for each: one after the other, as one disjoint graph
            rows = x.reshape(-1, x.shape[-1])
            if not len(rows):
                return self.head.weight.new_zeros(*x.shape[:-1], targets, self.head.out_features)
            many = EncoderDecoderGraph.of([sources] * len(rows), [targets] * len(rows))
            flat = torch.cat([part.flatten() for part in rows.split([sources, targets], -1)])
            if len(graph.encoder.sizes) > 1:
                raise ShapeError("a leading batch of several pairs each: lay them out as one graph")
            return self(many.to(x.device), flat).view(*x.shape[:-1], targets, -1)
        source, target = x.split([sources, targets])
        (memory,) = self.keys_and_values(self.encode(graph.encoder, source))
        return self._written(graph.decoder, target, graph.cross, memory)

    def encode(self, graph: Graph, source: Tensor) -> Tensor:
        """h of source tokens [S]: [S, 2 width]."""
        lengths = graph.sizes.cpu()
        if not bool((lengths > 0).all()):
            raise ShapeError(f"source {int(lengths.argmin())} is empty: the target begins with the state of its source")
        embedded = dropout(self.embed(source), self.settings.dropout, self.training)
        padded = pad_sequence(list(embedded.split(lengths.tolist())), batch_first=True)
        read, _ = self.encoder(pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False))
        h, _ = pad_packed_sequence(read, batch_first=True)
        inside = torch.arange(h.shape[1]) < lengths[:, None]
        return h[inside.to(h.device)]

    def keys_and_values(self, encoded: Tensor) -> list[layers.KeysAndValues]:
        """U h and h of the encoder's output, computed once."""
        return [self.attention.keys_and_values(encoded)]

    def decode(
        self,
        graph: Graph,
        target: Tensor,
        cross: Graph,
        memory: Sequence[layers.KeysAndValues],
        caches: Sequence[Written] | None = None,
    ) -> Tensor:
        """Scores of the token after each target token [B, T]: [B, T, outputs]; sequence by sequence in the cross graph.

        With `caches`, `target` holds the new tokens only.
        """
        count, length = target.shape
        rows = torch.arange(count, device=target.device) * length
        h, first = receivers(cross, rows), cross.senders[cross.offsets[rows]]
        state = caches[0].state if caches else None
        state = self._first(memory[0], first) if state is None else state
        outputs, state = self._steps(h, memory[0], state, self.embed(target))
        if caches:
            caches[0].state = state
        return outputs

    def caches(self, graph: Graph) -> list[Written]:
        """The cache of decoding, still empty."""
        return [Written()]

    def _written(self, graph: Graph, target: Tensor, cross: Graph, memory: layers.KeysAndValues) -> Tensor:
        """Outputs of the flat targets of a disjoint graph: [T, outputs]."""
        sizes = graph.sizes[graph.sizes > 0]
        if not len(sizes):
            return self.head.weight.new_zeros(0, self.head.out_features)
        rows = sizes.cumsum(0) - sizes
        embedded = dropout(self.embed(target), self.settings.dropout, self.training)
        padded = pad_sequence(list(embedded.split(sizes.tolist())), batch_first=True)
        state = self._first(memory, cross.senders[cross.offsets[rows]])
        outputs, _ = self._steps(receivers(cross, rows), memory, state, padded)
        return outputs[torch.arange(padded.shape[1], device=sizes.device) < sizes[:, None]]

    def _first(self, memory: layers.KeysAndValues, first: Tensor) -> Tensor:
        """s_0 of each sequence, from the backward state at its source's first token."""
        return torch.tanh(self.start(memory[1][first, 0, self.settings.width :]))

    def _steps(
        self, graph: Graph, memory: layers.KeysAndValues, state: Tensor, embedded: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Outputs of B sequences side by side, [B, T, width] -> [B, T, outputs], and the last state [B, width]."""
        read = []
        for y in embedded.unbind(1):
            c = self.attention.read(graph, state, memory)
            state = self.decoder(torch.cat([y, c], -1), state)
            read.append(torch.cat([state, c, y], -1))
        z = torch.tanh(self.mix(torch.stack(read, 1)))
        return self.head(dropout(z, self.settings.dropout, self.training)), state


def receivers(graph: Graph, rows: Tensor) -> Graph:
    """Some receivers of a graph, in that order, with all their senders."""
    places, edges = edges_of(graph.offsets, rows)
    return Graph.from_edge_index(torch.stack([graph.senders[edges], places]), graph.num_senders, len(rows))
