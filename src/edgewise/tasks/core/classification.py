"""Loss and scores of every task that chooses one class per output: nodes, images and the next character."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.tasks.core.task import Batch


def mean_cross_entropy(outputs: Tensor, batch: Batch) -> Tensor:
    """-1/M Σ_m log softmax(o_m)[t_m] over the batch's M targets.

    Example
        >>> batch = Batch(None, torch.zeros(1, 3), target=torch.tensor([2]))
        >>> mean_cross_entropy(torch.tensor([[0.0, 0.0, 0.0]]), batch)  # log 3
        tensor(1.0986)
    """
    return functional.cross_entropy(batch.read(outputs), batch.target.reshape(-1))


def classification_score(outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Sums over the batch: cross-entropy as "loss", right answers as "accuracy", and how many as "count".

    Example
        >>> batch = Batch(None, torch.zeros(2, 3), target=torch.tensor([2, 0]))
        >>> score = classification_score(torch.tensor([[0.0, 0.0, 9.0], [0.0, 9.0, 0.0]]), batch)
        >>> score["accuracy"].item(), score["count"].item()
        (1.0, 2.0)
    """
    logits, target = batch.read(outputs.detach()).double(), batch.target.reshape(-1)
    return {
        "loss": functional.cross_entropy(logits, target, reduction="sum"),
        "accuracy": (logits.argmax(-1) == target).sum().double(),
        "count": torch.tensor(float(batch.size), dtype=torch.float64, device=logits.device),
    }


def class_probabilities(logits: Tensor, classes: tuple[str, ...]) -> dict[str, float]:
    """Each class with its probability, the likeliest first."""
    probabilities = logits.double().softmax(-1)
    return {classes[c]: probabilities[c].item() for c in probabilities.argsort(descending=True, stable=True).tolist()}
