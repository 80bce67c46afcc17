"""What an exported model reads and returns: tensors by name. The graph is built of them inside the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.deployment.graph import TracedGraph, all_pairs, edges_within, joined
from edgewise.deployment.precomputed import PRECOMPUTED, precomputed_by
from edgewise.errors import ExportError, a_kind
from edgewise.graphs import EncoderDecoderGraph, Graph
from edgewise.graphs.rule import Blocks, Causal, Complete, Rule
from edgewise.layers import KeyValueCache
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models import signature
from edgewise.models.signature import Atoms, Features, LanguageModel, MovingParticles, Tokens

# Of every input its axes and its meaning. A capital letter, of `LETTERS`, stands for a number that may differ from call
# to call, any other for one that may not.
INPUTS = {
    "x": ("BNc", "features of the nodes; for atoms their atomic numbers"),
    "tokens": ("BN", "numbers of tokens"),
    "pixels": ("Byx", "grey values of images"),
    "colours": ("Byxc", "red, green and blue of images, from 0 to 255"),
    "positions": ("BNd", "where nodes are"),
    "velocities": ("BNd", "how they move"),
    "cell": ("BNd", "the edges of the periodic cell of each atom, 0 along an open axis"),
    "edge_index": ("2E", "row 0 the sender, row 1 the receiver of each edge, in any order"),
    "edge_attr": ("BEc", "features of the edges, in the order of edge_index"),
    "graph_attr": ("BGc", "features of each graph as a whole"),
    "sizes": ("G", "how many nodes each graph has"),
    "eigenvalues": ("BNc", "the smallest eigenvalues of I - D^-½ A D^-½ of the connected component of each node"),
    "eigenvectors": ("BNc", "their eigenvectors at the node"),
    "cliques": ("BNc", "in how many cliques of 3, 4, ... nodes each node is"),
    "queries": ("Mq", "of each query the numbers of what it names"),
    "source": ("BS", "tokens of the source"),
    "target": ("BT", "tokens of the target, so far"),
    "past_keys": ("BhPc", "keys of the past in a block: its `keys_…` of the step before"),
    "past_values": ("BhPc", "values of the past in a block: its `values_…` of the step before"),
}
LETTERS = {
    "B": "B members of a leading batch, each on the same graph",
    "N": "N nodes (atoms, particles, tokens), of all graphs one after the other",
    "E": "E edges",
    "G": "G graphs",
    "M": "M queries",
    "S": "S tokens of the source",
    "T": "T tokens of the target",
    "P": "P tokens of the past, 0 at first",
}
TRACED = {"B": 3, "N": 6, "E": 11, "G": 4, "M": 8, "S": 5, "T": 7, "P": 9}  # sizes of what is traced, none like another


class Exportable(nn.Module):
    """A model that reads named tensors, of which it builds its graph.

    Symbols     names = of the tensors that the model is called with after its graph; graph = an example of it
    """

    def __init__(self, model: nn.Module, graph: Graph | EncoderDecoderGraph, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, tuple(names)
        self.example = graph
        self.signature = getattr(model, "signature", None)
        self.about: dict[str, Any] = {}  # what the file says beside its inputs and outputs
        self.precomputed: tuple[tuple[str, int], ...] = ()  # of a graph: see `PRECOMPUTED`
        self.radius: float | None = None  # within which the program finds the edges itself

    def forward(self, **given: Tensor) -> dict[str, Tensor]:
        return self.named(self.model(self.graph(given), *self.arguments(given)))

    def arguments(self, given: Mapping[str, Tensor]) -> list[Tensor | None]:
        """What the model is called with after its graph."""
        composed: dict[str, Callable[[Mapping[str, Tensor]], Tensor]]
        composed = {"features": self._features, "pairs": self._pairs}
        return [composed[name](given) if name in composed else given.get(name) for name in self.names]

    def _pairs(self, given: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([given["source"], given["target"]], -1)

    def _features(self, given: Mapping[str, Tensor]) -> Tensor:
        positions = given["positions"]
        if isinstance(self.signature, MovingParticles):
            parts = [positions, given["velocities"], *([given["x"]] if "x" in given else [])]
        else:
            cell = given["cell"] if "cell" in given else torch.zeros_like(positions)
            images = getattr(self.signature, "edges", 0)  # which edges tell, in place of cells
            parts = [positions, *([] if images else [cell]), given["x"].to(positions.dtype)]
        return torch.cat(parts, -1)

    def graph(self, given: Mapping[str, Tensor]) -> Any:
        """The graph of a call."""
        example = self.example
        if isinstance(example, EncoderDecoderGraph):
            return encoder_decoder(example, given["source"], given["target"])
        if not self.varies(example):
            return example
        first = given.get("positions", given.get("x", given.get("tokens")))
        assert first is not None
        nodes, sizes = first.shape[-1 if first is given.get("tokens") else -2], given.get("sizes")
        if "edge_index" in given:
            senders, receivers = given["edge_index"].unbind(0)
            graph = TracedGraph.of_edges(senders, receivers, (nodes, nodes), sizes)
            graph._memo.update({key: PRECOMPUTED[key[0]].value(given) for key in self.precomputed})
            return graph
        single = TracedGraph.of_rule(rule_of(example), (nodes, nodes), first.device, sizes)
        return single if sizes is None else all_pairs(single)

    def varies(self, graph: Graph) -> bool:
        """Whether the graph may differ from call to call; that of an image, or by a rule for so many nodes, may not."""
        if type(self.signature) is Features and self.signature.length is not None:
            return False
        return graph.rule is None or graph.rule.extent is None or _is_batch(graph)

    def named(self, outputs: Any) -> dict[str, Tensor]:
        """The outputs by their names."""
        if isinstance(self.signature, Atoms):
            return {"y": outputs[..., :1], "forces": outputs[..., 1:]}
        if isinstance(outputs, Tensor):
            return {"y": outputs}
        if isinstance(outputs, tuple) and all(isinstance(one, Tensor) for one in outputs):
            return {"y" if number == 0 else f"y_{number}": one for number, one in enumerate(outputs)}
        raise ExportError(f"it returns {a_kind(outputs)}, not tensors")

    def outputs(self, graph: Any, *tensors: Any) -> dict[str, Tensor]:
        """What the model itself computes in a call model(graph, *tensors), by name."""
        return self.named(self.model(graph, *tensors))

    def precompute(self, graph: Any, *tensors: Any) -> None:
        """Find out what is read of a graph of edges that no operators compute: from now on `inputs` have it."""
        if isinstance(graph, Graph) and graph.rule is None and self.varies(graph):
            self.precomputed = precomputed_by(self.model, graph, *tensors)

    def inputs(self, graph: Any, *tensors: Any) -> dict[str, Tensor]:
        """The named tensors of a call model(graph, *tensors)."""
        made: dict[str, Tensor] = {}
        for name, value in zip(self.names, tensors, strict=False):
            if value is not None:
                tensor = value.to_dense() if isinstance(value, SparseFeatures) else value
                made |= self._parts(tensor) if name == "features" else {name: tensor}
        if isinstance(graph, Graph):
            _check_rows(graph, made)
        if isinstance(graph, EncoderDecoderGraph):
            lengths = graph.encoder.num_receivers, graph.decoder.num_receivers
            _check_pair(graph)
            made["source"], made["target"] = made.pop("pairs").split(lengths, -1)
        elif self.varies(graph):
            if graph.rule is None and self.radius is None:
                made["edge_index"] = graph.edge_index()
            if graph.rule is None:
                for name, number in self.precomputed:
                    made |= PRECOMPUTED[name].tensors(PRECOMPUTED[name].compute(graph, number))
            if len(graph.sizes) > 1:
                made["sizes"] = graph.sizes
        return made

    def _parts(self, x: Tensor) -> dict[str, Tensor]:
        signature = self.signature
        if isinstance(signature, MovingParticles):
            positions, velocities, known = x.split([signature.space, signature.space, signature.known], -1)
            parts = {"positions": positions, "velocities": velocities}
            return parts | {"x": known} if signature.known else parts
        assert isinstance(signature, Atoms)
        positions, cell, number = x.split([signature.space, x.shape[-1] - signature.space - 1, 1], -1)
        periodic = {"cell": cell} if bool((cell > 0).any()) else {}
        return {"positions": positions, **periodic, "x": number.long()}

    def within(self, radius: float, graph: Any, *tensors: Any) -> None:
        """From now on the program finds the edges, of nodes within a radius.

        Errors      ExportError for a model that reads no positions, or features of edges, for a leading batch, for a
                    radius below that of the model, and where the example's graph is another one
        """
        given, least = self.inputs(graph, *tensors), getattr(self.signature, "radius", 0.0)
        if not isinstance(radius, int | float) or not 0 < radius < float("inf") or radius < least:
            raise ExportError(
                f"a radius is a number above 0, and here at least {least:g}, that of the model: not {radius!r}"
            )
        if "positions" not in given or "edge_index" not in given or given["positions"].ndim != 2:
            raise ExportError(
                "edges within a radius are found of positions [N, D], and the example has a graph of edges"
            )
        if "edge_attr" in given:
            raise ExportError("edges that the program finds have no features: edge_attr cannot be given")
        found = edges_within(given["positions"], given.get("sizes"), radius, given.get("cell"))
        ordered = [sorted(edges.mT.tolist()) for edges in (found, given["edge_index"])]
        if ordered[0] != ordered[1]:
            there, wanted = given["edge_index"].shape[1], found.shape[1]
            raise ExportError(
                f"the example's graph has {there} edges, and is not that of its {wanted} pairs within {radius:g}"
            )
        self.radius, self.about["radius"] = radius, radius

    def traced(self, given: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, dict[int, Any]]]:
        """Inputs of sizes that tracing takes for no others, and which of their axes vary."""
        dynamic, inputs = {}, {}
        for name, tensor in given.items():
            axes = self._axes(name, tensor)
            longest = getattr(self.signature, "length", None)
            sizes = {axis: TRACED[letter] for axis, letter in axes.items()}
            if longest is not None:
                sizes = {axis: min(size, longest) if axes[axis] == "N" else size for axis, size in sizes.items()}
            shape = [sizes.get(axis, size) for axis, size in enumerate(tensor.shape)]
            inputs[name] = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
            dynamic[name] = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
        return inputs, dynamic

    def shape(self, name: str, tensor: Tensor) -> list[str | int]:
        """An input's axes: letters for numbers that may differ from call to call."""
        letters = self._axes(name, tensor)
        return [letters.get(axis, size) for axis, size in enumerate(tensor.shape)]

    def _axes(self, name: str, tensor: Tensor) -> dict[int, str]:
        fixed = not isinstance(self.example, EncoderDecoderGraph) and not self.varies(self.example)
        letters = _letters(name, tensor).rjust(tensor.ndim, "B")[-tensor.ndim :]
        varying = {axis: letter for axis, letter in enumerate(letters) if letter.isupper()}
        return {axis: letter for axis, letter in varying.items() if not (fixed and letter == "N")}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A model in evaluation mode, without gradients; its parts are left in the modes that they had."""
    with signature.evaluating(model), torch.no_grad():
        yield


def kind_of(name: str) -> str:
    """The name in `INPUTS` of an input, of which every block may have one.

    >>> kind_of("past_keys_11")
    'past_keys'
    """
    return re.sub(r"_\d+$", "", name)


def rule_of(graph: Graph) -> Rule:
    """The rule of a graph that is one for any number of nodes, or of each of its members."""
    assert graph.rule is not None
    return Complete() if isinstance(graph.rule, Blocks) else graph.rule


def _letters(name: str, tensor: Tensor) -> str:
    """The axes of an input; edge_attr may be a number for each edge, as of its relation."""
    is_kind = name == "edge_attr" and tensor.ndim == 1 and not tensor.is_floating_point()
    return "E" if is_kind else INPUTS[kind_of(name)][0]


def _check_rows(graph: Graph, given: Mapping[str, Tensor]) -> None:
    """Nodes and edges lie where `INPUTS` says."""
    counts = {"N": graph.num_receivers, "E": graph.num_edges, "G": len(graph.sizes)}
    for name, tensor in given.items():
        letters = _letters(name, tensor) if name in INPUTS else ""
        letter = next((letter for letter in letters if letter in counts), None)
        axis = -1 if letters[-1:] == letter else -2
        if letter is not None and (tensor.ndim < -axis or tensor.shape[axis] != counts[letter]):
            where = "last axis" if axis == -1 else "last axis but one"
            raise ExportError(f"{name} is {list(tensor.shape)}: its {where} must have {counts[letter]} rows")


def _check_pair(graph: EncoderDecoderGraph) -> None:
    """The graphs of a pair are those that a program builds of its lengths."""
    if len(graph.encoder.sizes) > 1:
        raise ExportError("pairs side by side in one graph: give an example of one pair, or of a leading batch")
    usual = EncoderDecoderGraph.of([graph.encoder.num_receivers], [graph.decoder.num_receivers])
    pairs = ((graph.decoder, usual.decoder), (graph.cross, usual.cross))
    same = all(torch.equal(own.dense_mask().cpu(), other.dense_mask()) for own, other in pairs)
    if graph.encoder.rule is None or not same:
        raise ExportError(
            "a program builds the graph of a pair from its lengths, the encoder's by a rule, with a causal decoder and "
            "a complete cross graph: give an example of such a graph, as EncoderDecoderGraph.of makes it"
        )


def _is_batch(graph: Graph) -> bool:
    return isinstance(graph.rule, Blocks) and graph.rule.receivers == graph.rule.senders == tuple(graph.sizes.tolist())


def encoder_decoder(example: EncoderDecoderGraph, source: Tensor, target: Tensor) -> EncoderDecoderGraph:
    """The three graphs of one source and one target."""
    sources, targets, device = source.shape[-1], target.shape[-1], source.device
    encoder = TracedGraph.of_rule(rule_of(example.encoder), (sources, sources), device)
    decoder = TracedGraph.of_rule(Causal(), (targets, targets), device)
    return joined(encoder, decoder, TracedGraph.of_rule(Complete(), (targets, sources), device, is_square=False))


class Decoding(Exportable):
    """A model that continues from the keys and values of a past of any length P, 0 included.

    Shapes      tokens [B, N], past_keys_l and past_values_l [B, H, P, C] of block l -> y [B, N, vocabulary], keys_l and
                values_l [B, H, P + N, C], which are the past of the next step
    Errors      ExportError for a model without a cache of keys and values, or for a graph of one length
    Edge cases  of the example's tokens the first half is the past, and a text [N] is read as [1, N]
    """

    def __init__(self, model: nn.Module, graph: Any) -> None:
        super().__init__(model, graph, ("tokens",))
        reads = isinstance(self.signature, Tokens) and not self.signature.whole_graph
        if not isinstance(model, LanguageModel) or not reads:
            raise ExportError(f"{a_kind(model)} has no cache: it reads a text as a whole")
        single = isinstance(graph, Graph) and len(graph.sizes) == 1 and graph.is_square
        if not single or graph.rule is None or graph.rule.extent is not None:
            raise ExportError(f"a cache is for a text of any length on a graph by rule, not for {graph}")
        caches = model.caches(graph)
        if not caches or not all(type(cache) is KeyValueCache for cache in caches):
            raise ExportError("what its blocks store of the past is not keys and values")
        first = graph.rows(0, min(graph.num_receivers, 64))  # enough to see where a rule looks
        if bool((first.senders > first.receivers).any()):
            raise ExportError(f"a cache is for a graph in which no position attends to a later one, unlike {graph}")
        kinds = [f"{kind}_{block}" for block in range(len(caches)) for kind in ("keys", "values")]
        self.rule = rule_of(graph)
        self.past = tuple(f"past_{name}" for name in kinds)
        self.returned = ("y", *kinds)
        self.about = {"length": model.signature.length, "dtype": str(next(model.parameters()).dtype)[6:]}

    def forward(self, **given: Tensor) -> dict[str, Tensor]:
        tokens = given["tokens"]
        past, new = given[self.past[0]].shape[2], tokens.shape[1]
        ends = [given[name] for name in self.past]
        caches = [_Past(k, v) for k, v in zip(ends[::2], ends[1::2], strict=True)]
        nodes = new, past + new
        graph = TracedGraph.of_rule(self.rule, nodes, tokens.device, None, False, past)
        y = self.model(graph, tokens, caches=caches)
        return dict(zip(self.returned, (y, *(end for cache in caches for end in cache.ends)), strict=True))

    def outputs(self, graph: Any, *tensors: Any) -> dict[str, Tensor]:
        return self._halves(graph, *tensors)[1]

    def inputs(self, graph: Any, *tensors: Any) -> dict[str, Tensor]:
        return self._halves(graph, *tensors)[0]

    def _halves(self, graph: Graph, tokens: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """A text in two steps, by the model itself in one: the second step's inputs and outputs."""
        tokens = tokens.reshape(-1, tokens.shape[-1])
        caches = [_Past() for _ in self.past[::2]]
        with evaluating(self):
            y = self.model(graph, tokens, caches=caches)
        before = tokens.shape[-1] // 2
        ends = [end for cache in caches for end in cache.ends]
        given = {name: end[:, :, :before].contiguous() for name, end in zip(self.past, ends, strict=True)}
        returned = (y[:, before:], *(end.contiguous() for end in ends))
        return {"tokens": tokens[:, before:], **given}, dict(zip(self.returned, returned, strict=True))


class _Past(KeyValueCache):
    """Keys and values [B, H, P, C] of the past, which new ones follow: `ends` are those of both."""

    def __init__(self, *past: Tensor) -> None:
        super().__init__()
        self.past, self.length = past, past[0].shape[2] if past else 0
        self.ends: tuple[Tensor, ...] = ()

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        new = k.transpose(1, 2), v.transpose(1, 2)
        self.ends = tuple(torch.cat(pair, 2) for pair in zip(self.past, new, strict=True)) if self.past else new
        k, v = self.ends
        return k.transpose(1, 2), v.transpose(1, 2)
