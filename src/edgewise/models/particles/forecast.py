"""Forecasts of particles: from where they are, how they move and what they carry, to where they will be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import layers
from edgewise.configuration import Choice, Count, OneOf, Positive, Settings, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.kernels import ends
from edgewise.layers.plain.sides import check_nodes
from edgewise.models.signature import MovingParticles, Signature, accepted


@dataclass(frozen=True)
class ParticlesSettings(Settings):
    """What a forecast of particles can be.

    Args:
        layer: The graph layers, with their width and number; "linear" is the baseline without any.
    """

    layer: Annotated[Choice | str, OneOf(FORECASTS)] = "velocity-egnn"


class LinearMotion(nn.Module):
    """The baseline that sees no other particle: all go straight on, for a time that is learned.

    Equation    x_i' = x_i + t v_i
    """

    def __init__(self, signature: MovingParticles, /) -> None:
        super().__init__()
        self.t = nn.Parameter(torch.tensor(0.7))

    def forward(self, graph: Graph, x: Tensor, v: Tensor, q: Tensor) -> Tensor:
        return x + self.t * v


class Forecast(nn.Module):
    """A forecast made of graph layers.

    Args:
        width: Channels of a node, and of the hidden layers of the networks on nodes and edges.
        depth: Number of graph layers.
    """


class MessageForecast(Forecast):
    """Message passing on coordinates as on any other feature: it has to learn what a rotation is.

    Equation    h_i = W [x_i ‖ v_i] + b, `MessageNetwork` on a_ij = q_i q_j, depth times;
                x_i' = x_i + t v_i + MLP(h_i)
    """

    def __init__(self, signature: MovingParticles, /, *, width: Count = 64, depth: Count = 4) -> None:
        super().__init__()
        self.embed = layers.Linear(2 * signature.space, width)
        self.layers = nn.ModuleList(layers.MessageNetwork(width, width, signature.known) for _ in range(depth))
        self.output = layers.MLP([width, width, signature.space], "silu")
        self.t = nn.Parameter(torch.tensor(0.7))

    def forward(self, graph: Graph, x: Tensor, v: Tensor, q: Tensor) -> Tensor:
        h, a_ij = self.embed(torch.cat([x, v], -1)), _products(graph, q)
        for layer in self.layers:
            h = layer(graph, h, a_ij)
        return x + self.t * v + self.output(h)


class RadialForecast(Forecast):
    """Radial fields one after the other, on a_ij = [q_i q_j ‖ the logarithm of the first |x_i - x_j|]."""

    def __init__(self, signature: MovingParticles, /, *, width: Count = 64, depth: Count = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers.RadialField(width, 1 + signature.known) for _ in range(depth))

    def forward(self, graph: Graph, x: Tensor, v: Tensor, q: Tensor) -> Tensor:
        a_ij = torch.cat([_products(graph, q), layers.log_lengths(layers.displacements(graph, x))], -1)
        for layer in self.layers:
            x = layer(graph, x, v, a_ij)
        return x


class EGNNForecast(Forecast):
    """E(n)-equivariant layers on h_i = W |v_i| + b and a_ij = [q_i q_j ‖ the first |x_i - x_j|²].

    Without velocities in the layers, the last step adds them: x_i' = x_i^(L) + t v_i.
    """

    def __init__(self, kind: Any, signature: MovingParticles, /, *, width: Count = 64, depth: Count = 4) -> None:
        super().__init__()
        self.embed = layers.Linear(1, width)
        self.layers = nn.ModuleList(kind(width, width, 1 + signature.known) for _ in range(depth))
        self.t = None if kind is layers.VelocityEGNN else nn.Parameter(torch.tensor(0.7))

    def forward(self, graph: Graph, x: Tensor, v: Tensor, q: Tensor) -> Tensor:
        squared = layers.squared_lengths(layers.displacements(graph, x))
        h, a_ij = self.embed(layers.lengths(v)), torch.cat([_products(graph, q), squared], -1)
        for layer in self.layers:
            h, x = layer(graph, h, x, a_ij) if self.t is not None else layer(graph, h, x, v, a_ij)
        return x if self.t is None else x + self.t * v


class SchNetForecast(Forecast):
    """An energy that no motion of the whole changes, and the force that follows from it.

    Equation    E = Σ_i MLP(h_i^(L)), h_i^(0) = W [q_i ‖ |v_i|] + b;  x_i' = x_i + t v_i - ∂E/∂x_i
    Cost        three times that of its layers: the force is a backward pass, through which training differentiates

    Args:
        cutoff: Distance beyond which a node is no neighbour.
    """

    differentiates: ClassVar[bool] = True

    def __init__(
        self, signature: MovingParticles, /, *, width: Count = 64, depth: Count = 4, cutoff: Positive = 10.0
    ) -> None:
        super().__init__()
        self.embed = layers.Linear(1 + signature.known, width)
        self.layers = nn.ModuleList(layers.SchNet(width, width, cutoff=cutoff) for _ in range(depth))
        self.energy = layers.MLP([width, width, 1], "silu")
        self.t = nn.Parameter(torch.tensor(0.7))

    def forward(self, graph: Graph, x: Tensor, v: Tensor, q: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled():  # whose tensors cannot be differentiated
            with torch.inference_mode(False), torch.no_grad():
                return self(graph, x.clone(), v.clone(), q.clone())
        training = torch.is_grad_enabled()
        with torch.enable_grad():
            place = x if x.requires_grad else x.detach().requires_grad_()
            h = self.embed(torch.cat([q, layers.lengths(v)], -1))
            for layer in self.layers:
                h = layer(graph, h, place)
            (slope,) = torch.autograd.grad(self.energy(h).sum(), place, create_graph=training)
        return x + self.t * v - slope


class TensorFieldForecast(Forecast):
    """Features of several types: speeds are numbers, velocities are vectors, and so is the displacement at the end.

    Equation    h_i^0 = W |v_i| + b, h_i^1 = w v_i, and 0 of higher types; then, depth times,
                h ← h + layer(Gate(h), x, a_ij) on a_ij = q_i q_j, the first time without Gate;  x_i' = x_i + uᵀ h_i^1

    Args:
        types: Largest type of a feature, from 1 to 3.
    """

    def __init__(
        self, kind: Any, signature: MovingParticles, /, *, width: Count = 64, depth: Count = 4, types: Count = 1
    ) -> None:
        super().__init__()
        edges = signature.known
        if signature.space != 3:
            raise ConfigError(f"{kind.__name__} needs vectors in three dimensions")
        self.coupling = coupling = layers.Coupling(types, chiral=False)  # a mirrored world moves as the mirror shows
        self.embed = layers.TypedLinear([1, 1], [width, width], bias=True)
        sizes = (width,) if kind is layers.TFN else (width, 4 if width % 4 == 0 else 1)
        self.layers = nn.ModuleList(kind(*sizes, width, edges, coupling) for _ in range(depth))
        self.gates = nn.ModuleList(layers.Gate(width, types) for _ in range(depth - 1))
        self.output = layers.Linear(width, 1, bias=False)

    def forward(self, graph: Graph, x: Tensor, v: Tensor, q: Tensor) -> Tensor:
        basis, a_ij = self.coupling.basis(graph, x), _products(graph, q)
        h = torch.cat(self.embed([layers.lengths(v).unsqueeze(-1), v.unsqueeze(-1)]), -2)
        h = functional.pad(h, (0, 0, 0, self.coupling.rows - h.shape[-2]))
        h = h + self.layers[0](graph, h, basis, a_ij)
        for gate, layer in zip(self.gates, islice(self.layers, 1, None), strict=True):
            h = h + layer(graph, gate(h), basis, a_ij)
        return x + self.output(h[..., 1:4, :]).squeeze(-1)


FORECASTS: dict[str, Callable[..., nn.Module]] = {
    "linear": LinearMotion,
    "message-network": MessageForecast,
    "radial-field": RadialForecast,
    "schnet": SchNetForecast,
    "egnn": partial(EGNNForecast, layers.EGNN),
    "velocity-egnn": partial(EGNNForecast, layers.VelocityEGNN),
    "attention-egnn": partial(EGNNForecast, layers.AttentionEGNN),
    "tfn": partial(TensorFieldForecast, layers.TFN),
    "se3-attention": partial(TensorFieldForecast, layers.SE3Attention),
}


class Particles(nn.Module):
    """Where particles will be: one of FORECASTS on what a task's features hold, [position ‖ velocity ‖ charges].

    Equation    x' = forecast(graph, x, v, q)
    Symbols     x, v [*, N, D] and q [*, N, K] = the parts of the features
    Shapes      [*, N, 2 D + K] -> [*, N, D]
    Reference   Satorras, Hoogeboom & Welling, "E(n) equivariant graph neural networks", 2021, §5.1

    Example
        >>> from edgewise.graphs import complete
        >>> model = Particles(ParticlesSettings("linear"), MovingParticles(7, 3, space=3))
        >>> now = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, -1.0]])
        >>> model(complete(1), now)  # 0.7 is where t begins
        tensor([[0.7000, 0.0000, 0.0000]], grad_fn=<AddBackward0>)
    """

    def __init__(self, settings: ParticlesSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, MovingParticles, whole_graph=False)
        self.forecast = chosen("layer", settings.layer, FORECASTS)(self.signature)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        space = self.signature.space
        check_nodes(graph, x, self.signature.inputs)
        return self.forecast(graph, *x.split([space, space, self.signature.known], -1))


def _products(graph: Graph, q: Tensor) -> Tensor:
    """q_i q_j of every edge, [*, E, K]."""
    q_i, q_j = ends(graph, q)
    return q_i * q_j
