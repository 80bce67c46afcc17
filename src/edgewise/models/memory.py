"""Binary Hopfield networks as a model: what they store is learned in one step down their energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Settings
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.layers import ClassicalHopfield, DenseHopfield
from edgewise.models.signature import Features, Penalised, Signature, accepted


@dataclass(frozen=True)
class MemorySettings(Settings):
    """What a binary associative memory can be.

    Args:
        energy: "classical", quadratic, with a weight for each pair of units; "modern", exponential, with a place for
            each pattern.
        patterns: How many patterns there is a place for; of "modern" alone.
        sweeps: How often recall goes through all units, at most.
    """

    energy: Literal["classical", "modern"] = "modern"
    patterns: Count = 50
    sweeps: Count = 20


class Memory(nn.Module):
    """An associative memory of ±1: it stores patterns, and falls back into the stored one that is near a damaged one.

    Equation    classical: E(ξ) = −½ Σ_{i≠j} w_ij ξ_i ξ_j;  a step down Σ_p E(x_p) from w = 0 leaves w ∝ Σ_p x_p x_pᵀ,
                which is Hebb's rule
                modern: E(ξ) = −Σ_p exp(m_pᵀ ξ);  a step down −Σ_p m_pᵀ x_p from m = 0 leaves sgn m_p = x_p
                recall: ξ_l ← the sign with the lower energy, one unit l after the other
    Symbols     weight = w, in the order of the edges of a complete graph without self-loops, or m; ξ = a state
    Shapes      x [P, 1, N] in training, all patterns in their order -> `Penalised` with x and the mean energy;
                [B, 1, N] in evaluation -> the recalled states [B, 1, N]
    Edge cases  where nothing is stored yet, recall leaves a state as it is. Any rate stores the same: only signs count
    Cost        a sweep: classical O(N²), modern O(P N) for each state
    Differs     the papers write the weights down; here one step of gradient descent writes them
    Reference   Hopfield, 1982; Demircigil et al., "On a model of associative memory with huge storage capacity", 2017

    Example
        >>> model = Memory(MemorySettings("classical"), Features(4, 4, length=1, whole_graph=True))
        >>> model(None, torch.tensor([[[1.0, 1.0, -1.0, -1.0]]])).penalty.backward()
        >>> _ = model.weight.data.sub_(model.weight.grad)
        >>> model.eval()(None, torch.tensor([[[1.0, -1.0, -1.0, -1.0]]])).tolist()
        [[[1.0, 1.0, -1.0, -1.0]]]
    """

    def __init__(self, settings: MemorySettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=True, length=True)
        units = signature.inputs
        if signature.length != 1 or signature.outputs != units or units < 2:
            raise ConfigError("a memory gives back what it reads: choose a task of one node with as many outputs")
        shape = (units * (units - 1),) if settings.energy == "classical" else (settings.patterns, units)
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, graph: Graph | None, x: Tensor) -> Tensor | Penalised:
        state = x.squeeze(-2)
        if self.training:
            return Penalised(x, self.lowered(state).mean())
        return self.recall(state).unsqueeze(-2) if bool(self.weight.any()) else x

    def lowered(self, patterns: Tensor) -> Tensor:
        """What a step that stores patterns [P, N] lowers for each of them: [P]."""
        if self.settings.energy == "modern":
            if patterns.shape != self.weight.shape:
                raise ShapeError(f"{len(patterns)} patterns for {len(self.weight)} places: set model.patterns to both")
            return -(patterns * self.weight).sum(-1)
        network = self.classical(patterns)
        i, j = network.graph.receivers, network.graph.senders
        return -(patterns[:, i] * patterns[:, j] * self.weight).sum(-1) / 2

    @torch.no_grad()
    def recall(self, state: Tensor) -> Tensor:
        """The stored patterns into which states [B, N] fall."""
        network = self.classical(state) if self.settings.energy == "classical" else DenseHopfield(self.weight.sign())
        return network.recall(state, self.settings.sweeps)

    def classical(self, state: Tensor) -> ClassicalHopfield:
        """The network on the units of states, with the weights that were learned."""
        network = ClassicalHopfield(torch.ones_like(state[:1]))
        network.weight = self.weight.detach().to(network.patterns.dtype)
        return network
