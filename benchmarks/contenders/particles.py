"""Training steps of EGNN and SchNet: what the contenders share, and both layers as PyTorch Geometric writes them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.inputs import Particles
from edgewise.layers import EGNN, SchNet

WIDTH, GAUSSIANS = 64, 50


def ours(inputs: Particles) -> Callable[[], float]:
    """Edgewise's layers."""
    layers = filled(inputs)
    return training_step(inputs, layers, lambda: run(inputs, layers))


def exact(inputs: Particles, steps: int) -> Tensor:
    """The losses of the first steps in float64."""
    precise = inputs.double()
    layers = filled(inputs).double()
    step = training_step(precise, layers, lambda: run(precise, layers))
    return torch.tensor([step() for _ in range(steps)], dtype=torch.float64)


def filled(inputs: Particles) -> nn.ModuleList:
    """Edgewise's layers, with the same weights in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        if inputs.layer == "egnn":
            return nn.ModuleList(EGNN(WIDTH, WIDTH) for _ in range(inputs.depth))
        return nn.ModuleList(SchNet(WIDTH, WIDTH, GAUSSIANS, inputs.cutoff) for _ in range(inputs.depth))


def run(inputs: Particles, layers: nn.ModuleList) -> tuple[Tensor, ...]:
    """Features, and for EGNN positions."""
    h, x = inputs.h, inputs.x
    for layer in layers:
        h, x = layer(inputs.graph, h, x) if inputs.layer == "egnn" else (layer(inputs.graph, h, x), x)
    return (h, x) if inputs.layer == "egnn" else (h,)


def training_step(
    inputs: Particles, model: nn.Module, outputs: Callable[[], tuple[Tensor, ...]]
) -> Callable[[], float]:
    """Forward, mean squared errors, backward, Adam: the loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step() -> float:
        found = zip(outputs(), inputs.targets, strict=False)
        loss = torch.stack([(y - target).square().mean() for y, target in found]).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def pyg(inputs: Particles, transform: Callable[[nn.Module], Callable[..., tuple[Tensor, ...]]]) -> Callable[[], float]:
    """PyTorch Geometric's, with the weights of Edgewise's."""
    model = egnn(filled(inputs)) if inputs.layer == "egnn" else schnet(filled(inputs), inputs.cutoff)
    edge_index, forward = inputs.graph.edge_index(), transform(model)
    return training_step(inputs, model, lambda: forward(edge_index, inputs.h, inputs.x))


def egnn(weights: nn.ModuleList) -> nn.Module:
    """EGNN on MessagePassing, its networks on the concatenation [h_i ‖ h_j ‖ d_ij]."""
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import scatter

    class Layer(MessagePassing):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__(node_dim=0)
            first, second = nn.Linear(2 * WIDTH + 1, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.phi_e = nn.Sequential(first, nn.SiLU(), second, nn.SiLU())
            self.phi_x = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))
            self.phi_h = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

        def forward(self, edge_index: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            m, pull = self.propagate(edge_index, h=h, x=x)
            return h + self.phi_h(torch.cat([h, m], -1)), x + pull

        def message(self, h_i: Tensor, h_j: Tensor, x_i: Tensor, x_j: Tensor) -> tuple[Tensor, Tensor]:
            x_ij = x_i - x_j
            m_ij = self.phi_e(torch.cat([h_i, h_j, x_ij.square().sum(-1, keepdim=True)], -1))
            return m_ij, x_ij * self.phi_x(m_ij)

        def aggregate(self, found: tuple[Tensor, Tensor], index: Tensor, dim_size: int) -> tuple[Tensor, Tensor]:
            m_ij, pull = found
            return scatter(m_ij, index, 0, dim_size, "sum"), scatter(pull, index, 0, dim_size, "mean")

        def update(self, found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return found

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in weights)

        def forward(self, edge_index: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            for layer in self.layers:
                h, x = layer(edge_index, h, x)
            return h, x

    model, state = Model(), weights.state_dict()
    for n in range(len(weights)):
        blocks = [state.pop(f"{n}.phi_e.{block}.weight") for block in ("receiver", "sender", "edge")]
        state[f"{n}.phi_e.0.weight"] = torch.cat(blocks, 1)
    renamed = {"receiver": "0", "second": "2", "linears.0": "0", "linears.1": "2"}
    model.layers.load_state_dict(rename(state, renamed))
    return model


def schnet(weights: nn.ModuleList, cutoff: float) -> nn.Module:
    """SchNet's interaction blocks as they come, distances and Gaussians made once for all of them."""
    from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.smear = GaussianSmearing(0.0, cutoff, GAUSSIANS)
            self.layers = nn.ModuleList(InteractionBlock(WIDTH, GAUSSIANS, WIDTH, cutoff) for _ in weights)

        def forward(self, edge_index: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor]:
            r = (x[edge_index[1]] - x[edge_index[0]]).norm(dim=-1)
            e = self.smear(r)
            for layer in self.layers:
                h = h + layer(h, edge_index, r, e)
            return (h,)

    model = Model()
    renamed = {"into": "conv.lin1", "first": "conv.lin2", "second": "lin", "filters.0": "mlp.0", "filters.1": "mlp.2"}
    for name, weight in rename(weights.state_dict(), renamed).items():
        model.layers.get_parameter(name).data.copy_(weight)  # its state names the filters twice
    return model


def rename(state: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """The same tensors under the peer's names."""
    for mine, theirs in names.items():
        state = {key.replace(f".{mine}.", f".{theirs}."): tensor for key, tensor in state.items()}
    return state
