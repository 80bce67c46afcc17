"""Positions: a graph has no order of its nodes; these layers add it.

A receiver i of a graph sits at position `graph.offset + i`; in a batch of graphs every member starts at 0.
"""

import math
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Natural, Positive
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph, causal
from edgewise.graphs.checks import same_device
from edgewise.graphs.derived import cached
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Dense
from edgewise.layers.plain.sides import Rows

Positioned = Annotated[Tensor, Rows("channels")]  # features that get a vector of their width added


def batch_of(graph: Graph) -> Graph:
    """The batch of which a graph is some rows, without its edges; any other graph as it is."""
    return graph if graph._batch is None else graph._batch


@cached
def positions(graph: Graph) -> Tensor:
    """The position of every receiver, int64 [I], computed once per graph.

    Example
        >>> from edgewise.graphs import Graph, causal
        >>> positions(causal(4).rows(2, 4)).tolist()
        [2, 3]
        >>> positions(Graph.batch([causal(2), causal(3)])).tolist()
        [0, 1, 0, 1, 2]
        >>> positions(Graph.batch([causal(2), causal(3)]).rows(1, 4)).tolist()
        [1, 0, 1]
    """
    i = torch.arange(graph.num_receivers, device=graph.device) + graph.offset
    if len(graph.sizes) == 1:
        return i
    whole = batch_of(graph).sizes
    first = whole.cumsum(0) - whole
    return i - first.repeat_interleave(graph.sizes)


@cached
def sender_positions(graph: Graph) -> Tensor:
    """The position of every sender, int64 [J], computed once per graph."""
    if graph.sizes.shape[0] == 1:
        return torch.arange(graph.num_senders, device=graph.device)
    sizes = batch_of(graph).sender_sizes
    first = sizes.cumsum(0) - sizes
    return torch.arange(graph.num_senders, device=graph.device) - first.repeat_interleave(sizes)


class Sinusoidal(Layer):
    """Sinusoidal positions: adds waves of geometrically growing length to the features.

    Equation    x_p + PE_p,  PE_(p, 2c) = sin(p / 10000^(2c/d)),  PE_(p, 2c+1) = cos(p / 10000^(2c/d))
    Symbols     p = position of the receiver; channels = d; base = 10000
    Shapes      x [*, N, d] -> [*, N, d]
    Cost        O(N d); the waves are computed once per graph
    Reference   Vaswani et al., 2017, §3.5

    Example
        >>> graph, layer = causal(2), Sinusoidal(2)
        >>> layer(graph, torch.zeros(2, 2))  # sin 0, cos 0; sin 1, cos 1
        tensor([[0.0000, 1.0000],
                [0.8415, 0.5403]])
    """

    equivariant: ClassVar[bool] = False

    def __init__(self, channels: Count, base: Positive = 10000.0) -> None:
        super().__init__()
        if channels % 2:
            raise ConfigError(f"sinusoidal positions come in pairs (sin, cos): channels={channels} must be even")
        self.channels = channels
        self.base = base

    def forward(self, graph: Graph, x: Positioned) -> Tensor:
        return x + _waves(graph, self.channels, self.base).to(x.dtype)

    @staticmethod
    def example() -> Example:
        return Sinusoidal(4), causal(5), (torch.randn(5, 4),)


class Learned(Layer):
    """Learned positions: adds a trained vector per position to the features.

    Equation    x_p + W_p, or LN(x_p + W_p)
    Symbols     weight [length, channels] = W; p = position of the receiver; norm = LN, where there is one
    Shapes      x [*, N, channels] -> [*, N, channels]
    Cost        O(N channels)
    Reference   Gehring et al., 2017; Radford et al., 2019 (GPT-2); with a norm: Lewis et al., 2020 (BART)

    Example
        >>> layer = Learned(length=2, channels=1)
        >>> layer.weight.data = torch.tensor([[10.0], [20.0]])
        >>> layer(causal(2), torch.tensor([[1.0], [2.0]])).tolist()
        [[11.0], [22.0]]
    """

    equivariant: ClassVar[bool] = False

    def __init__(self, length: Count, channels: Count, norm: bool = False) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.empty(length, channels))
        self.norm = nn.LayerNorm(channels) if norm else nn.Identity()
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, graph: Graph, x: Positioned) -> Tensor:
        single = graph.sizes.shape[0] == 1 and isinstance(graph.offset, int)  # no symbol, as in an exported program
        stop = graph.offset + graph.num_receivers if single else _longest(graph)
        if stop > len(self.weight):
            raise ShapeError(f"position {stop - 1} is outside the {len(self.weight)} positions that were learned")
        # Of a single graph a slice, because it costs less than a gather in both directions.
        return self.norm(x + (self.weight[graph.offset : stop] if single else self.weight[positions(graph)]))

    @staticmethod
    def example() -> Example:
        return Learned(8, 4), causal(5), (torch.randn(5, 4),)


class Rotary(Layer):
    """Rotary positions: turns each pair of channels of a query or key by an angle that grows with its position.

    Equation    R_p x: (x_c, x_{c+d/2}) turned by the angle p θ_c,  θ_c = base^(-2c/d),  c < d/2,
                so that ⟨R_i q, R_j k⟩ depends on q, k and i - j only
    Symbols     channels = d (per head); θ_c / `stretch` in place of θ_c: positions beyond those trained on are
                interpolated among them. With `trained` positions T the fast angles stay as they are:
                θ_c (s + (1 - s) / stretch),  s = clamp((T θ_c / 2π - slow) / (fast - slow), 0, 1)
    Shapes      x [*, N, H, d] -> [*, N, H, d]
    Cost        O(N H d); the angles are computed once per graph
    Differs     pairs are (c, c + d/2), as in LLaMA; the paper's (2c, 2c+1) are the same up to the order of channels
    Reference   Su et al., "RoFormer", 2021, eq. (14)-(16); stretch: Chen et al., "Positional interpolation", 2023;
                trained: Grattafiori et al., "The Llama 3 herd of models", 2024 (`rope_type: llama3`)

    Example
        >>> x = torch.tensor([1.0, 0.0]).expand(2, 1, 2)  # two positions, one head
        >>> Rotary(2)(causal(2), x)[:, 0]  # (1, 0) turned by 0 and by 1 radian
        tensor([[1.0000, 0.0000],
                [0.5403, 0.8415]])
    """

    equivariant: ClassVar[bool] = False
    by_channel: ClassVar[bool] = False

    def __init__(
        self,
        channels: Count,
        base: Positive = 10000.0,
        stretch: Positive = 1.0,
        trained: Natural = 0,
        slow: Positive = 1.0,
        fast: Positive = 4.0,
    ) -> None:
        super().__init__()
        if channels % 2:
            raise ConfigError(f"rotary positions turn pairs of channels: channels={channels} must be even")
        if fast <= slow:
            raise ConfigError(f"fast angles turn oftener than slow ones: fast={fast} must be above slow={slow}")
        self.channels, self.base = channels, base
        self.stretched: Stretched = stretch, trained, slow, fast, self.by_channel

    def forward(self, graph: Graph, x: Dense) -> Tensor:
        if x.ndim < 3 or x.shape[-3] != graph.num_receivers or x.shape[-1] != self.channels:
            wanted = f"[*, {graph.num_receivers}, H, {self.channels}], a row for each of the graph's receivers"
            raise ShapeError(f"queries or keys to turn are {list(x.shape)}, but must be {wanted}")
        same_device("x", x, graph.device)
        return _turned(x, *_turns(graph, self.channels, self.base, self.stretched, x.dtype))

    def at(self, p: Tensor, x: Tensor) -> Tensor:
        """x turned at positions p [N]: for the senders of a cross-attention."""
        return _turned(x, *turns(p, self.channels, self.base, self.stretched, x.dtype))

    @staticmethod
    def example() -> Example:
        return Rotary(4), causal(5), (torch.randn(5, 2, 4),)


class YaRN(Rotary):
    """Rotary positions stretched by channel, between those that turn often within the positions trained on and others.

    Equation    θ_c (s + (1 - s) / stretch),  s = 1 - clamp((c - a) / (b - a), 0, 1),  a = ⌊c(fast)⌋,  b = ⌈c(slow)⌉,
                c(r) = d ln(T / 2πr) / (2 ln base), the channel that turns r times within T;
                queries and keys are multiplied by 0.1 ln(stretch) + 1
    Symbols     trained = T; otherwise as Rotary
    Shapes      x [*, N, H, d] -> [*, N, H, d]
    Reference   Peng et al., "YaRN: efficient context window extension of large language models", 2024, (15)-(22)

    Example
        >>> YaRN(2, stretch=math.e, trained=8)(causal(1), torch.tensor([[[1.0, 0.0]]]))  # 0.1 ln(e) + 1
        tensor([[[1.1000, 0.0000]]])
    """

    by_channel: ClassVar[bool] = True

    @staticmethod
    def example() -> Example:
        return YaRN(4, stretch=2.0, trained=8, fast=2.0), causal(5), (torch.randn(5, 2, 4),)


def sinusoids(p: Tensor, channels: int, base: float = 10000.0) -> Tensor:
    """PE at positions p [I], in float64: [I, d]."""
    angles = _angles(p, channels, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


Stretched = tuple[float, int, float, float, bool]  # the last: as in YaRN


def turns(p: Tensor, channels: int, base: float, stretched: Stretched, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of p θ, each [N, 1, d/2], in float64 until the last moment: p θ can be large."""
    stretch, trained, slow, fast, by_channel = stretched
    own = _angles(p.new_ones(1), channels, base)
    kept = ((trained * own / math.tau - slow) / (fast - slow)).clamp(0, 1)
    gain = 1.0
    if by_channel:
        first, last = (channels * math.log(trained / (math.tau * r)) / (2 * math.log(base)) for r in (fast, slow))
        first, last = max(math.floor(first), 0), min(math.ceil(last), channels - 1)
        kept = 1 - ((torch.arange(channels // 2, device=p.device) - first) / (last - first or 0.001)).clamp(0, 1)
        gain += 0.1 * max(math.log(stretch), 0.0)
    angles = (p.to(torch.float64)[:, None] * (own * (kept + (1 - kept) / stretch)))[:, None]
    return (gain * angles.cos()).to(dtype), (gain * angles.sin()).to(dtype)


@cached
def _waves(graph: Graph, channels: int, base: float) -> Tensor:
    return sinusoids(positions(graph), channels, base)


@cached
def _turns(graph: Graph, channels: int, base: float, stretched: Stretched, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return turns(positions(graph), channels, base, stretched, dtype)


@cached
def _longest(graph: Graph) -> int:
    """How many positions of a member its receivers are within, at most."""
    if graph._batch is not None:
        return int(positions(graph).max()) + 1 if graph.num_receivers else 0
    return int(graph.sizes.max()) if len(graph.sizes) else 0


def _angles(p: Tensor, channels: int, base: float) -> Tensor:
    c = torch.arange(0, channels, 2, device=p.device, dtype=torch.float64)
    return p.to(torch.float64)[:, None] * base ** (-c / channels)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
