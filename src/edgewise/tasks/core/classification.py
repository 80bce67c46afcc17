"""Tasks that choose one class per output: of nodes, images, graphs, or the next token of a text."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Confusion, Drawing, Section
from edgewise.tasks.core.task import Pattern, Task


class Classification(Task):
    """A task that chooses one class per output: trained on the cross-entropy, measured by the accuracy.

    Equation    loss = -1/M Σ_m log softmax(o_m)[t_m];  accuracy = 1/M Σ_m [argmax o_m = t_m]
    Edge cases  without names of classes (`classes` is empty), no confusion matrix is drawn
    """

    metric = "accuracy"
    maximise = True
    classes: tuple[str, ...] = ()

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(outputs, batch)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return classification_score(outputs, batch)

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        if self.classes and self.has_test:
            yield Section("Confusion matrix", lambda: [self.confusion(model, pattern)])

    @torch.no_grad()
    def confusion(self, model: nn.Module, pattern: Pattern) -> Drawing:
        """How the test examples of each class were classified."""
        counts = torch.zeros(len(self.classes), len(self.classes), dtype=torch.int64)
        for batch in self.batches("test", 500, pattern):
            predicted = batch.read(model(*batch.inputs)).argmax(-1)
            counts.index_put_((batch.target.reshape(-1), predicted), torch.ones_like(predicted), accumulate=True)
        correct = f"{int(counts.trace()):,} of {int(counts.sum()):,} test examples are classified correctly (diagonal)."
        return Drawing("confusion", Confusion(counts.numpy(), self.classes), correct)


def mean_cross_entropy(outputs: Tensor, batch: Batch) -> Tensor:
    """-1/M Σ_m log softmax(o_m)[t_m] over the batch's M targets.

    Example
        >>> from edgewise.graphs import complete
        >>> batch = Batch(complete(1), torch.zeros(1, 3), target=torch.tensor([2]))
        >>> mean_cross_entropy(torch.tensor([[0.0, 0.0, 0.0]]), batch)  # log 3
        tensor(1.0986)
    """
    return functional.cross_entropy(batch.read(outputs), batch.target.reshape(-1))


def classification_score(outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Sums over the batch: cross-entropy as "loss", correct predictions as "accuracy", and how many as "count".

    Example
        >>> from edgewise.graphs import complete
        >>> batch = Batch(complete(1), torch.zeros(2, 3), target=torch.tensor([2, 0]))
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
