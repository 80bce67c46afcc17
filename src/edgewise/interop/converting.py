"""`convert`: other libraries' layers inside any module compute here from now on, with the weights that they have."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import nn

from edgewise.errors import ConfigError
from edgewise.interop import modules
from edgewise.interop.geometric import attention, sums
from edgewise.interop.twin import Twin, left, origin, twin_class

M = TypeVar("M", bound=nn.Module)

TWINS: dict[tuple[str, str], Twin] = {
    **{("torch", name): twin for name, twin in modules.TWINS.items()},
    **{("torch_geometric", name): twin for part in (sums, attention) for name, twin in part.TWINS.items()},
}


@dataclass(frozen=True)
class Conversion:
    """Which layers of a module have a twin: each name with its class, and those that stay, with the reason; and of
    twins the calls that have run the layer's own code."""

    twins: dict[str, str]
    others: dict[str, str]
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        told = {name: f"; ran its own code for {why}" for name, why in self.left.items()}
        lines = [f"{name or 'the module'}: {kind}{told.get(name, '')}" for name, kind in self.twins.items()]
        return "\n".join([*lines, *(f"{name or 'the module'} stays: {why}" for name, why in self.others.items())])


def _reason(module: nn.Module) -> str | None:
    """Why a layer that passes messages or attends has no twin; None for any other module, and for one that has."""
    kind = type(module)
    twin = TWINS.get(origin(kind))
    if hasattr(kind, "twin_of"):
        return None
    if twin is not None:
        why = twin.refusal(module)
        return None if why is None else f"{kind.__name__} with {why}"
    bases = set(map(origin, kind.__mro__))
    if not bases & {("torch_geometric", "MessagePassing"), ("torch", "MultiheadAttention")}:
        return None
    own = [name for library, name in bases if (library, name) in TWINS]
    return f"{kind.__name__} is a class of its own, of {own[0]}" if own else f"{kind.__name__} has no twin"


def conversion(module: nn.Module) -> Conversion:
    """What `convert` has made of a module's layers, and which calls have run their own code since."""
    inside = dict(module.named_modules())
    twins = {name: type(part).__name__ for name, part in inside.items() if hasattr(type(part), "twin_of")}
    others = {name: why for name, part in inside.items() if (why := _reason(part)) is not None}
    calls = {name: left[part] for name, part in inside.items() if part in left}
    told = {name: ", ".join(f"{why} ({n} ×)" for why, n in each.items()) for name, each in calls.items()}
    return Conversion(twins, others, told)


def convert(module: M) -> M:
    """Let a module's layers of PyTorch and PyTorch Geometric compute with this library's graphs and kernels.

    Equation    each layer's own: results and gradients are those that it had, but for rounding
    Symbols     module = any nn.Module, changed in place and returned. Twins exist of GCNConv, SAGEConv, GATConv,
                GATv2Conv, SuperGATConv, TransformerConv, GINConv, GINEConv, NNConv, CGConv, GENConv, ResGatedGraphConv,
                GatedGraphConv, RGCNConv, FastRGCNConv, HGTConv, PNAConv, GPSConv; of APPNP, ARMAConv, ChebConv,
                ClusterGCNConv, GCN2Conv, GraphConv, LabelPropagation, LGConv, MFConv, MixHopConv, PDNConv, SGConv,
                SignedConv, SSGConv, TAGConv; and of nn.MultiheadAttention, nn.TransformerEncoderLayer and
                nn.TransformerEncoder
    Errors      ConfigError for anything else; a UserWarning names each layer that passes messages or attends and
                stays as it is, and why: its class or an option has no twin. `edgewise.interop.conversion` lists both
    Edge cases  a layer keeps its class's name, its options, its parameters (the very same) and their names, so that
                optimizers, checkpoints and calls `layer(x, edge_index, edge_attr)` go on. Options are read at every
                call. A call that a twin does not know (a SparseTensor) runs as before, as do an explainer's, and all
                calls under torch.compile, torch.func, torch.export and torch.jit.trace; so do, of NNConv, CGConv,
                GENConv, ResGatedGraphConv and SuperGATConv, small graphs.
                torch.jit.script compiles the layers' own code, and gives a model those back: convert it after that. A
                receiver that a mask leaves without senders gives 0, and not NaN as PyTorch. An edge_index or a mask
                that is written where PyTorch does not count it, by `.data` or a numpy array of the same memory, stays
                the graph that it was: write the tensor itself, or make a new one
    Cost        an edge_index becomes a graph once, for as long as the tensor lives and is not written; a mask likewise
    Differs     dropout of attention draws other numbers. A maximum that is 0 has its whole gradient, not a share

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
    """
    if not isinstance(module, nn.Module):
        raise ConfigError(f"convert takes a torch.nn.Module, not {type(module).__name__}")
    for part in module.modules():
        kind: Any = type(part)
        twin = TWINS.get(origin(kind))
        if twin is not None and not hasattr(kind, "twin_of") and twin.refusal(part) is None:
            part.__class__ = twin_class(kind, twin)
    made = conversion(module)
    if made.others:
        stay = "; ".join(f"{name or 'the module'} ({why})" for name, why in made.others.items())
        warnings.warn(f"edgewise.convert: these layers stay as they are: {stay}", stacklevel=2)
    elif not made.twins:
        warnings.warn("edgewise.convert: no layer of this module has a twin", stacklevel=2)
    return module


def revert(module: M) -> M:
    """Give a module's layers the classes back that they had before `convert`: their own code runs from then on.

    Symbols     module = any nn.Module, changed in place and returned; parameters and options stay as they are
    Errors      ConfigError for anything else

    Example
        >>> layer = revert(convert(nn.MultiheadAttention(8, 2)))
        >>> type(layer) is nn.MultiheadAttention
        True
    """
    if not isinstance(module, nn.Module):
        raise ConfigError(f"revert takes a torch.nn.Module, not {type(module).__name__}")
    for part in module.modules():
        part.__class__ = getattr(type(part), "twin_of", type(part))
    return module
