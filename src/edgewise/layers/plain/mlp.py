"""The multilayer perceptron: linear maps with an activation between them."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Share, chosen
from edgewise.errors import ConfigError
from edgewise.kernels import EdgeInput, EdgeNetwork, Map, maps_of
from edgewise.layers.plain.layer import Layer
from edgewise.layers.plain.linear import Linear, SparseFeatures, check_dense, dropout

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "gelu-tanh": partial(functional.gelu, approximate="tanh"),  # as GPT-2
    "silu": functional.silu,
    "elu": functional.elu,
}


class MLP(Layer):
    """Multilayer perceptron: linear maps with an activation between them; called `mlp(x)`, it needs no graph.

    Equation    z_0 = x;  z_l = σ(z_{l-1} W_l + b_l) for l = 1..L;  φ(x) = z_L W_{L+1} + b_{L+1}    (3.4), (3.6)
    Symbols     sizes = (d_0, ..., d_{L+1}); activation = σ, of ACTIVATIONS; linears[l] holds W_{l+1}ᵀ and b_{l+1}
    Shapes      x [*, d_0] -> [*, d_{L+1}]; x may be SparseFeatures, which the first linear map reads sparsely
    Cost        time O(n Σ_l d_{l-1} d_l), memory O(n Σ_l d_l) for n rows
    Differs     (3.5) and Alg. 1 put σ on the last layer too; here it stays linear, because softmax (3.10) or the loss
                follows. `dropout` (Srivastava et al., 2014) acts on the hidden z_l while training
    Reference   Baggag & Saad, "Deep learning, transformers and graph neural networks", §3.1; Rosenblatt, 1958

    Example
        >>> mlp = MLP([1, 2, 1])
        >>> mlp.load_state_dict({"linears.0.weight": torch.tensor([[1.0], [-1.0]]), "linears.0.bias": torch.zeros(2),
        ...                      "linears.1.weight": torch.ones(1, 2), "linears.1.bias": torch.zeros(1)})
        <All keys matched successfully>
        >>> mlp(torch.tensor([[3.0], [-2.0]])).tolist()  # max(0, x) + max(0, -x) = |x|
        [[3.0], [2.0]]
    """

    def __init__(self, sizes: Sequence[Count], activation: str = "relu", dropout: Share = 0.0) -> None:
        super().__init__()
        if len(sizes) < 2:
            raise ConfigError(f"an MLP needs an input and an output size, got sizes={list(sizes)}")
        self.linears = nn.ModuleList(Linear(inputs, outputs) for inputs, outputs in pairwise(sizes))
        self.activation = chosen("activation", activation, ACTIVATIONS)
        self.dropout = dropout

    @property
    def maps(self) -> tuple[Map, ...]:
        """The linear maps, as messages hold them."""
        return maps_of(self.linears)

    def forward(self, x: Tensor | SparseFeatures) -> Tensor:
        return self.after_first(self.linears[0](x))

    def after_first(self, z: Tensor) -> Tensor:
        """The rest of the network, from the first linear map's result: layers that move that map use it (GIN)."""
        for linear in islice(self.linears, 1, None):
            z = linear(dropout(self.activation(z), self.dropout, self.training))
        return z

    def message(
        self,
        receivers: Tensor | None = None,
        senders: Tensor | None = None,
        edges: EdgeInput | None = None,
        scale: Tensor | None = None,
    ) -> EdgeNetwork:
        """The network on every edge, from the terms that its first linear map splits into: see `EdgeNetwork`."""
        return EdgeNetwork(
            self.maps[1:],
            self.activation,
            receivers=receivers,
            senders=senders,
            edges=edges,
            scale=scale,
            dropout=self.dropout if self.training else 0.0,
        )

    def message_of_edges(self, values: Tensor, scale: Tensor | None = None) -> EdgeNetwork:
        """The network of what is known of every edge."""
        return self.message(edges=EdgeInput(self.maps[0], values), scale=scale)


def begin_small(mlp: MLP, gain: float = 0.001) -> MLP:
    """The same MLP, its last linear map drawn `gain` times as large: what it adds to begins nearly unchanged."""
    last = mlp.linears[-1]
    assert isinstance(last, Linear)
    nn.init.xavier_uniform_(last.weight, gain)
    nn.init.zeros_(last.bias)
    return mlp


def probabilities(z: Tensor, temperature: float = 1.0) -> Tensor:
    """Softmax with temperature: class scores become probabilities.

    Equation    ŷ = softmax(z / T) = exp(z / T) / sum[exp(z / T)]    (3.9), (3.10), footnote 2
    Symbols     z = φ(x); temperature = T: towards 0 the largest score takes all, towards ∞ all classes are equal
    Shapes      z [*, classes] -> [*, classes]; every row sums to 1
    Errors      ConfigError for a temperature that is not positive
    Reference   Baggag & Saad, §3.2

    Example
        >>> probabilities(torch.tensor([0.0, 0.0])).tolist()
        [0.5, 0.5]
        >>> probabilities(torch.tensor([0.0, 2.0]), temperature=2.0)  # 1 / (1 + e) and e / (1 + e)
        tensor([0.2689, 0.7311])
    """
    check_dense(z)
    if not temperature > 0:
        raise ConfigError(f"temperature is {temperature}: it must be positive")
    return torch.softmax(z / temperature, -1)
