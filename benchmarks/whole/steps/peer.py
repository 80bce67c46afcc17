"""A contender's training step, and what the steps of all peers share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.training.loop import Trainer


@dataclass
class Peer:
    """Who it is, its step, and its model."""

    name: str
    step: Callable[[], object]
    model: nn.Module


def forms(
    name: str,
    trainer: Trainer,
    make: Callable[[], nn.Module],
    batches: Callable[[], Iterator[Any]],
    loss: Callable[[Callable[..., Any], Any], Tensor],
    dynamic: bool | None = None,
) -> list[Peer]:
    """A model as it comes and under `torch.compile`, each with batches of its own; `loss(model, batch)` calls it."""

    def peer(called: str, compiled: bool) -> Peer:
        torch.manual_seed(0)
        model = make()
        run = torch.compile(model, dynamic=dynamic) if compiled else model
        optimizer, drawn, clip = optimizer_of(model, trainer), batches(), trainer.settings.clip
        weights = list(model.parameters())

        def step() -> float:
            value = loss(run, next(drawn))
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(weights, clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return value.item()

        return Peer(called, step, model)

    return [peer(name, False), peer(f"{name}, compiled", True)]


def described(trainer: Trainer) -> tuple[Any, Any]:
    """The settings and the signature of Edgewise's model, whichever it is."""
    model: Any = trainer.model
    return model.settings, model.signature


def optimizer_of(model: nn.Module, trainer: Trainer) -> torch.optim.Optimizer:
    """PyTorch's fused AdamW, which is the fastest that it has on a CPU."""
    return torch.optim.AdamW(model.parameters(), lr=trainer.learning_rate, fused=True)


def turns(count: int, size: int) -> Iterator[Tensor]:
    """Numbers of examples without end, in a new order each time."""
    while True:
        yield from (part for part in torch.randperm(count).split(size) if len(part) == size)
