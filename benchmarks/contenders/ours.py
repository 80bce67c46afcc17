"""Edgewise itself: the planner's own choice, or one backend by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.contenders import cora, gpt
from benchmarks.inputs import Attention, Epoch, Inputs, Product, Sampling, SmallGPT
from edgewise.configuration import Choice
from edgewise.graphs import causal
from edgewise.graphs.make.sampling import sample_neighbors
from edgewise.kernels import BACKENDS, aggregate, attend, use_backend
from edgewise.kernels.call import Aggregate, Attend
from edgewise.models import GNN, GNNSettings, Tokens, Transformer, TransformerSettings


def refuses(backend: str | None) -> Callable[[Inputs], str | None]:
    """The backend's own reason; the planner has none."""

    def reason(inputs: Inputs) -> str | None:
        if isinstance(inputs, Sampling):
            return None if backend is None else "the sampler has no backends"
        if backend is None or isinstance(inputs, Epoch | SmallGPT):
            return None
        if isinstance(inputs, Product):
            return BACKENDS[backend].refusal(Aggregate(inputs.graph, inputs.x, inputs.weight, "sum"))
        call = Attend(inputs.graph, inputs.q, inputs.k, inputs.v, inputs.score)
        return BACKENDS[backend].refusal(call.lowered())

    return reason


def prepare(backend: str | None) -> Callable[[Inputs], Callable[[], Any]]:
    """The case through the public verbs."""

    def ready(inputs: Inputs) -> Callable[[], Any]:
        match inputs:
            case Attention():
                return lambda: attend(inputs.graph, inputs.q, inputs.k, inputs.v, inputs.score, backend=backend)
            case Product():
                return lambda: aggregate(inputs.graph, inputs.x, inputs.weight, backend=backend)
            case Epoch():
                return _epoch(inputs, backend)
            case SmallGPT():
                return _small_gpt(backend)
            case Sampling():
                return _sample(inputs)

    return ready


SETTINGS: dict[str, GNNSettings] = {
    "gcn": GNNSettings(layer="gcn", width=16, depth=2, dropout=0.5),
    "gat": GNNSettings(
        Choice("gat", {"heads": 8, "attention_dropout": 0.6}), width=64, depth=2, dropout=0.6, activation="elu"
    ),
}


def _epoch(inputs: Epoch, backend: str | None) -> Callable[[], Any]:
    data = cora.load()
    model = GNN(SETTINGS[inputs.layer], data.signature)
    return _on(backend, cora.epoch(data, inputs.layer, model, lambda: model(data.graph, data.x)))


def _small_gpt(backend: str | None) -> Callable[[], Any]:
    block = Choice("pre-norm", {"bias": False})
    settings = TransformerSettings(width=gpt.WIDTH, depth=gpt.DEPTH, heads=gpt.HEADS, block=block, tied=True)
    model = Transformer(settings, Tokens(gpt.VOCABULARY, gpt.VOCABULARY, length=gpt.CONTEXT))
    graph = causal(gpt.CONTEXT)
    return _on(backend, gpt.training_step(model, lambda tokens: model(graph, tokens)))


def _on(backend: str | None, step: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with use_backend(backend):
            return step()

    return run


def _sample(inputs: Sampling) -> Callable[[], Any]:
    generator = torch.Generator().manual_seed(6)
    return lambda: sample_neighbors(inputs.graph, inputs.seeds, inputs.fanouts, generator)
