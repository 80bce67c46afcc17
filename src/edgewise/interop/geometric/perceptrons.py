"""Perceptrons that run as one operation, GINConv's with its sum: PyTorch Geometric's MLP, and nn.Sequential."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.interop.dropout import unwatched
from edgewise.interop.geometric.features import is_linear
from edgewise.interop.twin import origin
from edgewise.kernels import Norm, maps_of, perceptron
from edgewise.kernels.messages import has_hooks


class Parts(NamedTuple):
    """Two linear maps with a ReLU between them, before that a batch normalisation, and after all another ReLU."""

    up: Any
    norm: Any
    down: Any
    activated: bool


def applied(network: Any, x: Tensor) -> Any:
    """network(x), as one operation where it can be one."""
    y = unwatched(at_once, network, x)
    return network(x) if y is None else y


def at_once(network: Any, x: Tensor, graph: Graph | None = None, epsilon: Tensor | None = None) -> Tensor | None:
    """network(x) as one operation; None where it has to be called, or what it does is another.

    Symbols     graph, epsilon = of network((1 + ε) x_i + Σ_j x_j)
    """
    parts = _parts(network)
    if parts is None or x.dim() != 2 or (graph is not None and x.shape[0] != graph.num_senders):
        return None
    up, down = maps_of([parts.up, parts.down])
    if x.shape[1] != up[0].shape[1]:
        return None
    norm = None if parts.norm is None else _norm(parts.norm)
    y = perceptron(x, up, down, functional.relu, graph, epsilon, norm)
    if y is not None and norm is not None and norm.training:
        parts.norm.num_batches_tracked.add_(1)
    return functional.relu(y) if y is not None and parts.activated else y


def _parts(network: Any) -> Parts | None:
    if has_hooks(network):
        return None
    if type(network) is nn.Sequential:
        layers: list[Any] = list(network._modules.values())
    elif origin(type(network)) == ("torch_geometric", "MLP") and network.plain_last and not network.act_first:
        (maps, norms), drops = (network.lins, network.norms), network.training and any(network.dropout)
        if len(maps._modules) != 2 or drops or has_hooks(maps) or has_hooks(norms):
            return None
        up, down = maps._modules.values()
        layers = [up, *norms._modules.values(), network.act, down]
    else:
        return None
    layers = [_inner(layer) for layer in layers if not _does_nothing(layer)]
    activated = len(layers) > 3 and _is_plain(layers[-1], nn.ReLU)
    up, *between, down = layers[:-1] if activated else layers if len(layers) > 1 else [None, None]
    norms = between[:-1]
    if not is_linear(up) or not is_linear(down) or not between or not _is_plain(between[-1], nn.ReLU):
        return None
    if len(norms) > 1 or not all(_is_counted(norm) for norm in norms):
        return None
    return Parts(up, norms[0] if norms else None, down, activated)


def _does_nothing(module: Any) -> bool:
    return _is_plain(module, nn.Identity) or (_is_plain(module, nn.Dropout) and not (module.training and module.p))


def _is_plain(module: Any, kind: type[nn.Module]) -> bool:
    return type(module) is kind and not has_hooks(module)


def _inner(module: Any) -> Any:
    """PyTorch's batch normalisation inside PyTorch Geometric's."""
    wrapped = origin(type(module)) == ("torch_geometric", "BatchNorm") and not has_hooks(module)
    return module.module if wrapped and not module.allow_single_element else module


def _is_counted(norm: Any) -> bool:
    """Whether this is a batch normalisation with weights, and with running means that move at a constant rate."""
    return _is_plain(norm, nn.BatchNorm1d) and norm.affine and norm.track_running_stats and norm.momentum is not None


def _norm(norm: nn.BatchNorm1d) -> Norm:
    mean, variance, momentum = norm.running_mean, norm.running_var, norm.momentum
    assert mean is not None and variance is not None and momentum is not None  # see `_is_counted`
    return Norm(norm.weight, norm.bias, mean, variance, norm.training, momentum, norm.eps)
