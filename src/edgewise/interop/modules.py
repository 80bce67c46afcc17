"""Twins of PyTorch's own attention: nn.MultiheadAttention, and nn.TransformerEncoder, whose layers hold it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import per_tensor
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import attend


@lru_cache(maxsize=256)
def all_pairs(receivers: int, senders: int, device: torch.device) -> Graph:
    """The complete graph, the same object every time, with what is cached with it."""
    return complete(receivers, senders).to(device)


def _allowed(mask: Tensor) -> Tensor | None:
    """Where a mask of PyTorch's lets a receiver listen: bool ones say where not; None for one with finite numbers."""
    if mask.dtype == torch.bool:
        return ~mask
    return mask == 0 if mask.is_floating_point() and bool(((mask == 0) | (mask == -torch.inf)).all()) else None


@per_tensor
def _graph_of_mask(mask: Tensor) -> Graph | None:
    allowed = _allowed(mask)
    return None if allowed is None else Graph.from_mask(allowed)


@per_tensor
def _graph_of_padding(padding: Tensor, receivers: int, mask: Tensor | None) -> Graph | None:
    senders, allowed = _allowed(padding), None if mask is None else _allowed(mask)
    if senders is None or not senders.numel() or (mask is not None and allowed is None):
        return None
    return of_members(senders.cpu(), receivers, None if allowed is None else allowed.cpu()).to(padding.device)


@per_tensor
def _graph_of_heads(mask: Tensor) -> Graph | None:
    """The graph of a mask [B H, I, J] of each head: one member for each."""
    allowed = _allowed(mask)
    if allowed is None or not allowed.numel():
        return None
    return Graph.batch([Graph.from_mask(head) for head in allowed.cpu()]).to(mask.device)


def of_members(kept: Tensor, receivers: int, allowed: Tensor | None = None) -> Graph:
    """The graph of a batch: each member attends to those of its own senders that are kept and, with it, allowed.

    Shapes      kept bool [B, J], allowed bool [I, J] or [B, I, J]
    """
    first, count, senders = kept.byte().argmax(1), kept.sum(1), kept.shape[1]
    last = senders - kept.flip(1).byte().argmax(1)
    if allowed is None and bool(((last - first == count) | (count == 0)).all()):  # what is kept lies together
        starts = torch.arange(len(kept)) * senders + first
        starts, stops = (t.repeat_interleave(receivers)[:, None] for t in (starts, starts + count))
        return Graph.from_ranges(starts, stops, kept.numel())
    rows = kept[:, None].expand(-1, receivers, -1)
    rows = rows if allowed is None else rows & allowed
    return Graph.batch([Graph.from_mask(member) for member in rows])


def attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """nn.MultiheadAttention, whose masks are graphs: a receiver that may listen to nobody gives 0 and not NaN."""
    masks = [mask for mask in (key_padding_mask, attn_mask) if mask is not None]
    dropout = module.dropout if module.training else 0.0
    if not is_plain(query, key, value, *masks) or query.dim() != 3:
        return NotImplemented
    by_head = attn_mask is not None and attn_mask.dim() == 3 and key_padding_mask is None
    if any(mask.dim() != 2 for mask in masks) and not by_head:
        return NotImplemented
    if dropout >= 1 or (need_weights and dropout) or (is_causal and attn_mask is None):
        return NotImplemented
    inputs = (query, key, value) if module.batch_first else tuple(x.transpose(0, 1) for x in (query, key, value))
    (batch, receivers, _), senders = inputs[0].shape, inputs[1].shape[1]
    if key_padding_mask is not None:
        graph = _graph_of_padding(key_padding_mask, receivers, attn_mask)
    elif by_head:
        graph = _graph_of_heads(attn_mask)
    else:
        graph = all_pairs(receivers, senders, query.device) if attn_mask is None else _graph_of_mask(attn_mask)
    members = batch * module.num_heads if by_head else 1 if key_padding_mask is None else batch
    if graph is None or (graph.num_receivers, graph.num_senders) != (receivers * members, senders * members):
        return NotImplemented  # of a mask of another shape, PyTorch names it
    ends = [x.unflatten(-1, (module.num_heads, -1)) for x in _projected(module, inputs, query is key is value)]
    if by_head:
        ends = [x.transpose(1, 2).flatten(0, 2).unsqueeze(1) for x in ends]
    ends = ends if key_padding_mask is None else [x.flatten(0, 1) for x in ends]
    y, p = attend(graph, *ends, return_weights=True) if need_weights else (attend(graph, *ends, dropout=dropout), None)
    if by_head:
        y = y.view(batch, module.num_heads, receivers, -1).transpose(1, 2)
    y = module.out_proj(y.flatten(-2).view(batch, receivers, module.embed_dim))
    weights = None if p is None else dense_weights(graph, p, members if by_head else batch, receivers, senders)
    if weights is not None and by_head:
        weights = weights.view(batch, module.num_heads, receivers, senders)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    weights = None if weights is None else weights.to(y.dtype)
    return y if module.batch_first else y.transpose(0, 1), weights


def among(module: Any, graph: Graph, x: Tensor) -> Tensor:
    """nn.MultiheadAttention of x [N, C] to itself along the edges of a graph, without weights."""
    q, k, v = (t.unflatten(-1, (module.num_heads, -1)) for t in _projected(module, (x, x, x), True))
    y = attend(graph, q, k, v, dropout=module.dropout if module.training else 0.0)
    z: Tensor = module.out_proj(y.flatten(-2))
    return z


def _projected(module: Any, inputs: tuple[Tensor, ...], alike: bool) -> tuple[Tensor, ...]:
    W, b = module.in_proj_weight, module.in_proj_bias
    if alike and W is not None:
        return functional.linear(inputs[0], W, b).chunk(3, -1)
    maps = W.chunk(3) if W is not None else (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = (None, None, None) if b is None else b.chunk(3)
    return tuple(functional.linear(x, m, c) for x, m, c in zip(inputs, maps, biases, strict=True))


def dense_weights(graph: Graph, p: Tensor, batch: int, receivers: int, senders: int) -> Tensor:
    """Weights [B, E, H] of one graph, or [E, H] of a batch's, as [B, H, I, J]."""
    i, j, heads = graph.receivers % max(1, receivers), graph.senders % max(1, senders), p.shape[-1]
    place, rows = i * senders + j, receivers * senders
    if p.dim() == 2:
        place, rows = place + graph.receivers // max(1, receivers) * rows, rows * batch
    dense = p.new_zeros(*p.shape[:-2], rows, heads).index_add(-2, place, p)
    return dense.view(batch, receivers, senders, heads).permute(0, 3, 1, 2)


def encoder_layer(
    module: Any, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
) -> Any:
    """nn.TransformerEncoderLayer, whose attention may be a twin's in evaluation too."""
    if not is_plain(src) or not _reads_any_mask(module.self_attn, nn.MultiheadAttention):
        return NotImplemented
    options = (src_mask, src_key_padding_mask, is_causal)
    if module.norm_first:
        x = src + module._sa_block(module.norm1(src), *options)
        return x + module._ff_block(module.norm2(x))
    x = module.norm1(src + module._sa_block(src, *options))
    return module.norm2(x + module._ff_block(x))


def encoder(module: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None) -> Any:
    """nn.TransformerEncoder, which hands its masks on as they are, so that their graphs are made once."""
    if not is_plain(src) or (is_causal and mask is None):  # of which PyTorch says that it needs a mask
        return NotImplemented
    if not all(_reads_any_mask(layer, nn.TransformerEncoderLayer) for layer in module.layers):
        return NotImplemented
    left_out = _left_out(module, src, mask, src_key_padding_mask)
    if left_out is not None and _allowed(src_key_padding_mask) is None:
        return NotImplemented
    for layer in module.layers:
        is_hint = bool(is_causal) and mask is not None
        src = layer(src, src_mask=mask, is_causal=is_hint, src_key_padding_mask=src_key_padding_mask)
    src = src if left_out is None else src.masked_fill(left_out[..., None], 0.0)
    return src if module.norm is None else module.norm(src)


def _reads_any_mask(part: Any, kind: Any) -> bool:
    """Whether a part's forward pass is PyTorch's or its twin's: others are given masks of numbers, not of bools."""
    return getattr(type(part), "twin_of", type(part)).forward is kind.forward


def _left_out(module: Any, src: Tensor, mask: Any, padding: Any) -> Tensor | None:
    """The padding [B, L] where PyTorch leaves it out, as a nested tensor does, and gives 0 there: in evaluation, where
    nothing learns and each text begins at the first position. Else None."""
    first = module.layers[0]
    if padding is None or mask is not None or first.training or src.dim() != 3 or torch.is_autocast_enabled():
        return None
    if not (getattr(module, "use_nested_tensor", False) and torch.backends.mha.get_fastpath_enabled()):
        return None
    if torch.is_grad_enabled() and any(t.requires_grad for t in (src, *first.parameters())):
        return None
    out = padding.bool()
    if getattr(module, "mask_check", True) and (
        torch.compiler.is_compiling() or bool((out[:, 1:] < out[:, :-1]).any())
    ):
        return None
    return out


def _refusal(module: Any) -> str | None:
    if module.bias_k is not None:
        return "add_bias_kv=True"
    return "add_zero_attn=True" if module.add_zero_attn else None


TWINS: dict[str, Twin] = {
    kind.__name__: twin
    for kind, twin in (
        (nn.MultiheadAttention, Twin(attention, _refusal)),
        (nn.TransformerEncoderLayer, Twin(encoder_layer)),
        (nn.TransformerEncoder, Twin(encoder)),
    )
}
