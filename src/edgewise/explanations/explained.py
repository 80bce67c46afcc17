"""What is explained: one number of a model's outputs, as a function of gates on its nodes and on its edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import ExplanationError
from edgewise.graphs import EncoderDecoderGraph, Graph
from edgewise.graphs.checks import shown
from edgewise.graphs.make.content import Held
from edgewise.kernels.call import Call, check_graph
from edgewise.kernels.gates import Gates, gated
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models.edge_index import OnEdgeIndex, on_graphs

Target = int | Sequence[int] | Callable[[Tensor], Tensor]
Baseline = float | Tensor | None
MOST = 1 << 21  # features of all nodes together that have a gate each


class Explained:
    """One number of a model's outputs, and gates through which it reads its nodes and edges.

    Equation    F(g, m) = t(f(b + g ⊙ (x − b), m)): node j's features are x_j where g_j = 1 and the baseline b_j where
                g_j = 0; the messages of edge e are scaled by m_e in every layer, and without gates F is the prediction;
                a list of gates has one for each feature: g [J, C], and those of the further features that vary
    Symbols     model = f; inputs = (graph, x, *more) as the model reads them; target = t, an index of the outputs or a
                function of them: an index of a row takes its largest number; edges = the graph whose edges have
                gates, the model's own unless given; baseline = b, a number or a tensor that broadcasts to x; of
                tokens it is an embedding, and 0 unless given; None: no features stand for "not there" (of atoms,
                say), so that nodes have no gates; node = the receiver that the number belongs to, where it belongs
                to one: of an encoder-decoder counted from the first source. A pair of baselines: that of x, and a
                number that stands for "not there" in the features that the model reads after x, such as those of edges
                (None: they stay)
    Shapes      g [J], m [E] in the order of `edges`
    Errors      ExplanationError for outputs that the target does not make one finite number of, for an index where
                they are no tensor, and for gates on tokens that no `nn.Embedding` of the model reads as they are given
    Edge cases  edges that a layer adds (self-loops, a class node's) have no gate; a graph over as many nodes that a
                layer makes itself shares the gates of the edges that are in both; graphs that a layer chooses by
                content (nearest neighbours, buckets, clusters) are those of the input itself, whatever the gates
    Differs     dropout is off: the model is put in evaluation mode
    """

    @torch.inference_mode(False)  # what is made here is read with gradients
    def __init__(
        self,
        model: nn.Module,
        inputs: tuple[Any, ...],
        target: Target,
        edges: Graph | None = None,
        baseline: Baseline | tuple[Baseline, float | None] = 0.0,
        node: int | None = None,
    ) -> None:
        baseline, features_baseline = baseline if isinstance(baseline, tuple) else (baseline, None)
        check_explained(model, inputs, target)
        _check_options(edges, baseline, node, features_baseline)
        inputs = tuple(_tracked(given) for given in inputs)
        reads = "graph", "x", *(f"features[{place}]" for place in range(len(inputs) - 2))
        self.model, self.inputs, self.baseline = on_graphs(model, reads).eval(), inputs, _tracked(baseline)
        self.features_baseline = features_baseline
        graph = inputs[0]
        self.alone = isinstance(graph, EncoderDecoderGraph)  # several graphs, of which two may have the same size
        own = graph.cross if isinstance(graph, EncoderDecoderGraph) else graph
        self.edges: Graph = own if edges is None else edges
        self.x: Any = inputs[1]
        self.tokens = isinstance(self.x, Tensor) and not self.x.is_floating_point()
        self.num_nodes = int(self.x.shape[-1] if self.tokens else self.x.shape[-2])
        receivers = self.num_nodes if self.alone else own.num_receivers
        _check_shapes(self.x, None if self.tokens else baseline, node, receivers)
        self._held = Held()
        self._places: dict[int, tuple[Graph, Tensor]] = {}
        self.calls = 0  # of verbs on the edges, in the last evaluation
        with torch.no_grad():
            outputs: Any = self.outputs()
        self.target, index = resolved(target, outputs)
        self.member = self._member(index, outputs)
        before = self.num_nodes - self.edges.num_receivers if self.alone else 0  # sources, which have no outputs
        if node is None and len(index) > 1 and self.num_nodes > 1 and outputs.shape[-2] == self.num_nodes - before:
            node = range(outputs.shape[-2])[index[-2]] + before
        self.node = node
        self.value = self(None, None).item()
        if isinstance(self.model, OnEdgeIndex) and self.edges.num_edges and not self.hops:
            what = f"{type(model).__name__} reads its edge_index by layers of which no edge can be left out"
            raise ExplanationError(f"{what}: edgewise.convert(model) lets PyTorch Geometric's compute here")

    def _member(self, index: tuple[int, ...], outputs: Any) -> int | None:
        """Which member of a leading batch the number belongs to; None where a function does not say."""
        lead = tuple(self.x.shape[: -1 if self.tokens else -2])
        if prod(lead) == 1:
            return 0
        if not index or outputs.shape[: len(lead)] != lead or len(index) < len(lead):
            return None
        return int(torch.arange(prod(lead)).reshape(lead)[index[: len(lead)]])

    @property
    def device(self) -> torch.device:
        """Where the inputs are, and the gates and scores."""
        device: torch.device = self.x.device
        return device

    @property
    def hops(self) -> int:
        """How many calls read the edges: along them, what is further away from a node has no influence on it."""
        with torch.no_grad():
            self(None, torch.ones(self.edges.num_edges, device=self.device))
        return self.calls

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Those of one gate for each feature: of x [J, C], or [J] where they are tokens, sparse or more than `MOST`; of
        each of the further features that vary its own."""
        x = self.x
        whole = self.tokens or isinstance(x, SparseFeatures) or self.num_nodes * x.shape[-1] > MOST
        own = (self.num_nodes,) if whole else (self.num_nodes, x.shape[-1])
        return [own, *(tuple(one.shape) for one in self.inputs[2:] if self._varies(one))]

    def gates(self, flat: Tensor) -> list[Tensor]:
        """One long tensor cut into these shapes."""
        parts = flat.split([prod(shape) for shape in self.shapes])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _varies(self, given: Any) -> bool:
        floating = isinstance(given, Tensor) and given.is_floating_point()
        return floating and self.features_baseline is not None

    def __call__(
        self, nodes: Tensor | list[Tensor] | None = None, edges: Tensor | None = None, removing: bool = False
    ) -> Tensor:
        """F(g, m); removing: without the edges where m is 0, so that softmaxes and means are over those that remain."""
        return one_number(self.target(self.outputs(nodes, edges, removing)), "the target")

    def outputs(
        self, nodes: Tensor | list[Tensor] | None = None, edges: Tensor | None = None, removing: bool = False
    ) -> Tensor:
        """The model's outputs under gates."""
        self.calls = 0
        return self.under(None if edges is None else Gates(lambda call: self._factor(call, edges), removing), nodes)

    def under(self, gates: Gates | None, nodes: Tensor | list[Tensor] | None = None) -> Tensor:
        """The model's outputs under any gates of its calls."""
        graph, _, *more = self.inputs
        own, *others = nodes if isinstance(nodes, list) else [nodes]
        if others and (start := self.features_baseline) is not None:
            rest = iter(others)
            more = [start + next(rest) * (one - start) if self._varies(one) else one for one in more]
        with self._held, gated(gates), self._reading(own):
            outputs: Tensor = self.model(graph, self._features(own), *more)
        return outputs

    def _features(self, g: Tensor | None) -> Any:
        if g is None or self.tokens or self.baseline is None:
            return self.x
        x, g = self.x, g.to(self.x.dtype)
        if isinstance(x, SparseFeatures):
            if not isinstance(self.baseline, Tensor) and self.baseline == 0:
                return SparseFeatures(x.graph, x.weight * g.index_select(0, x.graph.receivers))
            x = x.to_dense()
        return self.baseline + (g[:, None] if g.ndim == 1 else g) * (x - self.baseline)

    @contextmanager
    def _reading(self, g: Tensor | None) -> Iterator[None]:
        """Scale what is embedded of the tokens: an embedding reads them, or a part of them."""
        baseline = self.baseline
        if g is None or not self.tokens or baseline is None:
            yield
            return
        size, start, is_read = self.x.element_size(), self.x.data_ptr(), not self.x.numel()

        def scale(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], embedded: Tensor) -> Tensor:
            nonlocal is_read
            tokens = arguments[0] if arguments else named["input"]
            first = (tokens.data_ptr() - start) // size % max(self.num_nodes, 1)
            if not 0 <= tokens.data_ptr() - start < size * self.x.numel():
                return embedded
            is_read = True
            factor = g[first : first + tokens.shape[-1], None].to(embedded.dtype)
            return baseline + factor * (embedded - baseline)

        embeddings = [module for module in self.model.modules() if isinstance(module, nn.Embedding)]
        hooks = [module.register_forward_hook(scale, with_kwargs=True) for module in embeddings]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        if not is_read:
            what = f"no nn.Embedding of {type(self.model).__name__} reads the tokens as they are given"
            raise ExplanationError(
                f"{what}: give them in the type that it reads, or explain edges alone, baseline=None"
            )

    def _factor(self, call: Call, m: Tensor) -> Tensor | None:
        place = self.places(call.graph)
        if place is None:
            return None
        self.calls += 1
        return torch.cat([m, m.new_ones(1)]).index_select(0, place)

    def places(self, graph: Graph) -> Tensor | None:
        """Which of the explained edges each edge of a graph is, E where it is none; None for a graph of other nodes.

        A graph with one node more has a class node, which comes first; one whose senders are the edges themselves has
        them in order.
        """
        if id(graph) in self._places:
            return self._places[id(graph)][1]
        if (place := self._matched(graph)) is not None:
            self._places[id(graph)] = graph, place
        return place

    def _matched(self, graph: Graph) -> Tensor | None:
        edges = self.edges
        words = self.x.graph if isinstance(self.x, SparseFeatures) else None
        if (self.alone and graph is not edges) or graph is words:
            return None
        more = graph.num_receivers - edges.num_receivers
        if self.among(graph) is edges:
            return graph.senders if graph is not edges else torch.arange(edges.num_edges, device=edges.device)
        if more in (0, 1) and graph.num_senders - edges.num_senders == more:
            return matched(graph, edges, more)
        return None

    def among(self, graph: Graph) -> Graph:
        """The graph among nodes: the explained one, where the senders are its edges."""
        edges = self.edges
        own = graph.num_senders == graph.num_edges == edges.num_edges and graph.num_senders != edges.num_senders
        return edges if own and torch.equal(graph.offsets, edges.offsets) else graph


def _tracked(given: Any) -> Any:
    """A copy of a tensor of inference mode, which no gradient can read; tokens lie side by side for `_reading`."""
    if isinstance(given, SparseFeatures):
        return SparseFeatures(given.graph, _tracked(given.weight))
    if isinstance(given, Tensor) and not given.is_floating_point():
        given = given.contiguous()
    return given.clone() if isinstance(given, Tensor) and given.is_inference() else given


def check_explained(model: Any, inputs: tuple[Any, ...], target: Any) -> None:
    """Raise ExplanationError for what is no module, no graph, no features or tokens, or no target."""
    if not isinstance(model, nn.Module):
        raise ExplanationError(f"what is explained is a torch.nn.Module, not {shown(model)}")
    graph, x = inputs[:2]
    if not isinstance(graph, EncoderDecoderGraph):
        check_graph(graph, x)
    least = 2 if isinstance(x, Tensor) and x.is_floating_point() else 1
    if not isinstance(x, Tensor | SparseFeatures) or len(x.shape) < least:
        raise ExplanationError(f"x is a tensor of features [*, N, C] or of tokens [*, N], not {shown(x)}")
    if isinstance(x, Tensor) and x.layout != torch.strided:
        raise ExplanationError(f"x must be a dense tensor, not {x.layout}: x.to_dense() makes it one")
    whole = isinstance(target, int) or (isinstance(target, Sequence) and all(isinstance(n, int) for n in target))
    if not callable(target) and (isinstance(target, str | bool) or not whole):
        what = "an index of the outputs, such as 0 or (0, 2), or a function of them"
        raise ExplanationError(f"the target is {what}, not {target!r}")


def _check_options(edges: Any, baseline: Any, node: Any, features_baseline: Any) -> None:
    """Raise ExplanationError for edges, a baseline or a node that are none."""
    if isinstance(features_baseline, bool) or not isinstance(features_baseline, int | float | None):
        raise ExplanationError(f"features_baseline must be a number, or None, not {shown(features_baseline)}")
    if features_baseline is not None and baseline is None:
        raise ExplanationError("features_baseline goes with a baseline of x, which is None")
    if not isinstance(edges, Graph | None):
        raise ExplanationError(f"edges must be the Graph whose edges are explained, not {shown(edges)}")
    if isinstance(baseline, bool) or not isinstance(baseline, int | float | Tensor | None):
        raise ExplanationError(f"baseline must be a number, a tensor of features or None, not {shown(baseline)}")
    if isinstance(node, bool) or not isinstance(node, int | None):
        raise ExplanationError(f"node must be a whole number, or None, not {shown(node)}")


def _check_shapes(x: Tensor | SparseFeatures, baseline: Any, node: int | None, nodes: int) -> None:
    """Raise ExplanationError for a baseline that does not broadcast to features, and for a node that is not there."""
    if isinstance(baseline, Tensor):
        pairs = zip(reversed(baseline.shape), reversed(x.shape), strict=False)
        if baseline.ndim > len(x.shape) or any(size not in (1, own) for size, own in pairs):
            raise ExplanationError(f"a baseline {list(baseline.shape)} does not broadcast to features {list(x.shape)}")
    if node is not None and not 0 <= node < nodes:
        raise ExplanationError(f"there is no node {node}: the graph has {nodes}, counted from 0")


def one_number(value: Any, name: str) -> Tensor:
    """What a function makes of outputs; ExplanationError unless it is one finite number."""
    if not isinstance(value, Tensor):
        raise ExplanationError(f"{name} makes {shown(value)} of the outputs: it must be a tensor of one number")
    if value.numel() != 1 or not bool(value.isfinite()):
        raise ExplanationError(f"{name} makes {value.tolist()} of the outputs: it must be one finite number")
    return value.reshape(())


def matched(graph: Graph, edges: Graph, first: int = 0) -> Tensor:
    """Which edge of another graph each edge is, of parallel ones in turn: [E], the other's E where it is none.

    Symbols     first = how many nodes come first that the other graph lacks

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> matched(pair.add_self_loops(), pair).tolist()  # 0 → 0, 1 → 0, 0 → 1, 1 → 1
        [2, 0, 1, 2]
    """
    receivers, senders = graph.receivers - first, graph.senders - first
    own = torch.where((receivers < 0) | (senders < 0), -1, receivers * edges.num_senders + senders)
    own, own_order = own.sort(stable=True)
    other, other_order = (edges.receivers * edges.num_senders + edges.senders).sort(stable=True)
    rank = torch.arange(len(own), device=own.device) - torch.searchsorted(own, own)
    place = torch.searchsorted(other, own) + rank
    found = (place < len(other)) & (own >= 0)
    if len(other):
        found &= other[place.clamp(max=len(other) - 1)] == own
        place = torch.where(found, other_order[place.clamp(max=len(other) - 1)], len(other))
    return torch.empty_like(place).index_copy(0, own_order, torch.where(found, place, len(other)))


def resolved(target: Target, outputs: Any) -> tuple[Callable[[Tensor], Tensor], tuple[int, ...]]:
    """A function of the outputs, and the index that it reads, () where it is a function already."""
    if callable(target):
        return target, ()
    if not isinstance(outputs, Tensor):
        what = f"the model returns {shown(outputs)}, not a tensor"
        raise ExplanationError(f"{what}: give a function of it as the target, such as lambda outputs: outputs[0][3, 1]")
    index = (target,) if isinstance(target, int) else tuple(target)
    try:
        chosen = outputs[index]
    except IndexError as error:
        raise ExplanationError(f"the target {index} is no index of outputs {list(outputs.shape)}: {error}") from error
    while chosen.ndim:  # of a row the largest number
        best = int(chosen.reshape(len(chosen), -1).amax(-1).argmax()) if chosen.numel() else 0
        index, chosen = (*index, best), chosen[best]
    return lambda y: y[index], index
