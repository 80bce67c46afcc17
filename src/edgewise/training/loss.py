"""What a step's loss is made of: that of the task and the model's own, each by its share of the global batch."""

from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.graphs.partition import Partition
from edgewise.models.signature import OfMembers, Penalised
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import Task


class Weights(NamedTuple):
    """Those of a micro-batch's means in the mean of the global batch: of the task's loss, and of the model's own."""

    loss: float
    penalty: float


WHOLE = Weights(1.0, 1.0)


def weighed(whole: Batch, part: Batch, terms: int, per_graph: bool) -> Weights:
    """The weights of a rank's part of a micro-batch: by its targets, and by its nodes, which need not go together.

    Symbols     terms = those of the global batch; per_graph = whether examples are graphs: then by these, not by nodes
    """
    own = part.graph.share(per_graph) if isinstance(part.graph, Partition) else 1.0
    return Weights(part.size / terms, own * whole.size / terms)


def mean_loss(task: Task, prediction: Tensor | Penalised | OfMembers, batch: Batch, weights: Weights = WHOLE) -> Tensor:
    """The mean loss of a batch, and the model's own where it has one, weighed; of several members, the mean of theirs.

    Edge cases  0 for a part without targets, and for the penalty of one without examples
    """
    if isinstance(prediction, OfMembers):
        return torch.stack([mean_loss(task, member, batch, weights) for member in prediction.members]).mean()
    outputs = prediction.outputs if isinstance(prediction, Penalised) else prediction
    none = batch.size == 0 and isinstance(outputs, Tensor)
    loss = (outputs[:0].sum() if none else task.loss(outputs, batch)) * weights.loss
    if isinstance(prediction, Penalised):
        penalty = prediction.penalty if weights.penalty else prediction.penalty.nan_to_num()  # a mean of nothing
        loss = loss + penalty * weights.penalty
    return loss
