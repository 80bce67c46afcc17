"""A backend is one record: what it takes as data, what a call would cost, how it runs, how its speeds are measured.

Its refusals are written here, from that data, so that every backend refuses the same thing in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.rule import Blocks, Causal
from edgewise.graphs.tracing import is_traced, is_transformed
from edgewise.kernels.call import REDUCTIONS, Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Message, Network
from edgewise.kernels.scores import Bias, Dot, EdgeBias, Gaussian, RelativeBias, Score, SenderBias


@dataclass(frozen=True)
class Kind:
    """Graphs of one kind, in the plural, and their predicate."""

    name: str
    holds: Callable[[Graph], bool]


def _is_causal(graph: Graph) -> bool:
    return isinstance(graph.rule, Causal) and graph.offset == 0


def _is_blocks(graph: Graph) -> bool:
    shape = graph.num_receivers, graph.num_senders
    return isinstance(graph.rule, Blocks) and graph.offset == 0 and graph.rule.extent == shape


COMPLETE = Kind("complete graphs", lambda graph: graph.is_complete)
CAUSAL = Kind("causal graphs", _is_causal)
BLOCKS = Kind("batches of complete graphs", _is_blocks)


ANY = None  # of devices, dtypes, scores and kinds of graphs: every one
BIASES = (EdgeBias, RelativeBias, SenderBias)
VERBS = ("attend", "aggregate", "collect")
PLACES = {"cpu": "the CPU", "cuda": "NVIDIA GPUs"}


# Each constant of a cost names its unit and where it comes from: counted = read off the code; fitted = to the times, on
# two threads of an AMD EPYC and of an Intel Xeon, of calls that `benchmarks/regret.py` draws (docs/performance.md says
# what regret is left); assumed = not measured


@dataclass(frozen=True, slots=True)
class Cost:
    """What a backend would spend on a forward pass: numbers of operations, bytes, and launches.

    Symbols     flops = multiplications and additions of PyTorch's matrix products, tiles = of our dense tiles (on a
                GPU, of its matrix units), edges = of our kernels on edges (on a GPU, all others); bytes = contiguous
                traffic; gathered = bytes of rows that PyTorch picks one by one, through temporaries of at most
                `largest` bytes; rows = bytes of rows that our kernels pick out of `held` bytes; launches = the fixed
                cost of a call, in PyTorch's operations; steps = what one of a GPU's programs does one after another
    """

    flops: int = 0
    tiles: int = 0
    edges: int = 0
    bytes: int = 0
    gathered: int = 0
    largest: int = 0
    rows: int = 0
    held: int = 0
    launches: float = 0
    steps: int = 0

    def __add__(self, other: Cost) -> Cost:
        """Both, one after the other; what bounds a temporary or a cache is the larger of the two."""
        largest, held = max(self.largest, other.largest), max(self.held, other.held)
        total = Cost(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))
        return replace(total, largest=largest, held=held)


def listing(graph: Graph) -> int:
    """Bytes of listing the edges of a rule, before kernels can walk along them: 24 for each, counted."""
    return 0 if graph.rule is None else 24 * graph.num_edges


FEW = 1 << 15  # numbers on edges that PyTorch gathers and sums faster than kernels are called; measured on a Zen 3


def is_few(call: Call) -> bool:
    """Whether a sum or mean is of few messages, on a CPU."""
    if isinstance(call, Attend) or call.reduce not in ("sum", "mean") or call.graph.device.type != "cpu":
        return False
    if isinstance(call, Aggregate):
        return call.graph.num_edges * call.x.numel() <= FEW * call.graph.num_senders
    return isinstance(call.message, Tensor) and call.message.numel() <= FEW


@dataclass(frozen=True)
class Attention:
    """What a backend takes of `attend`.

    Symbols     scores = the types of score, biases = those of bias; cap = a soft cap; vectors = those of edges;
                weights = returning them; least, most = channels of a head; head_bytes = the most bytes of these
    """

    scores: tuple[type[Score], ...] | None = ANY
    biases: tuple[type[Bias], ...] = BIASES
    cap: bool = False
    vectors: bool = False
    dropout: bool = True
    weights: bool = False
    graphs: tuple[Kind, ...] | None = ANY
    least: int = 0
    most: int | None = None
    head_bytes: int | None = None


@dataclass(frozen=True)
class Sums:
    """What a backend takes of `aggregate`.

    Symbols     weighted = the kinds of weights: 0 = none, 1 = [E], 2 = [*, E, H]; mixed = whether weights may have
                another dtype than the features
    """

    reductions: tuple[str, ...] = REDUCTIONS
    weighted: tuple[int, ...] = (0, 1, 2)
    mixed: bool = False
    graphs: tuple[Kind, ...] | None = ANY


@dataclass(frozen=True)
class Networks:
    """What a backend takes of the networks of messages.

    Symbols     activations = those it knows; maps = the most linear maps, the edge's own among them; dtypes = what all
                tensors have, one for all, or any; gate, dropout, batched, traced = whether it may have a gate, dropout
                or a leading batch, and whether torch.compile and torch.func can trace it
    """

    activations: tuple[Callable[[Tensor], Tensor], ...] | None = ANY
    maps: int | None = None
    dtypes: tuple[torch.dtype, ...] | None = ANY
    gate: bool = True
    dropout: bool = True
    batched: bool = True
    traced: bool = True


@dataclass(frozen=True)
class Messages:
    """What a backend takes of `collect` for one kind of message.

    Symbols     kind = the message's type; networks = those that it may have, or be
    """

    kind: type = Tensor
    reductions: tuple[str, ...] = REDUCTIONS
    networks: Networks = Networks()


@dataclass(frozen=True)
class Takes:
    """What a backend can run. A verb that is None or empty is refused.

    Symbols     attend, aggregate, collect = what it takes of each verb; nodes, edges = the most that it can number;
                parallel = whether it counts parallel edges; transformed = whether it is made of PyTorch's own
                operations, through which `torch.func`'s transforms and forward-mode derivatives go
    """

    dtypes: tuple[torch.dtype, ...] | None = ANY
    attend: Attention | None = None
    aggregate: Sums | None = None
    collect: tuple[Messages, ...] = ()
    nodes: int | None = None
    edges: int | None = None
    parallel: bool = True
    transformed: bool = False


EVERYTHING = Takes(
    attend=Attention(cap=True, vectors=True, weights=True),
    aggregate=Sums(mixed=True),
    collect=(Messages(object),),
    transformed=True,
)


@dataclass(frozen=True)
class Need:
    """A package or library that a backend cannot run without.

    Symbols     present = whether it is there; missing = the refusal where it is not; warn = what to call where the
                backend would have been the fastest
    """

    present: Callable[[], bool]
    missing: str
    warn: Callable[[], None] | None = None


@dataclass(frozen=True)
class Probe:
    """A call of `attend` with a `Dot` score, whose time measures one speed of a device.

    Symbols     speed = a field of `Machine`; graph = makes the graph on a device
    """

    device: str
    speed: str
    graph: Callable[[torch.device], Graph]
    heads: int = 4
    channels: int = 32


def random_graph(nodes: int, edges: int, device: torch.device) -> Graph:
    """Edges drawn independently, for probes."""
    return Graph.from_edge_index(torch.randint(nodes, (2, edges), device=device), nodes)


@dataclass(frozen=True)
class Backend:
    """One way to compute calls.

    Symbols     summary = one sentence; run(call) = the result; cost(call) = that of a forward pass, for a call that it
                does not refuse, or None: the planner times a call, the first time; devices = where the planner may
                choose it; by_name = where it also runs if it is named; limits(call) = a refusal that `takes` cannot
                express; distrusted(call) = one that may take seconds to find out the first time, and is asked for
                last; lowered = whether calls come in the algebra's simplest terms; spreads(call) = whether NaN and
                infinities may reach receivers that have no edge to them, as 0 · NaN: another backend then computes
                such a call; small = the verbs whose calls on small sparse lists of edges it computes fastest, "few"
                for those that `is_few` finds; yields(call) = whether the planner leaves the call to others, although it
                could be run
    """

    name: str
    summary: str
    takes: Takes
    run: Callable[[Call], Tensor | tuple[Tensor, ...]]
    cost: Callable[[Call], Cost] | None = None
    devices: tuple[str, ...] | None = ANY
    by_name: tuple[str, ...] | None = ()
    need: Need | None = None
    limits: Callable[[Call], str | None] | None = None
    distrusted: Callable[[Call], str | None] | None = None
    probes: tuple[Probe, ...] = ()
    small: tuple[str, ...] = ()
    lowered: bool = True
    spreads: Callable[[Call], bool] | None = None
    yields: Callable[[Call], bool] | None = None

    def is_chosen_on(self, device: str) -> bool:
        """Whether the planner may choose it there; elsewhere it runs by name or not at all."""
        return _among(device, self.devices)

    def is_chosen_for(self, call: Call) -> bool:
        """Whether the planner may choose it for a call that it does not refuse."""
        return self.is_chosen_on(call.graph.device.type) and not (self.yields is not None and self.yields(call))

    def refusal(self, call: Call) -> str | None:
        """Why it cannot run the call, or None if it can; what it lacks comes last."""
        if (reason := self.refusal_at_sight(call)) is not None:
            return reason
        if self.cannot_count(call.graph):
            return "the graph has parallel edges, which it cannot count"
        if self.distrusted is not None and (reason := self.distrusted(call)) is not None:
            return reason
        return self.need.missing if self.need is not None and not self.need.present() else None

    def cannot_count(self, graph: Graph) -> bool:
        """Whether the graph has parallel edges that it takes for one: all edges are looked at to know."""
        return not self.takes.parallel and graph.has_duplicates

    def refusal_at_sight(self, call: Call) -> str | None:
        """The same, for a graph without parallel edges and for kernels that can be trusted."""
        takes, graph = self.takes, call.graph
        if takes is EVERYTHING and self.devices is ANY and self.limits is None:
            return None
        # What is read from the call comes first, what is computed from the graph last.
        reason = (
            _of_verb(takes, call.verb)
            or self._of_device(graph.device.type)
            or _of_dtype(takes.dtypes, call.dtype)
            or _of_transforms(takes)
            or _of_call(takes, call)
            or _of_size(takes, graph)
        )
        return self.limits(call) if reason is None and self.limits is not None else reason

    def _of_device(self, device: str) -> str | None:
        if _among(device, self.devices) or _among(device, self.by_name):
            return None
        return f"its kernels run on {_listed([PLACES[place] for place in self.devices or ()])}, not on {device}"


def _of_verb(takes: Takes, verb: str) -> str | None:
    if getattr(takes, verb):
        return None
    return f"it runs {_listed([verb for verb in VERBS if getattr(takes, verb)])}, not {verb}"


def _of_dtype(dtypes: tuple[torch.dtype, ...] | None, dtype: torch.dtype) -> str | None:
    if _among(dtype, dtypes):
        return None
    names = [str(one).removeprefix("torch.") for one in dtypes or ()]
    return f"its kernels compute in {_listed(names)}, not in {dtype}"


def _of_transforms(takes: Takes) -> str | None:
    if takes.transformed or not is_transformed():
        return None
    return "its kernels have no rules for torch.func's transforms and forward-mode derivatives"


def _of_call(takes: Takes, call: Call) -> str | None:
    if isinstance(call, Attend):
        assert takes.attend is not None
        return _of_score(takes.attend, call) or _of_width(takes.attend, call) or _of_kind(takes.attend.graphs, call)
    if isinstance(call, Aggregate):
        assert takes.aggregate is not None
        return _of_sum(takes.aggregate, call) or _of_kind(takes.aggregate.graphs, call)
    return _of_message(takes.collect, call)


def _of_score(takes: Attention, call: Attend) -> str | None:
    score, written = call.score, call.written or call.score
    if not _among(type(score), takes.scores):
        plain = score.vectors is None or score.vectors.keys is None
        if isinstance(score, Gaussian) and _among(Dot, takes.scores) and plain:
            return "it takes a Gaussian as a dot product, which loses too many digits between points this far apart"
        return f"it has no {type(written).__name__} score: it takes {_names(takes.scores)}"
    if isinstance(score, Dot) and score.cap is not None and not takes.cap:
        return "it has no soft cap"
    for bias in score.biases:
        if type(bias) not in takes.biases:
            if bias not in written.biases:
                return f"it has no {type(written).__name__} score: it takes {_names(takes.scores)}"
            return f"it adds no {type(bias).__name__}{f': it takes {_names(takes.biases)}' if takes.biases else ''}"
    if score.vectors is not None and not takes.vectors:
        return "it adds no vectors of edges to keys and values"
    if call.dropout > 0 and not takes.dropout:
        return "it has no dropout"
    return "it does not return its weights" if call.return_weights and not takes.weights else None


def _of_width(takes: Attention, call: Attend) -> str | None:
    if (takes.least, takes.most, takes.head_bytes) == (0, None, None):
        return None
    widths = call.v.shape[-1], call.v.shape[-1] if call.q is None else call.q.shape[-1]
    least, most, size = min(widths), max(widths), call.v.element_size()
    if least < takes.least:
        return f"a head has {least} channels, fewer than {takes.least}"
    if takes.most is not None and most > takes.most:
        return f"a head has {most} channels, more than {takes.most}"
    if takes.head_bytes is not None and most * size > takes.head_bytes:
        return f"a head has {most} channels in {call.v.dtype}, more than {takes.head_bytes // size}"
    return None


def _of_sum(takes: Sums, call: Aggregate) -> str | None:
    weight = call.weight
    if call.reduce not in takes.reductions:
        return f"it has no {call.reduce}: it takes {_listed(takes.reductions)}"
    if weight is None:
        return None
    if min(weight.ndim, 2) not in takes.weighted:
        return "it takes no weights" if takes.weighted == (0,) else "it takes no weights for each head"
    if weight.dtype != call.x.dtype and not takes.mixed:
        return f"weights in {weight.dtype} do not fit features in {call.x.dtype}"
    return None


def _of_message(takes: Sequence[Messages], call: Collect) -> str | None:
    message = call.message
    taken = next((one for one in takes if isinstance(message, one.kind)), None)
    if taken is None:
        return f"it collects no {type(message).__name__}: it takes {_names([one.kind for one in takes])}"
    if call.reduce not in (None, *taken.reductions):
        return f"it has no {call.reduce}: it takes {_listed(taken.reductions)}"
    network = message.network if isinstance(message, Message) else None
    return None if network is None else _of_network(taken.networks, network)


def _of_network(takes: Networks, network: Network[Any]) -> str | None:
    if not _among(network.activation, takes.activations):
        name = getattr(network.activation, "__name__", network.activation)
        return f"its networks have no {name}: they take {_names(takes.activations)}"
    if takes.maps is not None and len(network.maps) >= takes.maps:
        return f"its networks have at most {takes.maps} linear maps"
    if network.gate is not None and not takes.gate:
        return "its networks have no gate"
    if network.dropout > 0 and not takes.dropout:
        return "its networks have no dropout"
    if network.batch and not takes.batched:
        return "its networks have no leading batch"
    if not takes.traced and is_traced():
        return "torch.compile and torch.func cannot trace its networks"
    if takes.dtypes is not None and len(network.dtypes) > 1:
        return f"its networks have one dtype, not {_listed([str(dtype) for dtype in network.dtypes])}"
    return next((reason for dtype in network.dtypes if (reason := _of_dtype(takes.dtypes, dtype))), None)


def _of_kind(kinds: tuple[Kind, ...] | None, call: Call) -> str | None:
    if kinds is None or any(kind.holds(call.graph) for kind in kinds):
        return None
    return f"it runs on {_listed([kind.name for kind in kinds])} only"


def _of_size(takes: Takes, graph: Graph) -> str | None:
    if takes.nodes is not None and max(graph.num_senders, graph.num_receivers) > takes.nodes:
        return f"it numbers nodes in 32 bits, and there are more than {takes.nodes}"
    if takes.edges is not None and graph.num_edges > takes.edges:
        return f"it numbers edges in 32 bits, and there are more than {takes.edges}"
    return None


def _among(one: object, several: Sequence[object] | None) -> bool:
    return several is None or one in several


def _names(things: Sequence[Any] | None) -> str:
    return _listed(list(dict.fromkeys(one.__name__ for one in things or ())))  # namesakes once


def _listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
