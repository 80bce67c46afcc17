"""Node regression: one graph, a value per node, and the nodes whose value is known in each split."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isnan
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.tasks.core.drawing import Drawing, Parity, Section
from edgewise.tasks.core.regression import Regression, one_each
from edgewise.tasks.core.task import Pattern
from edgewise.tasks.nodes.classification import Nodes
from edgewise.tasks.nodes.sampled import SampledNodes

FIFTHS = 5  # colours of a drawing
MOST_DRAWN = 5_000  # points


class NodeRegression(Regression, SampledNodes):
    """Each node has a value; the other nodes are context.

    Equation    as `Regression`, M the nodes of a batch
    Edge cases  nodes without a value, NaN, are in no split
    """

    unit = "nodes"

    def __init__(
        self, name: str, nodes: Nodes, fanouts: tuple[int, ...] = (), inductive: bool = False, workers: int = 0
    ) -> None:
        nodes = replace(nodes, labels=one_each(nodes.labels))
        super().__init__(name, nodes, fanouts, inductive, workers=workers)
        if len(train := nodes.splits["train"]):
            self.fit(nodes.labels[train])

    def _targets_of(self, labels: Tensor) -> Tensor:
        return labels

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Attention", lambda: [self.attention(model, pattern)])
        if self.has_test:
            yield Section("Predicted and measured", lambda: [self.parity(model, pattern)])

    @torch.no_grad()
    def parity(self, model: nn.Module, pattern: Pattern) -> Drawing:
        """The value of each test node, predicted against measured."""
        pairs = []
        for batch in self.batches("test", 500, pattern):
            values = self.mean + self.deviation * batch.read(model(*batch.inputs)).double().squeeze(-1)
            pairs.append(torch.stack([batch.target.double(), values]))
        measured, predicted = torch.cat(pairs, 1)
        far = (measured - predicted).abs()
        worst = f"The largest error is {far.max():.4g}, and half of them are below {far.median():.4g}."
        some = torch.linspace(0, len(measured) - 1, min(MOST_DRAWN, len(measured))).long()
        return Drawing("parity", Parity(measured[some].numpy(), predicted[some].numpy(), ""), worst)

    def _coloured(self, outputs: Tensor) -> tuple[Tensor, Tensor, tuple[str, ...], str]:
        return fifths(self.mean + self.deviation * outputs.double().squeeze(-1), "the predicted value")

    def _named(self, output: Tensor, label: Any) -> dict[str, Any]:
        return {"value": self.value(output), "measured": None if isnan(label) else label}


def fifths(values: Tensor, what: str) -> tuple[Tensor, Tensor, tuple[str, ...], str]:
    """How a drawing shows values of nodes: the fifth of each, no cross, the fifths' names, and their meaning."""
    values = values.contiguous()
    ends = values.quantile(torch.arange(1, FIFTHS, dtype=torch.float64) / FIFTHS)
    legend = (*(f"up to {end:.3g}" for end in ends.tolist()), "above")
    none = torch.zeros(len(values), dtype=torch.bool)
    return torch.searchsorted(ends, values), none, legend, f"the colour is {what}, in fifths of the nodes"
