"""What the contenders of a Cora epoch share: the data, and the epoch around their logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.models import Signature
from edgewise.tasks import TASKS

# A model that does not learn is no contender: after so many epochs this share of the validation nodes must be right.
EPOCHS, LEARNT = 60, 0.70
RATES = {"gcn": 0.01, "gat": 0.005}


@dataclass(frozen=True)
class Cora:
    """The citation graph with its public split; `x` is sparse."""

    graph: Graph
    x: Any
    signature: Signature
    train: Tensor
    train_labels: Tensor
    valid: Tensor
    valid_labels: Tensor


def load() -> Cora:
    """Cora from $EDGEWISE_DATA."""
    task = TASKS["citation"]()
    train, valid = task.train_batch(1, torch.Generator()), next(iter(task.batches("valid", 1)))
    assert isinstance(train.graph, Graph) and train.rows is not None and valid.rows is not None
    return Cora(train.graph, train.x, task.signature, train.rows, train.target, valid.rows, valid.target)


def epoch(data: Cora, layer: str, model: nn.Module, logits: Callable[[], Tensor]) -> Callable[[], tuple[float, float]]:
    """Forward, backward, Adam, evaluation: the training loss and the validation accuracy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATES[layer], weight_decay=5e-4)

    def step() -> tuple[float, float]:
        model.train()
        loss = functional.cross_entropy(logits()[data.train], data.train_labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = logits()[data.valid].argmax(-1) == data.valid_labels
        return loss.item(), right.float().mean().item()

    return step
