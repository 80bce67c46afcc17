"""What is left of a model on one graph that never changes: the embeddings that it computes, and what they say."""

from collections.abc import Callable

from torch import Tensor, nn

from edgewise.graphs import Graph, complete
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Alone


class Queries(nn.Module):
    """Embeddings of all nodes, and scores of queries by them; no graph is read.

    Shapes      z [N, C], queries [M, Q] int64, rows of z -> scores(z, queries) [M, A]
    """

    def __init__(self, z: Tensor, scores: Callable[[Tensor, Tensor], Tensor], example: Tensor) -> None:
        super().__init__()
        self.z: Tensor
        self.register_buffer("z", z.detach())
        self.scores = scores
        answers = scores(z, example).shape[-1]
        self.signature = Features(example.shape[-1], answers, length=1, classes=False)

    def forward(self, graph: Graph, queries: Tensor) -> Tensor:
        return self.scores(self.z, queries)

    @classmethod
    def alone(cls, z: Tensor, scores: Callable[[Tensor, Tensor], Tensor], example: Tensor) -> Alone:
        """The module with an example of its call."""
        return Alone(cls(z, scores, example), (complete(1), example), ("queries",))
