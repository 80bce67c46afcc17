"""A tensor field convolution by e3nn: its harmonics, its weighted tensor product, index_add, its linear maps.

The radial network is the plain one of Edgewise's layer, for e3nn's own does the same work and more; all weights are the
layer's too, so that both compute one function.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from benchmarks.inputs import Inputs, TensorField
from edgewise.layers import TFN, by_type


def refuses(inputs: Inputs) -> str | None:
    """Takes tensor field convolutions, where e3nn is installed."""
    if not isinstance(inputs, TensorField):
        return "takes tensor field convolutions"
    return None if find_spec("e3nn") else "needs e3nn"


def prepare(compiled: bool) -> Callable[[Inputs], Callable[[], Any]]:
    """The convolution with e3nn's product as it comes, or under torch.compile."""

    def ready(inputs: Inputs) -> Callable[[], Any]:
        assert isinstance(inputs, TensorField)
        convolve = _by_e3nn(inputs.layer, torch.compile if compiled else lambda product: product)
        i, j = inputs.graph.receivers, inputs.graph.senders
        return lambda: convolve(inputs.h, inputs.x, i, j)

    return ready


def _by_e3nn(layer: TFN, compiled: Callable[[Any], Any]) -> Callable[..., Tensor]:
    from e3nn import o3

    channels, coupling = layer.radial.channels, layer.coupling
    types = range(coupling.types + 1)
    features = o3.Irreps([(channels, (out, (-1) ** out)) for out in types])
    sphere = o3.Irreps.spherical_harmonics(coupling.most)
    slots = [(out, *path) for out in types for path in coupling.into(out)]
    messages = o3.Irreps([features[out] for out, _, _ in slots])
    paths = [(k, J, out) for (k, J), outs in coupling.filtered.items() for out in outs]  # in the radial network's order
    instructions = [(k, J, slots.index((out, k, J)), "uvu", True) for k, J, out in paths]
    product = compiled(
        o3.TensorProduct(features, sphere, messages, instructions, internal_weights=False, shared_weights=False)
    )
    harmonics = o3.SphericalHarmonics(sphere, True, "component")
    options = {"internal_weights": False, "shared_weights": True}
    own, heard = o3.Linear(features, features, **options), o3.Linear(messages.simplify(), features, **options)

    def convolve(h: Tensor, x: Tensor, i: Tensor, j: Tensor) -> Tensor:
        x_ij = x[i] - x[j]
        R = layer.radial.network(x_ij.norm(dim=-1, keepdim=True))
        h = torch.cat([part.transpose(-1, -2).flatten(-2) for part in by_type(h)], -1)
        m_ij = product(h[j], harmonics(x_ij), R)
        m = m_ij.new_zeros(len(h), m_ij.shape[1]).index_add(0, i, m_ij)
        y = own(h, _weights(layer.own)) + heard(m, _weights(layer.mixed))
        parts = y.split([channels * (2 * out + 1) for out in types], -1)
        first, *others = (part.unflatten(-1, (channels, -1)).transpose(-1, -2) for part in parts)
        return torch.cat([first + layer.own.maps[0].bias, *others], -2)

    return convolve


def _weights(maps: Any) -> Tensor:
    """As e3nn.o3.Linear reads them: [inputs, outputs] of each type, which it divides by the root of the inputs."""
    return torch.cat([(W.weight.T * W.in_features**0.5).flatten() for W in maps.maps])


def exact(inputs: TensorField) -> dict[str, Tensor]:
    """The equation in float64, edge by edge and coefficient by coefficient: y and the gradients of all leaves."""
    from e3nn import o3

    layer = copy.deepcopy(inputs.layer).double()
    coupling, graph, x = layer.coupling, inputs.graph, inputs.x.double()
    h = inputs.h.detach().double().requires_grad_()
    x_ij = x[graph.receivers] - x[graph.senders]
    R = layer.radial.network(x_ij.norm(dim=-1, keepdim=True)).unflatten(-1, (-1, h.shape[-1])).unbind(-2)
    order = [(k, J, out) for (k, J), outs in coupling.filtered.items() for out in outs]
    h_j, parts = by_type(h[graph.senders]), []
    for out, own in enumerate(by_type(h)):
        m_ij = []
        for k, J in coupling.into(out):
            C = (2 * out + 1) ** 0.5 * o3.wigner_3j(k, J, out, dtype=torch.float64)
            Y = o3.spherical_harmonics(J, x_ij, True, "component")
            coupled = torch.einsum("abm,eb,eac->emc", C, Y, h_j[k])
            m_ij.append(R[order.index((k, J, out))].unsqueeze(-2) * coupled)
        m = torch.zeros_like(own).repeat(1, 1, len(m_ij)).index_add(0, graph.receivers, torch.cat(m_ij, -1))
        parts.append(layer.own.maps[out](own) + layer.mixed.maps[out](m))
    y = torch.cat(parts, -2)
    leaves = {"h": h, **dict(layer.named_parameters())}
    grads = torch.autograd.grad(y, list(leaves.values()), inputs.gradient.double())
    return {"rows": torch.arange(len(y)), "y": y.detach(), **dict(zip(leaves, grads, strict=True))}
