"""Attention by features: a score φ(q_i)·φ(k_j) that factorises, so that it costs what a sequence costs to read once.

    y_i = φ(q_i) (Σ_j φ(k_j) v_jᵀ) / φ(q_i)·(Σ_j φ(k_j))

Linear attention takes a simple φ; the Performer draws one at random, so that φ(q)·φ(k) is exp(q·k) on average.
"""

from functools import partial
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from edgewise.configuration import Count
from edgewise.graphs import Graph, causal
from edgewise.graphs.rule import Causal
from edgewise.kernels import Kernel
from edgewise.kernels.scores import Score
from edgewise.layers.attention.attention import Cache, KeyValueCache, MultiHeadAttention, RecurrentState
from edgewise.layers.attention.positions import Rotary
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Wide
from edgewise.layers.plain.running import States, uncompiled

Vectors = Annotated[Tensor, Wide("channels")]


class LinearAttention(MultiHeadAttention):
    """Attention whose weight is a product of features; on a causal graph it is a recurrent network.

    Equation    y_i = φ(q_i)ᵀ Σ_{j ∈ N(i)} φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_{j ∈ N(i)} φ(k_j)    (5),   φ(x) = elu(x) + 1    (7)
    Symbols     features = φ; otherwise as MultiHeadAttention
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Edge cases  no senders: the output bias. The cache is a `RecurrentState` on a causal graph, else a `KeyValueCache`
    Cost        time O((I + J) width² + (I + J) H F C) and memory O((I + J) width) on complete and causal graphs, for F
                features a head; edge by edge on others: O(E H F)
    Differs     `dropout` of attention weights needs the weights: training then costs O(E H F), edge by edge
    Reference   Katharopoulos et al., "Transformers are RNNs", 2020

    Example
        >>> layer = LinearAttention(width=1, heads=1, bias=False)
        >>> layer.projection.weight.data = torch.tensor([[0.0], [1.0], [1.0]])  # φ(q) = 1, k = v = x
        >>> layer.output.weight.data = torch.ones(1, 1)
        >>> layer(causal(2), torch.tensor([[0.0], [2.0]])).tolist()  # weights elu(0) + 1 = 1 and elu(2) + 1 = 3
        [[0.0], [1.5]]
    """

    def forward(self, graph: Graph, x: Tensor, senders: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        if not isinstance(cache, RecurrentState):
            return super().forward(graph, x, senders, cache)
        q, k, v = self._self_ends(graph, x)
        if cache.sums is None:  # the prompt: all at once, in chunks
            y = self.average(graph, q, k, v)
            cache.append(k, v)
        else:
            y = cache.attend(q, k, v)
        return self.output(y.flatten(-2))

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        return Kernel(self.features)

    def features(self, x: Tensor) -> Tensor:
        """φ(x), at least 0: [..., C] -> [..., F]."""
        return functional.elu(x) + 1

    def cache(self, graph: Graph) -> Cache:
        return RecurrentState(self.features) if isinstance(graph.rule, Causal) else KeyValueCache()

    @staticmethod
    def example() -> Example:
        return LinearAttention(8, 4, key_value_heads=2, dropout=0.5), causal(5), (torch.randn(5, 8),)


def projections(
    count: int, channels: int, orthogonal: bool = True, generator: torch.Generator | None = None, draws: int = 1
) -> Tensor:
    """Random directions ω, each N(0, I) by itself; `orthogonal` ones are at right angles within blocks of `channels`.

    Shapes      -> [draws, count, channels], float64
    Cost        O(draws count channels²)
    Reference   Yu et al., "Orthogonal random features", 2016; Choromanski et al., 2021, §2.4

    Example
        >>> omega = projections(2, 2)[0]
        >>> bool((omega[0] @ omega[1]).abs() < 1e-12)
        True
    """
    blocks = -(-count // channels)
    shape = draws, blocks, channels, channels
    draw = partial(torch.randn, shape, dtype=torch.float64, generator=generator, device="cpu")
    gaussian = draw()
    if not orthogonal:
        return gaussian.flatten(1, 2)[:, :count]
    q, r = torch.linalg.qr(gaussian)
    q = q * torch.linalg.diagonal(r).sign().unsqueeze(-2)  # without this the rotations are not uniform
    return (q.mT * draw().norm(dim=-1).unsqueeze(-1)).flatten(1, 2)[:, :count]


class PositiveFeatures(Layer):
    """FAVOR+: random features that are positive, with φ(x)·φ(y) = exp(x·y) on average.

    Equation    φ(x) = exp(−‖x‖² / 2) / √m · (exp(ω_1·x), ..., exp(ω_m·x)),  ω ~ N(0, I)    (Lemma 1)
    Symbols     count = m; omega [m, C] = ω; orthogonal = ω in blocks at right angles, which lowers the variance;
                learned = ω is a weight, from such a draw on: then the products are those of another kernel
    Shapes      x [..., C] -> [..., m]
    Edge cases  no feature exceeds exp(‖ω‖² / 2) / √m: none overflows; in float32 all may underflow from ‖x‖ ≈ 20 on
    Cost        O(m C) for each x
    Differs     no maximum over the keys and no ε: they would let a token depend on later ones, or bias the mean
    Reference   Choromanski et al., "Rethinking attention with Performers", 2021

    Example
        >>> features = PositiveFeatures(channels=4, count=4000)
        >>> x = torch.tensor([0.5, 0.0, 0.0, 0.0])
        >>> bool((features(x) @ features(x) - torch.tensor(0.25).exp()).abs() < 0.1)
        True
    """

    omega: Tensor
    drawn: Tensor

    def __init__(self, channels: Count, count: Count = 64, orthogonal: bool = True, learned: bool = False) -> None:
        super().__init__()
        self.channels, self.orthogonal, self.learned = channels, orthogonal, learned
        if learned:
            self.omega = nn.Parameter(torch.empty(count, channels))
        else:
            self.register_buffer("omega", torch.empty(count, channels))
        self.register_buffer("drawn", torch.randint(2**62, ()))  # seeds this draw, and goes on by one with each
        if not self.drawn.is_meta:
            self.redraw()

    def forward(self, x: Vectors) -> Tensor:
        return (self.angles(x) - x.square().sum(-1, keepdim=True) / 2).exp() / len(self.omega) ** 0.5

    def angles(self, x: Tensor) -> Tensor:
        """ω·x, [..., m]."""
        return x @ self.omega.T.to(x.dtype)

    @torch.no_grad()
    def redraw(self) -> None:
        """Draw new ω; which ones follows from the state that is saved with the weights."""
        self.drawn += 1
        generator = torch.Generator().manual_seed(int(self.drawn))
        count, channels = self.omega.shape
        omega = projections(count, channels, self.orthogonal, generator)[0].to(self.omega)
        # A tensor of its own: the backward passes of earlier calls read theirs.
        self.omega = nn.Parameter(omega) if self.learned else omega


class HyperbolicFeatures(PositiveFeatures):
    """FAVOR+'s hyperbolic form: each direction is read both ways, which lowers the variance of `PositiveFeatures`.

    Equation    φ(x) = exp(−‖x‖² / 2) / √(2m) · (exp(ω_1·x), ..., exp(ω_m·x), exp(−ω_1·x), ..., exp(−ω_m·x)), so that
                φ(x)·φ(y) = exp(−(‖x‖² + ‖y‖²) / 2) / m · Σ_r cosh(ω_r·(x + y))
    Shapes      x [..., C] -> [..., 2 m]
    Cost        O(m C) for each x, and twice the features
    Reference   Choromanski et al., 2021, Lemma 1 ("hyp+")

    Example
        >>> features = HyperbolicFeatures(channels=4, count=4000)
        >>> x = torch.tensor([0.5, 0.0, 0.0, 0.0])
        >>> bool((features(x) @ features(x) - torch.tensor(0.25).exp()).abs() < 0.1)
        True
    """

    def forward(self, x: Vectors) -> Tensor:
        a, half = self.angles(x), x.square().sum(-1, keepdim=True) / 2
        return torch.cat([a - half, -a - half], -1).exp() / (2 * len(self.omega)) ** 0.5


class TrigonometricFeatures(PositiveFeatures):
    """Random Fourier features: φ(x)·φ(y) = exp(x·y) on average, but single products may be negative.

    Equation    φ(x) = exp(‖x‖² / 2) / √m · (sin ω_1·x, ..., sin ω_m·x, cos ω_1·x, ..., cos ω_m·x)
    Shapes      x [..., C] -> [..., 2 m]
    Edge cases  where exp(x·y) is small the variance is large, and sums of weights may vanish: hence positive ones
    Reference   Rahimi & Recht, 2007; Choromanski et al., 2021, (5)
    """

    def forward(self, x: Vectors) -> Tensor:
        a = self.angles(x)
        return torch.cat([a.sin(), a.cos()], -1) * (x.square().sum(-1, keepdim=True) / 2).exp() / len(self.omega) ** 0.5


class ReLUFeatures(PositiveFeatures):
    """Random features of a kernel of their own (arc-cosine), not of exp: cheaper.

    Equation    φ(x) = (max(0, ω_1·x) + ε, ..., max(0, ω_m·x) + ε) / √m,  ε = 10⁻³
    Shapes      x [..., C] -> [..., m]
    Reference   Choromanski et al., 2021, §4 ("Performer-ReLU")
    """

    def forward(self, x: Vectors) -> Tensor:
        return (self.angles(x).relu() + 1e-3) / len(self.omega) ** 0.5


class PerformerAttention(LinearAttention):
    """Softmax attention, estimated in linear time: random features whose products are exp(q·k / √C) on average.

    Equation    y_i = φ(q̃_i)ᵀ Σ_{j ∈ N(i)} φ(k̃_j) v_jᵀ / φ(q̃_i)ᵀ Σ_{j ∈ N(i)} φ(k̃_j),  q̃ = q / C^(1/4), k̃ = k / C^(1/4)
    Symbols     random = φ (default: PositiveFeatures(C)); otherwise as LinearAttention
    Shapes      x [*, I, width] (, senders [*, J, width]) -> [*, I, width]
    Edge cases  while training, ω is drawn anew every `REDRAW` calls, unless it is learned: a resumed run draws the
                same, and a call that `torch.utils.checkpoint` runs once more has those that it had
    Cost        as LinearAttention with F = m features; the estimate's error falls as m^(−1/2)
    Differs     the heads of a layer share ω
    Reference   Choromanski et al., "Rethinking attention with Performers", 2021

    Example
        >>> from edgewise.layers import PositiveFeatures
        >>> x, exact = 0.3 * torch.randn(50, 8), MultiHeadAttention(8, 2)
        >>> layer = PerformerAttention(8, 2, PositiveFeatures(4, count=2000))
        >>> _ = layer.load_state_dict(exact.state_dict(), strict=False)
        >>> bool((layer(causal(50), x) - exact(causal(50), x)).abs().max() < 0.05)
        True
    """

    REDRAW: ClassVar[int] = 1000
    calls: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        random: PositiveFeatures | None = None,
        *,
        key_value_heads: int | None = None,
        rotary: Rotary | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(width, heads, key_value_heads=key_value_heads, rotary=rotary, bias=bias)
        self.random = PositiveFeatures(self.channels) if random is None else random
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self._states = States[Tensor]()  # the ω that a call read

    def score(self, graph: Graph, q: Tensor, k: Tensor) -> Score:
        omega = self._counted() if self.training and not self.random.learned else None
        return super().score(graph, q, k) if omega is None else Kernel(partial(self.features, omega=omega))

    @uncompiled
    def _counted(self) -> Tensor | None:
        """Count a call; of one that runs once more, the ω that it had."""
        omega = self._states.first()
        if omega is None:
            self.calls += 1
            if int(self.calls) % self.REDRAW == 0:
                self.random.redraw()
            self._states.keep(lambda: self.random.omega)
        return omega

    def features(self, x: Tensor, omega: Tensor | None = None) -> Tensor:
        x = x * self.channels**-0.25
        return self.random(x) if omega is None else functional_call(self.random, {"omega": omega}, (x,))

    @staticmethod
    def example() -> Example:
        return PerformerAttention(8, 4, PositiveFeatures(2, 8)), causal(5), (torch.randn(5, 8),)
