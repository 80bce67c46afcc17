"""`convert`: other libraries' layers inside any module compute here from now on, with the weights that they have; so do
their loaders and optimizers beside them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from torch import nn
from torch.optim import Optimizer

from edgewise.errors import ConfigError
from edgewise.interop import modules, optimizers
from edgewise.interop.dropout import AROUND
from edgewise.interop.geometric import attention, collating, composed, relations, sums, weighted
from edgewise.interop.twin import Twin, origin, twin_class

T = TypeVar("T")

TWINS: dict[tuple[str, str], Twin] = {
    **{("torch", name): twin for name, twin in modules.TWINS.items()},
    **{
        ("torch_geometric", name): twin
        for part in (sums, weighted, attention, composed, relations)
        for name, twin in part.TWINS.items()
    },
}


@dataclass(frozen=True)
class Conversion:
    """Which layers of a module have a twin: each name with its class, and those that stay, with the reason."""

    twins: dict[str, str]
    others: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{name or 'the module'}: {kind}" for name, kind in self.twins.items()]
        return "\n".join([*lines, *(f"{name or 'the module'} stays: {why}" for name, why in self.others.items())])


def _reason(module: nn.Module) -> str | None:
    """Why a layer that passes messages or attends has no twin; None for any other module, and for one that has."""
    kind = type(module)
    twin = TWINS.get(origin(kind))
    if twin is not None:
        why = twin.refusal(module)
        return None if why is None else f"{kind.__name__} with {why}"
    bases = set(map(origin, kind.__mro__))
    if hasattr(kind, "twin_of") or not bases & {("torch_geometric", "MessagePassing"), ("torch", "MultiheadAttention")}:
        return None
    own = [name for library, name in bases if (library, name) in TWINS]
    return f"{kind.__name__} is a class of its own, of {own[0]}" if own else f"{kind.__name__} has no twin"


def _is_twin(module: nn.Module) -> bool:
    kind = getattr(type(module), "twin_of", None)
    return kind is not None and origin(kind) in TWINS


def conversion(module: nn.Module) -> Conversion:
    """What `convert` has made of a module's layers."""
    inside = dict(module.named_modules())
    twins = {name: type(part).__name__ for name, part in inside.items() if _is_twin(part)}
    others = {name: why for name, part in inside.items() if (why := _reason(part)) is not None}
    return Conversion(twins, others)


@overload
def convert(thing: T, /) -> T: ...
@overload
def convert(*things: Any) -> tuple[Any, ...]: ...
def convert(*things: Any) -> Any:
    """Let a module's layers of PyTorch and PyTorch Geometric compute with this library's graphs and kernels.

    Equation    each layer's own: results and gradients are those that it had, but for rounding
    Symbols     things = any nn.Module, changed in place and returned; beside it, or alone, a PyTorch Geometric
                `DataLoader` and an optimizer, likewise (several are returned as a tuple). Twins exist of GCNConv,
                SAGEConv, GATConv, GATv2Conv, TransformerConv, GINConv, GINEConv, GatedGraphConv, RGCNConv,
                FastRGCNConv, HGTConv, PNAConv, GPSConv, HeteroConv; of APPNP, ARMAConv, ChebConv, ClusterGCNConv,
                GCN2Conv, GraphConv, LabelPropagation, LGConv, MFConv, MixHopConv, PDNConv, SGConv, SignedConv,
                SSGConv, TAGConv; and of nn.MultiheadAttention, nn.TransformerEncoderLayer and nn.TransformerEncoder.
                A loader without workers, over an InMemoryDataset without a transform, gathers each batch at once from
                what the data set has stored: the same batches of the same draws. Adam, AdamW and SGD of parameters on
                the CPU take PyTorch's fused steps
    Errors      ConfigError for anything else; a UserWarning names each layer that passes messages or attends and
                stays as it is, and why: its class or an option has no twin. `edgewise.interop.conversion` lists both.
                Loaders and optimizers that stay are named likewise
    Edge cases  a layer keeps its class's name, its options, its parameters (the very same) and their names, so that
                optimizers, checkpoints and calls `layer(x, edge_index, edge_attr)` go on; a call that a twin does not
                know (a SparseTensor, an explainer's hooks) runs as before. A receiver that a mask leaves without
                senders gives 0, and not NaN as PyTorch. In training a large result of GCNConv or SAGEConv may be a
                tensor whose numbers are computed when they are read; it is a torch.Tensor in all else
                An edge_index or a mask that is written where PyTorch does not count it, by `.data` or a numpy array
                of the same memory, stays the graph that it was, and features stay what they were where they come
                again: write the tensor itself, or make a new one
    Cost        an edge_index becomes a graph once, for as long as the tensor lives and is not written; a mask likewise.
                The edges of a data set are sorted once, where a converted layer reads a converted loader's batches: 48
                bytes for each. Adam's steps after the first, and `train(mode)`, are PyTorch's without its detours
    Differs     dropout of attention draws other numbers; `torch.nn.functional.dropout` on the CPU, by nn.Dropout too,
                draws them by counter wherever the forward pass of the module calls it, in a tenth of the time. Fused
                steps round otherwise, and an optimizer's `state_dict` says `fused`. A maximum or minimum that is 0
                hands on its whole gradient, of which PyTorch's scatter_reduce loses a share

    Example
        >>> import torch
        >>> layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True)
        >>> x = torch.randn(1, 5, 8)
        >>> before = layer(x)
        >>> torch.allclose(convert(layer)(x), before, atol=1e-6)
        True
        >>> from edgewise.interop.converting import conversion
        >>> print(conversion(layer))
        the module: TransformerEncoderLayer
        self_attn: MultiheadAttention
        >>> optimizer = torch.optim.Adam(layer.parameters())
        >>> convert(layer, optimizer) == (layer, optimizer)
        True
    """
    for thing in things:
        if not isinstance(thing, nn.Module | Optimizer) and not collating.is_loader(thing):
            kinds = "a torch.nn.Module, a DataLoader of PyTorch Geometric or a torch.optim.Optimizer"
            raise ConfigError(f"convert takes {kinds}, not {type(thing).__name__}")
    for thing in things:
        if isinstance(thing, nn.Module):
            stays = _convert_module(thing)
        else:
            stays = _convert_optimizer(thing) if isinstance(thing, Optimizer) else _convert_loader(thing)
        if stays is not None:
            warnings.warn(f"edgewise.convert: {stays}", stacklevel=2)
    return things[0] if len(things) == 1 else things


def _convert_module(module: nn.Module) -> str | None:
    """Convert a module's layers in place; which of them stay."""
    for part in module.modules():
        kind: Any = type(part)
        twin = TWINS.get(origin(kind))
        if twin is not None and twin.refusal(part) is None:
            part.__class__ = twin_class(kind, twin)
    made = conversion(module)
    kind = type(module)
    if made.twins and not hasattr(kind, "twin_of"):
        module.__class__ = twin_class(kind, AROUND)
    if made.others:
        stay = "; ".join(f"{name or 'the module'} ({why})" for name, why in made.others.items())
        return f"these layers stay as they are: {stay}"
    return None if made.twins else "no layer of this module has a twin"


def _convert_optimizer(optimizer: Optimizer) -> str | None:
    why = optimizers.refusal(optimizer)
    if why is not None:
        return f"the optimizer's steps stay as they are: {why}"
    optimizers.fuse(optimizer)
    return None


def _convert_loader(loader: Any) -> str | None:
    why = collating.refusal(loader)
    if why is not None:
        return f"the loader's batches are put together as before: {why}"
    if not hasattr(type(loader), "twin_of"):
        kind: Any = type(loader)
        loader.__class__ = collating.loader_class(kind)
    return None
