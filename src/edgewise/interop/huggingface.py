"""`attn_implementation="edgewise"`: models of Hugging Face's transformers attend on graphs."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from edgewise.errors import ConfigError, GraphError
from edgewise.graphs import Graph, causal
from edgewise.graphs.derived import per_tensor
from edgewise.interop.modules import all_pairs, dense_weights, of_members
from edgewise.kernels import Dot, EdgeBias, aggregate, attend
from edgewise.kernels import dropout as drop
from edgewise.kernels.gates import is_watched

NAME = "edgewise"
aten = torch.ops.aten
ADDED = frozenset({aten.add, aten.add_, aten.sub, aten.sub_, aten.rsub, aten.baddbmm})
FILLED = frozenset({aten.masked_fill, aten.masked_fill_})
REMEMBERED = 256  # graphs of masks, by what their functions are made of: one for each length and kind of layer


def register_attention() -> str:
    """Make `attn_implementation="edgewise"` known to transformers, for all its models that use the attention interface.

    Symbols     its result = the name, "edgewise"
    Errors      ConfigError without transformers, and for models that call no attention interface, as DeBERTa and Bloom,
                where they are made
    Edge cases  causal, sliding, chunked and packed masks and padding become graphs, once for each length where all
                members of a batch have the same; a token that may attend to nobody gets 0; weights are returned. Under
                torch.compile and torch.export, and for a single query, as each token of a generated text, PyTorch's
                attention runs as by "sdpa"
    Cost        that of `attend`: a window costs its width, and not the length

    Example
        >>> from transformers import LlamaConfig, LlamaForCausalLM  # doctest: +SKIP
        >>> config = LlamaConfig(attn_implementation=register_attention())  # doctest: +SKIP
        >>> model = LlamaForCausalLM(config)  # doctest: +SKIP
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ModuleNotFoundError:
        raise ConfigError("register_attention needs transformers: pip install transformers") from None
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    _check_models(PreTrainedModel)
    return NAME


@lru_cache
def _check_models(models: Any) -> None:
    """Let a model that calls no attention interface, as DeBERTa, refuse ours, which it would take and never call."""
    allowed, calls = models.get_correct_attn_implementation, getattr(models, "_can_set_attn_implementation", None)

    @wraps(allowed)
    def checked(self: Any, requested_attention: str | None, *args: Any, **named: Any) -> Any:
        if requested_attention == NAME and calls is not None and not type(self)._can_set_attn_implementation():
            what = f"{type(self).__name__} does not call transformers' attention interface"
            raise ConfigError(f'attn_implementation="edgewise": {what}: use attn_implementation="eager"')
        return allowed(self, requested_attention, *args, **named)

    models.get_correct_attn_implementation = checked


# Masks


def _made_of(value: Any) -> Hashable:
    """What one of transformers' mask functions computes from: its code and the numbers that it closes over; ValueError
    for tensors, and for other functions, which may read what changes."""
    if isinstance(value, FunctionType) and str(value.__module__).partition(".")[0] == "transformers":
        closed = [cell.cell_contents for cell in value.__closure__ or ()]
        named = sorted((value.__kwdefaults__ or {}).items())
        return value.__code__, _made_of(closed), _made_of(value.__defaults__), _made_of(named)
    if isinstance(value, tuple | list):
        return tuple(map(_made_of, value))
    if value is None or isinstance(value, int | float | str):
        return value
    raise ValueError(f"{type(value).__name__} may change")


class _Function:
    """A mask's function at offsets, equal to others that compute the same."""

    def __init__(self, function: Callable[..., Tensor], offsets: tuple[int, int]) -> None:
        self.function, self.offsets = function, offsets
        self.key = (_made_of(function), offsets)

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return self.function(b, h, q_idx + self.offsets[0], kv_idx + self.offsets[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Function) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=REMEMBERED)
def _graph(function: _Function, receivers: int, senders: int) -> Graph:
    return Graph.from_mask(function, receivers, senders)


class _Equal:
    """A graph, equal to others with the same edges."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        edges = b"".join(part.cpu().numpy().tobytes() for part in graph.ranges() or (graph.offsets, graph.senders))
        self.key = graph.num_receivers, graph.num_senders, graph.device, hashlib.sha256(edges).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Equal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=REMEMBERED)
def _first(equal: _Equal) -> Graph:
    """The first of equal graphs, with what is cached with it."""
    return equal.graph


class ReadOnlyMask(Tensor):
    """A mask that whoever computes with it sees as a tensor of bools.

    Writing to it is refused, which would be lost; and so is adding it to scores, or filling scores with it: models that
    do so expect a mask of numbers, or one that is true where attention is not allowed.
    """

    def dense(self) -> Tensor:
        """The mask as an ordinary tensor."""
        raise NotImplementedError

    def __setitem__(self, places: Any, values: Any) -> None:
        raise ConfigError("a mask of a graph cannot be written to: write to mask.dense().clone()")

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self.dense())

    def tolist(self) -> Any:
        return self.dense().tolist()

    def __deepcopy__(self, memo: Any) -> ReadOnlyMask:
        return self

    def numpy(self, *, force: bool = False) -> Any:
        return self.dense().clone().numpy(force=force)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = operator.overloadpacket, kwargs or {}
        if isinstance(args[0], ReadOnlyMask) and operator._schema.is_mutable:
            raise ConfigError(f"a mask of a graph cannot be written to ({name}): write to mask.dense().clone()")
        to = kwargs.get("dtype") if name is aten._to_copy else None
        as_numbers = to is not None and to.is_floating_point
        if name in ADDED or as_numbers or (name in FILLED and isinstance(args[1], ReadOnlyMask)):
            raise ConfigError(
                f'attn_implementation="edgewise" needs a model that calls transformers\' attention interface; this one '
                f'applies the mask to its scores itself ({name}): use attn_implementation="eager"'
            )
        args, kwargs = tree_map_only(ReadOnlyMask, lambda mask: mask.dense(), (args, kwargs))
        result = operator(*args, **kwargs)
        is_view = any(part.alias_info is not None for part in operator._schema.returns)
        return tree_map_only(Tensor, MaskView, result) if is_view else result


class GraphMask(ReadOnlyMask):
    """A graph in the place of a mask [B, 1, I, J].

    `generate` with a static cache makes a mask before it calls the model, which then takes what is no tensor of four
    axes for padding.
    """

    graph: Graph

    @staticmethod
    def __new__(cls, graph: Graph, shape: tuple[int, int, int, int]) -> GraphMask:
        made: GraphMask = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=graph.device)
        made.graph = graph
        return made

    def dense(self) -> Tensor:
        batch, _, receivers, senders = self.shape
        rows = self.graph.dense_mask()
        if self.graph.num_receivers != receivers:  # a graph of all members
            places = torch.arange(batch, device=rows.device)
            rows = rows.unflatten(1, (batch, senders)).unflatten(0, (batch, receivers))[places, :, places]
        return rows.expand(batch, receivers, senders).unsqueeze(1)


class MaskView(ReadOnlyMask):
    """Some of a graph's mask, such as its first senders."""

    part: Tensor

    @staticmethod
    def __new__(cls, part: Tensor) -> MaskView:
        made: MaskView = Tensor._make_wrapper_subclass(
            cls, part.shape, part.stride(), dtype=part.dtype, device=part.device
        )
        made.part = part
        return made

    def dense(self) -> Tensor:
        return self.part


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Any = None,
    attention_mask: Tensor | None = None,
    device: Any = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """The graph of a mask's function and of padding: one for all members of a batch, or one of all of them. For a
    single query, and where it is compiled or exported, the mask that transformers makes for PyTorch's attention."""
    if q_length == 1 or torch.compiler.is_compiling():
        from transformers.masking_utils import sdpa_mask

        named = {"attention_mask": attention_mask, "device": device, **kwargs}
        theirs: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, **named)
        return theirs
    offsets = int(q_offset), int(kv_offset)
    padding = attention_mask if attention_mask is not None and not bool(attention_mask.all()) else None
    kept = None if padding is None else _kept(padding, offsets[1], kv_length)
    try:
        members = [_graph(_Function(mask_function, offsets), q_length, kv_length)]
    except (ValueError, GraphError):  # it reads what may change, or depends on the member
        members = _members(mask_function, batch_size, offsets, q_length, kv_length)
    if kept is None:
        graph = members[0] if len(members) == 1 else Graph.batch(members)
    else:
        alike = len(members) == 1 and members[0].is_complete
        graph = of_members(kept, q_length, None if alike else torch.stack([m.dense_mask() for m in members]))
    return GraphMask(graph.to(device), (batch_size, 1, q_length, kv_length))


def _members(function: Any, batch: int, offsets: tuple[int, int], receivers: int, senders: int) -> list[Graph]:
    """The graphs of a function's masks, evaluated anew: one, or that of each member where the function reads which."""

    def moved(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        mask: Tensor = function(b, h, q_idx + offsets[0], kv_idx + offsets[1])
        return mask

    def of(member: int | None) -> Graph:
        return _first(_Equal(Graph.from_mask(moved, receivers, senders, batch=member).to("cpu")))

    try:
        return [of(None)]
    except GraphError:
        return [of(b) for b in range(batch)]


def _kept(padding: Tensor, offset: int, length: int) -> Tensor:
    """Which senders are no padding, bool [B, J]; those beyond what is given are none."""
    kept = padding[:, offset : offset + length].to("cpu", torch.bool)
    return torch.nn.functional.pad(kept, (0, length - kept.shape[1]))


@per_tensor
def _of_tensor(mask: Tensor, receivers: int) -> Graph:
    """The graph of a mask [B, 1, I, J] or [B, 1, 1, J] of a model's own: bool, or added to the score."""
    allowed = mask if mask.dtype == torch.bool else mask == 0
    least = torch.finfo(mask.dtype).min if mask.is_floating_point() else 0
    if mask.shape[1] != 1 or (mask.dtype != torch.bool and not bool((allowed | (mask <= least)).all())):
        what = f"an attention mask {list(mask.shape)} of {mask.dtype}"
        raise ConfigError(f"{what} is no graph: it must be the same for all heads, and true or false, or 0 or -inf")
    members = [Graph.from_mask(member.cpu()) for member in allowed[:, 0].expand(-1, receivers, -1)]
    return (members[0] if len(members) == 1 else Graph.batch(members)).to(mask.device)


# Attention


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers' attention interface calls: q [B, H, I, C], k and v [B, G, J, C] -> [B, I, H, C], weights."""
    for name in ("s_aux", "sinks", "indices", "block_indices", "cache"):
        if kwargs.get(name) is not None:
            raise ConfigError(f'attn_implementation="edgewise" has no {name}, which this model asks for: use "eager"')
    (batch, heads, receivers, _), senders = query.shape, key.shape[2]
    compiled, capped = torch.compiler.is_compiling(), kwargs.get("softcap") is not None
    if compiled and (capped or kwargs.get("output_attentions") or dropout >= 1):
        what = "has no soft cap, returns no weights and takes no dropout of 1"
        raise ConfigError(f'attn_implementation="edgewise" {what} where it is compiled or exported: use "eager"')
    wants_weights = not compiled and _wants_weights(module, kwargs)
    usual = not (capped or wants_weights or dropout >= 1 or isinstance(attention_mask, ReadOnlyMask))
    if compiled or (receivers == 1 and usual and not is_watched()):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        kwargs |= {} if position_bias is None else {"position_bias": position_bias}
        theirs: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs
        )
        return theirs
    causal_here = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if isinstance(attention_mask, GraphMask):
        graph = attention_mask.graph
    elif isinstance(attention_mask, Tensor):
        given = attention_mask.dense() if isinstance(attention_mask, MaskView) else attention_mask
        graph = _of_tensor(given, receivers)
    elif causal_here and receivers > 1:
        graph = _past(receivers, senders, query.device)
    else:
        graph = all_pairs(receivers, senders, query.device)
    shared = graph.num_receivers == receivers
    q, k, v = (x.transpose(1, 2) if shared else x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    score = Dot(scaling, kwargs.get("softcap"))
    if position_bias is not None:
        score = score + EdgeBias(_on_edges(position_bias, graph, shared, receivers, senders))
    if wants_weights or dropout >= 1:
        y, p = attend(graph, q, k, v, score, return_weights=True)
        if dropout:  # the weights that are returned are those of the sum, as transformers has it
            p = drop(p, dropout)
            y = aggregate(graph, v.repeat_interleave(heads // v.shape[-2], -2), p).to(v.dtype)
        weights = dense_weights(graph, p, batch, receivers, senders) if wants_weights else None
    else:
        y, weights = attend(graph, q, k, v, score, dropout=dropout), None
    return y.reshape(batch, receivers, heads, value.shape[-1]), weights


@lru_cache(maxsize=REMEMBERED)
def _past(receivers: int, senders: int, device: torch.device) -> Graph:
    return causal(receivers, senders).to(device)


def _wants_weights(module: Any, options: dict[str, Any]) -> bool:
    """Whether weights are asked for: by the call, the configuration, or the recorder that models of version 5 have."""
    if options.get("output_attentions") or getattr(getattr(module, "config", None), "output_attentions", False):
        return True
    recorder = getattr(sys.modules.get("transformers.utils.output_capturing"), "_active_collector", None)
    return recorder is not None and any("attentions" in name for name in recorder.get() or ())


def _on_edges(bias: Tensor, graph: Graph, shared: bool, receivers: int, senders: int) -> Tensor:
    """A bias [1 or B, H, I, J] on the edges, [*, E, H]."""
    i, j = graph.receivers, graph.senders
    place = i % max(1, receivers) * bias.shape[3] + j % max(1, senders)
    rows = bias.flatten(2).transpose(1, 2)  # [1 or B, I J, H]
    if shared or len(rows) == 1:
        on_edges = rows.index_select(1, place)
        return on_edges if shared and len(rows) > 1 else on_edges[0]
    return rows.flatten(0, 1).index_select(0, place + i // max(1, receivers) * rows.shape[1])
