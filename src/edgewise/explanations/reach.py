"""What can have an influence on a node, by how many layers lie between; of a large graph a small one of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, ExplanationError
from edgewise.explanations.explained import Explained
from edgewise.graphs import Graph
from edgewise.layers.plain.linear import SparseFeatures

LEAST = 64  # nodes: a smaller graph is read whole
SAME = 1e-4  # relative, by which the output without what is far may differ by rounding: float32, a different order


@dataclass(frozen=True)
class Near:
    """What is explained, on the nodes near it. Symbols: nodes, edges = their numbers in the whole graph; sizes = of the
    features there."""

    explained: Explained
    nodes: Tensor
    edges: Tensor
    whole: Graph
    sizes: list[tuple[int, ...]]

    def outputs(self, outputs: Tensor) -> Tensor:
        """A model's outputs on the nodes near, at their places in the whole graph: of what is far away 0."""
        return outputs.new_zeros(self.whole.num_receivers, outputs.shape[-1]).index_copy(0, self.nodes, outputs)

    def spread(
        self, of_edges: Tensor | None, of_nodes: Tensor, features: list[Tensor]
    ) -> tuple[Tensor | None, Tensor, list[Tensor]]:
        """Scores on the whole graph: of what is far away 0."""
        nodes = of_nodes.new_zeros(self.whole.num_senders).index_copy(0, self.nodes, of_nodes)
        made = []
        for number, (part, size) in enumerate(zip(features, self.sizes, strict=False)):
            rows = self.edges if number and size[0] == self.whole.num_edges else self.nodes
            made.append(part.new_zeros(size[0], *part.shape[1:]).index_copy(0, rows, part))
        if of_edges is None:
            return None, nodes, made
        return of_edges.new_zeros(self.whole.num_edges).index_copy(0, self.edges, of_edges), nodes, made


def around(explained: Explained) -> Near | None:
    """The nodes within one step more than there are layers, whose degrees then are right; None where all are to be
    read, or where the output on them is another: where a model reads the whole graph otherwise than along its edges."""
    graph, node, x = explained.edges, explained.node, explained.x
    own = graph is explained.inputs[0] and graph.is_square and graph.sizes.shape[0] == 1 and graph.rule is None
    if node is None or not own or graph.num_receivers < LEAST or len(x.shape) > 2 or len(explained.inputs) > 3:
        return None
    near = _steps_back(graph, node, explained.hops + 1)[-1]
    nodes = near.nonzero()[:, 0]
    if 2 * len(nodes) > graph.num_receivers:
        return None
    edges = (near[graph.receivers] & near[graph.senders]).nonzero()[:, 0]
    place = int((nodes == node).nonzero())
    small = graph.subgraph(nodes)
    whole = explained.target

    def target(outputs: Any) -> Tensor:
        """The target reads the node where it is in the whole graph."""
        if not isinstance(outputs, Tensor) or outputs.shape[:-1] != nodes.shape:
            raise ExplanationError("the outputs are not rows of numbers, one for each node")
        spread = outputs.new_zeros(graph.num_receivers, outputs.shape[-1]).index_copy(0, nodes, outputs)
        return whole(spread)

    baseline = explained.baseline
    if isinstance(baseline, Tensor) and baseline.ndim > 1 and baseline.shape[-2] == len(near):
        baseline = baseline.index_select(-2, nodes)
    try:
        more = [_cut(given, graph, nodes, edges) for given in explained.inputs[2:]]
        inputs, both = (small, _rows(x, nodes), *more), (baseline, explained.features_baseline)
        made = Explained(explained.model, inputs, target, small, both, place)
    except EdgewiseError:
        return None
    return Near(made, nodes, edges, graph, explained.shapes) if same(made.value, explained.value) else None


def within_reach(explained: Explained) -> tuple[Tensor, Tensor]:
    """Which edges [E] and nodes [J] can have an influence.

    Edge cases  all, where the output is another without those further away: where a model reads the whole graph
                otherwise than along its edges (a virtual node, attention among all nodes, a norm over them)
    """
    graph, node = explained.edges, explained.node
    counts = graph.num_edges, explained.num_nodes
    edges, nodes = (torch.ones(count, dtype=torch.bool, device=graph.device) for count in counts)
    if node is None or explained.alone or not graph.is_square:
        return edges, nodes
    before, near = _steps_back(graph, node, explained.hops)
    within = before[graph.receivers]
    return (within, near) if _is_enough(explained, within, near) else (edges, nodes)


def _steps_back(graph: Graph, node: int, steps: int) -> tuple[Tensor, Tensor]:
    """The nodes from which `steps` - 1 edges at most lead to a node, and those from which `steps` do, [N] each."""
    before = near = torch.arange(graph.num_receivers, device=graph.device) == node
    for _ in range(steps):
        before, near = near, near.index_put((graph.senders[near[graph.receivers]],), near.new_ones(()))
    return before, near


@torch.no_grad()
def _is_enough(explained: Explained, edges: Tensor, nodes: Tensor) -> bool:
    """Whether the output is the same with the other nodes at the baseline, and without the other edges."""
    try:
        without = explained(nodes.float()), explained(None, edges.float(), removing=True)
    except ExplanationError:  # it is no number without them
        return False
    return all(same(float(value), explained.value) for value in without)


def same(value: float, whole: float) -> bool:
    """Whether an output without what is far away is, but for rounding, the one of the whole graph."""
    return abs(value - whole) <= SAME * max(1.0, abs(whole))


def _cut(given: Any, graph: Graph, nodes: Tensor, edges: Tensor) -> Any:
    """Further features of the edges or nodes near, by how many rows there are; an error where that does not tell."""
    if given is None:
        return None
    count = given.shape[-2:][0] if isinstance(given, Tensor) and given.ndim else None
    if graph.num_edges == graph.num_receivers or count not in (graph.num_edges, graph.num_receivers):
        raise ExplanationError("whether the features are of edges or of nodes is not known")
    return given.index_select(-min(2, given.ndim), edges if count == graph.num_edges else nodes)


def _rows(x: Any, nodes: Tensor) -> Any:
    if isinstance(x, SparseFeatures):
        return x[nodes]
    return x.index_select(-2 if x.is_floating_point() else -1, nodes)
