"""A language model's decoding step: new tokens and the keys and values of the past in, logits and all of them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, cat, nn

from edgewise.deployment.graph import FORMS, TracedGraph
from edgewise.deployment.interface import Exportable, rule_of, with_names
from edgewise.deployment.program import evaluating
from edgewise.errors import ExportError, a_kind
from edgewise.graphs import Graph
from edgewise.layers import KeyValueCache
from edgewise.models.capabilities import LanguageModel
from edgewise.models.signature import Tokens


class Decoding(Exportable):
    """A model that continues from the keys and values of a past of any length P, 0 included.

    Shapes      tokens [B, N], past_keys_l and past_values_l [B, H, P, C] of block l -> y [B, N, vocabulary], keys_l and
                values_l [B, H, P + N, C], which are the past of the next step
    Errors      ExportError for a model without a cache of keys and values, or for a graph of one length
    Edge cases  of the example's tokens the first half is the past, and a text [N] is read as [1, N]
    """

    def __init__(self, model: nn.Module, graph: Any) -> None:
        super().__init__(model, graph, ("tokens",))
        reads = isinstance(self.signature, Tokens) and not self.signature.whole_graph
        if not isinstance(model, LanguageModel) or not reads:
            raise ExportError(f"{a_kind(model)} has no cache: it reads a text as a whole")
        single = isinstance(graph, Graph) and len(graph.sizes) == 1 and graph.is_square
        if not single or graph.rule is None or graph.rule.extent is not None:
            raise ExportError(f"a cache is for a text of any length on a graph by rule, not for {graph}")
        caches = model.caches(graph)
        if not caches or not all(type(cache) is KeyValueCache for cache in caches):
            raise ExportError("what its blocks store of the past is not keys and values")
        first = graph.rows(0, min(graph.num_receivers, 64))  # enough to see where a rule looks
        if bool((first.senders > first.receivers).any()):
            raise ExportError(f"a cache is for a graph in which no position attends to a later one, unlike {graph}")
        kinds = [f"{kind}_{block}" for block in range(len(caches)) for kind in ("keys", "values")]
        self.rule = rule_of(graph)
        self.past = tuple(f"past_{name}" for name in kinds)
        self.returned = ("y", *kinds)
        self.about = {"length": model.signature.length, "dtype": str(next(model.parameters()).dtype)[6:]}
        self.forward = with_names(self._step, ("tokens", *self.past))  # type: ignore[method-assign]

    def _step(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        tokens = given["tokens"]
        past, new = given[self.past[0]].shape[2], tokens.shape[1]
        ends = [given[name] for name in self.past]
        caches = [_Past(k, v) for k, v in zip(ends[::2], ends[1::2], strict=True)]
        nodes = new, past + new
        graph = TracedGraph.of_rule(self.rule, nodes, tokens.device, FORMS, None, False, past)
        y = self.model(graph, tokens, caches)
        return dict(zip(self.returned, (y, *(end for cache in caches for end in cache.ends)), strict=True))

    def outputs(self, graph: Any, *tensors: Any) -> dict[str, Tensor]:
        return self._halves(graph, *tensors)[1]

    def inputs(self, graph: Any, *tensors: Any) -> dict[str, Tensor]:
        return self._halves(graph, *tensors)[0]

    def _halves(self, graph: Graph, tokens: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """A text in two steps, by the model itself in one: the second step's inputs and outputs."""
        tokens = tokens.reshape(-1, tokens.shape[-1])
        caches = [_Past() for _ in self.past[::2]]
        with evaluating(self):
            y = self.model(graph, tokens, caches)
        before = tokens.shape[-1] // 2
        ends = [end for cache in caches for end in cache.ends]
        given = {name: end[:, :, :before].contiguous() for name, end in zip(self.past, ends, strict=True)}
        returned = (y[:, before:], *(end.contiguous() for end in ends))
        return {"tokens": tokens[:, before:], **given}, dict(zip(self.returned, returned, strict=True))


class _Past(KeyValueCache):
    """Keys and values [B, H, P, C] of the past, which new ones follow: `ends` are those of both."""

    def __init__(self, *past: Tensor) -> None:
        super().__init__()
        self.past, self.length = past, past[0].shape[2] if past else 0
        self.ends: tuple[Tensor, ...] = ()

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        new = k.transpose(1, 2), v.transpose(1, 2)
        self.ends = tuple(cat(pair, 2) for pair in zip(self.past, new, strict=True)) if self.past else new
        k, v = self.ends
        return k.transpose(1, 2), v.transpose(1, 2)
