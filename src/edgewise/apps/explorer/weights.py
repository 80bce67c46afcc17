"""A model's weights as the explorer's page reads them, and which models it can compute."""

import base64
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import layers
from edgewise.errors import ConfigError, a_kind
from edgewise.graphs import Graph

CAN = "the explorer shows transformers and graph transformers with plain q·k attention, one number per score"
NO_POSITIONS = "none, sinusoidal or learned positions"
READ = {layers.MeanReadout: "mean", layers.SumReadout: "sum", layers.MaxReadout: "max"}
ATTENTIONS = (layers.MultiHeadAttention, layers.GraphAttention)
Plain = dict[str, Any]


def pack(values: Tensor | np.ndarray[Any, Any], dtype: str = "<f4") -> str:
    """Numbers as little-endian float32, or another type, in base64.

    Example
        >>> pack(torch.tensor([1.0]))
        'AACAPw=='
    """
    array = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else values
    return base64.b64encode(array.astype(dtype).tobytes()).decode("ascii")


def exported(model: Any, outputs: list[str]) -> Plain:
    """A model's blocks, last normalisation, readout and output layer, as data for the page.

    Errors      ConfigError for a model that the page cannot compute: it names the part
    """
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList) or len(blocks) == 0:
        raise ConfigError(f"{a_kind(model)} has no blocks of attention: {CAN}")
    lacking = [part for part in ("embed", "norm", "readout", "head") if not hasattr(model, part)]
    if lacking:
        raise ConfigError(f"{a_kind(model)} has no part named {lacking[0]}: {CAN}")
    first = _attention(blocks[0])
    heads, shared, _ = first.split
    embed, head = model.embed, model.head
    return {
        "width": first.output.out_features,
        "heads": heads,
        "keyHeads": shared,
        "blocks": [_block(block) for block in blocks],
        "norm": _norm(model.norm),
        "readout": _readout(model),
        "head": _linear(head) if head is not None else {"weight": pack(embed.weight), "bias": None},
        "outputs": outputs,
    }


def _attention(block: nn.Module) -> layers.MultiHeadAttention:
    attention = getattr(block, "attention", None)
    if type(block) not in (layers.PreNormBlock, layers.PostNormBlock):
        raise ConfigError(f"{a_kind(block)} is no plain transformer block: {CAN}")
    if type(attention) not in ATTENTIONS:
        raise ConfigError(f"{type(attention).__name__} has scores of its own: {CAN}")
    assert isinstance(attention, layers.MultiHeadAttention)
    if attention.rotary is not None:
        raise ConfigError(f"rotary positions turn the queries and keys: {CAN}, with {NO_POSITIONS}")
    return attention


def _block(block: Any) -> Plain:
    attention, network = _attention(block), block.feed_forward
    gated = isinstance(network, layers.GatedFeedForward)
    return {
        "order": "pre" if isinstance(block, layers.PreNormBlock) else "post",
        "norms": [_norm(block.norm_1), _norm(block.norm_2)],
        "projection": _linear(attention.projection),
        "output": _linear(attention.output),
        "feedForward": {
            "gated": gated,
            "hidden": network.down.in_features,
            "activation": _activation(network.activation),
            "up": _linear(network.gate_and_value if gated else network.up),
            "down": _linear(network.down),
        },
    }


def _activation(function: Any) -> str:
    return next(name for name, known in layers.ACTIVATIONS.items() if known is function)


def _linear(layer: Any) -> Plain:
    return {"weight": pack(layer.weight), "bias": None if layer.bias is None else pack(layer.bias)}


def _norm(norm: Any) -> Plain:
    if isinstance(norm, nn.Identity):
        return {"kind": "none", "eps": 0.0, "weight": None, "bias": None}
    if isinstance(norm, nn.BatchNorm1d):  # in evaluation a linear map of each channel
        assert norm.running_var is not None and norm.running_mean is not None
        scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        shift = norm.bias.double() - norm.running_mean.double() * scale
        return {"kind": "affine", "eps": 0.0, "weight": pack(scale), "bias": pack(shift)}
    kind = "rms" if isinstance(norm, nn.RMSNorm) else "layer"
    bias = getattr(norm, "bias", None)
    return {"kind": kind, "eps": norm.eps, "weight": pack(norm.weight), "bias": None if bias is None else pack(bias)}


def _readout(model: Any) -> str:
    readout = model.readout
    if readout is None:
        return "none" if getattr(model, "class_node", None) is None else "first"
    if type(readout) not in READ:
        raise ConfigError(f"the readout {type(readout).__name__} has weights of its own: {CAN}, and mean, sum or max")
    return READ[type(readout)]


@dataclass(frozen=True)
class Reading:
    """What a model's first block reads: the graph with all that the model adds to it, and the embedded nodes."""

    graph: Graph
    features: Tensor  # [*, N, width]
    output: Tensor


@torch.no_grad()
def read(model: Any, *inputs: Any) -> Reading:
    """Run a model and note what its first block reads; the page computes the rest.

    Errors      ConfigError for a model that does more than block after block, norm, readout and output layer
    """
    seen: list[tuple[Graph, Tensor, Tensor]] = []
    hooks = [b.register_forward_hook(lambda _, given, made: seen.append((*given[:2], made))) for b in model.blocks]
    try:
        output = model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    graph, features, _ = seen[0]
    chained = all(after[1] is before[2] and after[0] is graph for before, after in pairwise(seen))
    if (
        len(seen) != len(model.blocks)
        or not chained
        or not torch.equal(_after_blocks(model, graph, seen[-1][2]), output)
    ):
        raise ConfigError(f"{a_kind(model)} does more than one block after the other: {CAN}")
    return Reading(graph, features, output)


def _after_blocks(model: Any, graph: Graph, h: Tensor) -> Tensor:
    h = model.norm(h)
    if model.readout is not None:
        h = model.readout(graph, h)
    elif getattr(model, "class_node", None) is not None:
        h = h[..., :1, :]
    return functional.linear(h, model.embed.weight) if model.head is None else model.head(h)
