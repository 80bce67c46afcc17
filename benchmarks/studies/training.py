"""Training for a number of the processor's seconds, whatever a step costs."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import edgewise
from edgewise.training import Result


def learn(model: nn.Module, loss: Callable[[torch.Generator], Tensor], seconds: float, rate: float = 0.004) -> int:
    """Train by AdamW for so many seconds; the number of steps.

    The rate rises over the first twentieth of the time and falls along a cosine. `loss` is that of a batch which the
    generator (seed 0) draws.
    """
    optimizer = torch.optim.AdamW(model.parameters(), rate, (0.9, 0.99))
    generator, began, steps = torch.Generator().manual_seed(0), time.process_time(), 0
    while (part := (time.process_time() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = max(rate * min(1.0, part / 0.05) * 0.5 * (1 + math.cos(math.pi * part)), 1e-6)
        optimizer.zero_grad()
        loss(generator).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
    return steps


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def tested(recipe: str, run: Path, **options: Any) -> float:
    """The test figure of a recipe that is trained without a simple method beside it."""
    evaluation = {"simple": 0} | options.pop("evaluation", {})
    made = edgewise.train(recipe, run, evaluation=evaluation, **options)
    assert isinstance(made, Result) and made.test is not None
    return made.test
