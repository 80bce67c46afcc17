"""On a GPU, a model's forward and backward pass as CUDA graphs, where all steps are alike.

A small model's kernels take microseconds each, and launching one takes as long: captured, a pass is launched at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.graphs import Graph

CHANGES = 8  # kinds of inputs after which no more are captured


class Captured:
    """`model(*inputs)` in training: from the second call in a row with inputs of one kind on, by CUDA graphs.

    Symbols     autocast = the context in which it is captured; refused = why it is not captured any more, or ""
    Edge cases  inputs are of one kind if their tensors have the same shapes and all else is the same, or a graph of an
                equal rule. A model whose outputs are no tensor, that draws random numbers on the host or waits for
                numbers of the card runs as it is
    """

    def __init__(self, model: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self.model, self.autocast = model, autocast
        self.kind: tuple[Any, ...] = ()
        self.held: tuple[Any, ...] = ()  # what the kind names by its address
        self.replay: Callable[..., Any] | None = None
        self.changes, self.refused = 0, ""

    def __call__(self, *inputs: Any) -> Any:
        if self.refused:
            return self.model(*inputs)
        if (kind := _kind(inputs)) != self.kind:
            self.kind, self.held, self.replay = kind, inputs, None
            self.changes += 1
            if self.changes > CHANGES:
                self.refused = "the shapes or graphs of batches change"
            return self.watched(inputs)
        if self.replay is None:
            self.replay = self.capture(inputs)
        return self.model(*inputs) if self.replay is None else self.replay(*_tensors(inputs))

    def watched(self, inputs: tuple[Any, ...]) -> Any:
        """An ordinary pass, and whether one like it can be captured."""
        before = torch.get_rng_state()
        outputs = self.model(*inputs)
        if not isinstance(outputs, Tensor):
            self.refused = "its outputs are more than a tensor"
        elif not torch.equal(before, torch.get_rng_state()):
            self.refused = "the host draws random numbers in a step"
        return outputs

    def capture(self, inputs: tuple[Any, ...]) -> Callable[..., Any] | None:
        """The pass as a function of its tensors; rehearsals move neither buffers nor random numbers."""
        buffers, drawn = [b.clone() for b in self.model.buffers()], torch.cuda.get_rng_state()
        try:
            with self.autocast():
                sample = tuple(x.detach().clone().requires_grad_(x.requires_grad) for x in _tensors(inputs))
                made: Any = torch.cuda.make_graphed_callables(_OfTensors(self.model, inputs), sample, 3, True)
        except RuntimeError as error:  # of whatever a graph cannot hold
            self.refused = " ".join(str(error).split())[:200]
            torch.cuda.synchronize()
            generator = torch.cuda.default_generators[torch.cuda.current_device()]  # counts on for the failed graph
            generator.graphsafe_set_state(torch.Generator("cuda").graphsafe_get_state())
            made = None
        torch.cuda.set_rng_state(drawn)
        with torch.no_grad():
            for buffer, value in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(value)
        return made if made is None else lambda *tensors: made(*tensors)


class _OfTensors(nn.Module):
    """A model as a function of its inputs' tensors; all else stays as it is."""

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, *tensors: Tensor) -> Any:
        rest = iter(tensors)
        return self.model(*(next(rest) if isinstance(x, Tensor) else x for x in self.inputs))


def _tensors(inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return tuple(x for x in inputs if isinstance(x, Tensor))


def _kind(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What has to stay for a CUDA graph to serve."""
    found: list[Any] = []
    for x in inputs:
        if isinstance(x, Tensor):
            found.append((x.shape, x.stride(), x.dtype, x.device))
        elif isinstance(x, Graph) and x.rule is not None:  # as good as another that is equal
            found.append((x.device, x.num_receivers, x.num_senders, x.offset, x.rule))
        else:
            found.append(id(x))
    return tuple(found)
