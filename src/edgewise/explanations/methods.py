"""`explain`: one number of a model's outputs, and what each edge and each node contributes to it, by any method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import ExplanationError, nearest
from edgewise.explanations import attention, gradients, removal
from edgewise.explanations.explained import Explained, Target
from edgewise.explanations.naming import Listing, Names, Sum, largest
from edgewise.explanations.reach import around
from edgewise.graphs import Graph
from edgewise.graphs.checks import shown
from edgewise.markup import element, note, table


@dataclass(frozen=True)
class Method:
    """A way to explain: what a score of it means, in a sentence; whether scores have signs; what computes them."""

    meaning: str
    signed: bool
    run: Callable[..., tuple[Any, ...]]


EXPLANATIONS = {
    "attention": Method("how much attention a layer pays along an edge", False, attention.weights),
    "rollout": Method("how much of the output comes from a node through all layers of attention", False,
                      attention.rollout),
    "flow": Method("the largest flow from a node to the output through all layers of attention", False, attention.flow),
    "relevance": Method("attention through all layers, as far as the output grows with it", False, attention.relevance),
    "gradient": Method("the gradient times the input, by which the output would begin to change", True,
                       gradients.gradient),
    "integrated-gradients": Method("the part of each edge and node in the output, which is the sum of the parts", True,
                                   gradients.integrated),
    "learned-mask": Method("the mask that keeps the output with the fewest edges and nodes", False, removal.learned),
    "leave-one-out": Method("how much the output falls without an edge or a node", True, removal.leave_one_out),
}  # fmt: skip


@dataclass(frozen=True)
class Explanation:
    """What the edges and nodes of a graph contribute to one number of a model's outputs.

    Symbols     edges [E] in the order of `graph`, positive where an edge raises the output; None where the model reads
                no edges; nodes [J], of its senders; value = F; missed = by how much integrated gradients' sums miss;
                features = of gradients, what each feature adds to its node's score, [J, C], and the scores of the
                further features that vary; empty where x has tokens or is sparse; names = how all of it is called
    """

    method: str
    graph: Graph
    edges: Tensor | None
    nodes: Tensor
    value: float
    missed: float | None = None
    features: Sequence[Tensor] = ()
    explained: Explained = field(repr=False, kw_only=True)
    names: Names = field(default=Names(), repr=False, kw_only=True)

    @property
    def signed(self) -> bool:
        """Whether a negative score says that something speaks against the output."""
        return EXPLANATIONS[self.method].signed

    def sums(self) -> list[Sum]:
        """What the scores add up to, of features and of edges: the output is the baseline, the parts and a remainder.

        Edge cases  a method without signs has none, and what has no finite output at its baseline is left out
        """
        if not self.signed:
            return []
        explained, made = self.explained, list[Sum]()
        removing = self.method == "leave-one-out"
        if explained.baseline is not None:
            parts = self.features or [self.nodes]
            start = explained.gates(torch.zeros(sum(map(prod, explained.shapes)), device=explained.device))
            zero: Any = start if self.features else torch.zeros_like(self.nodes)
            made += self._sum("features", parts, self.names.absent(explained), nodes=zero)
        if self.edges is not None:
            zero = torch.zeros_like(self.edges)
            made += self._sum("edges", [self.edges], "no edges: nothing is received", edges=zero, removing=removing)
        return made

    @torch.no_grad()
    def _sum(self, of: str, parts: Sequence[Tensor], meaning: str, **gates: Any) -> list[Sum]:
        try:
            baseline = float(self.explained(**gates))
        except ExplanationError:
            return []
        total = sum(float(part.double().sum()) for part in parts)
        return [Sum(of, total, baseline, self.value - baseline - total, meaning)]

    def listings(self) -> list[Listing]:
        """The largest scores in tables, by their names: words, features, their entries, edges and nodes."""
        return largest(self.names, self.explained, self.edges, self.nodes, self.features, self.signed)

    def _repr_html_(self) -> str:
        body = [element("p", f"{EXPLANATIONS[self.method].meaning} ({self.method})")]
        body += [element("p", self.names.told(self.value, one)) for one in self.sums()]
        for one in self.listings():
            body += [element("p", one.title), table([*one.head, "score"], one.rows)]
        return note(f"Why {self.names.what}: {self.value:.4g}{self.names.of_unit}", *body)


def explain(
    model: nn.Module,
    graph: Any,
    x: Any,
    target: Target,
    method: str = "integrated-gradients",
    *,
    features: tuple[Any, ...] = (),
    edges: Graph | None = None,
    baseline: float | Tensor | None = 0.0,
    node: int | None = None,
    features_baseline: float | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> Explanation:
    """Why a model's output is what it is: a score for every edge and for every node.

    Symbols     model(graph, x, *features) = outputs; target = an index of the outputs, such as (node, class) or
                (graph, class), or a function of them: an index of a row means its largest number; method = a name of
                `EXPLANATIONS`; edges = whose edges are explained (the model's graph; of an encoder-decoder's the cross
                graph); baseline = the features that stand for "not there", None where none do: a node's
                score is then half of its edges'; node = the receiver whose output it is,
                inferred from an index; features_baseline = what stands for "not there" in `features`, which then vary
                with x; None: they stay; layer, head = of the method "attention": the last, and the mean of all
    Shapes      outputs, x and graph as the model has them -> edges [E] in the order of the graph's edges, nodes [J]
    Errors      ExplanationError for an unknown method, a method that has nothing to say of the model (rollout without
                attention), a target that is no number of the outputs, or a layer or head that is not there
    Edge cases  of a leading batch the member is explained whose output the index names; of a large graph only nodes
                that can have an influence are evaluated, where the output stays as it is; the model is evaluated
    Cost        that of the method, in forward and backward passes
    Differs     an edge is explained as what it carries through all layers together, as PyG does

    Example
        >>> from edgewise.layers import GCN
        >>> path = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3)  # 0 → 1 → 2
        >>> layer = GCN(1, 1)
        >>> _ = layer.linear.weight.data.fill_(1.0)
        >>> why = explain(layer, path, torch.tensor([[5.0], [2.0], [2.0]]), (2, 0), "leave-one-out")
        >>> why.value, why.edges.tolist(), why.nodes.tolist()  # 2 hears 1 and itself, by 1/2 each
        (2.0, [0.0, 1.0], [0.0, 1.0, 1.0])
    """
    if not isinstance(features, tuple | list):
        what = "a tuple of what the model reads after x, as (edge_attr,)"
        raise ExplanationError(f"features must be {what}, not {shown(features)}")
    explained = Explained(model, (graph, x, *features), target, edges, (baseline, features_baseline), node)
    return scores(explained, method, layer, head)


@torch.inference_mode(False)
@torch.enable_grad()
def scores(
    explained: Explained, method: str, layer: int | None = None, head: int | None = None, names: Names | None = None
) -> Explanation:
    """What `explain` returns, for a number that is known already; names = how what it is about is called."""
    if not isinstance(method, str) or method not in EXPLANATIONS:
        known = ", ".join(EXPLANATIONS)
        raise ExplanationError(f"there is no method {method!r}{nearest(method, EXPLANATIONS)}; known are {known}")
    for name, value in (("layer", layer), ("head", head)):
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise ExplanationError(f"{name} must be a whole number, or None, not {shown(value)}")
    if method != "attention" and (layer, head) != (None, None):
        raise ExplanationError(f"a layer and a head are chosen for the method 'attention' alone, not for {method!r}")
    if explained.baseline is None and not explained.hops:
        what = "reads no edges, and no features stand for nodes that are not there"
        raise ExplanationError(f"{type(explained.model).__name__} {what}: there is nothing to leave out of this input")
    small = around(explained)
    chosen = {} if method != "attention" else {"layer": -1 if layer is None else layer, "head": head}
    near = explained if small is None else small.explained
    of_edges, of_nodes, missed, features = (*EXPLANATIONS[method].run(near, **chosen), None, [])[:4]
    if not near.hops:
        of_edges = None
    if of_nodes is None:
        of_nodes = halves(near, of_edges)
    if small is not None:
        of_edges, of_nodes, features = small.spread(of_edges, of_nodes, features)
    made = partial(Explanation, method, explained.edges, explained=explained, names=names or Names(features=None))
    return made(of_edges, of_nodes.detach(), explained.value, missed, features)


def halves(explained: Explained, of_edges: Tensor | None) -> Tensor:
    """Half of the scores of a node's edges, in and out: all nodes' add up to all edges'."""
    graph = explained.edges
    if of_edges is None or not graph.is_square:
        return torch.zeros(explained.num_nodes, device=explained.device)
    nodes = of_edges.new_zeros(graph.num_receivers).index_add(0, graph.receivers, 0.5 * of_edges)
    return nodes.index_add(0, graph.senders, 0.5 * of_edges)
