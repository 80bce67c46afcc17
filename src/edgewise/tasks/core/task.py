"""What a task is: batches, a loss and scores; its graph; and the usual kinds of examples, numbered or of one graph."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from edgewise.configuration import Choice, OneOf, known, known_options
from edgewise.data.splits import Split, sizes
from edgewise.errors import ConfigError, GraphError, a_kind
from edgewise.graphs import PATTERNS, Graph, complete, is_causal
from edgewise.graphs.derived import cached
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.markup import element, folded, note
from edgewise.models.signature import Signature
from edgewise.tasks.core.batch import Batch

T = TypeVar("T")
B = TypeVar("B")
Pattern = Callable[..., Graph] | None
Device = torch.device | str
# What the words in a metric's name say of it. scikit-learn's "neg_log_loss" is better the larger it is, too.
LARGER = re.compile(
    "acc|accuracy|ap|auc|auprc|auroc|bleu|correlation|dice|elbo|f1|hits|iou|jaccard|kappa|kendall|map|mcc|mrr|"
    "ndcg|neg|pearson|precision|psnr|r2|recall|recalled|rouge|sensitivity|spearman|specificity|ssim"
)
SMALLER = re.compile(
    "bce|bits|brier|cer|deviation|distance|divergence|ece|entropy|error|fid|loss|mae|mape|mse|msle|nll|perplexity|"
    "rmse|rmsle|wer"
)
EXAMPLE = re.compile(r"(train|valid|test):(\d{1,18})", re.ASCII)  # how a request names one of the data


@dataclass(frozen=True)
class Parts:
    """Into how many parts the batch of a step is cut, over all ranks and micro-batches, and which are one rank's."""

    count: int
    mine: range

    def of_one(self, batch: B) -> tuple[int, list[B]]:
        """A batch that cannot be cut, in place of each part."""
        return self.count * cast(Any, batch).size, [batch] * len(self.mine)


class Task(ABC):
    """What a model is trained for. A task holds data and no training state: every batch follows from its arguments.

    A subclass has the attributes and the abstract methods; the other methods have defaults. What it may do beyond, such
    as predict or draw, is in `edgewise.tasks.core.abilities`. `pattern` is the recipe's
    graph: a `PatternChoice`, a function of `edgewise.graphs.PATTERNS` with its options bound, or None for the data's
    own graph.
    """

    name: str
    signature: Signature
    metric: str
    """Which of the scores chooses the best checkpoint."""
    by_measure: bool = False
    """Whether the metric is a measure of its answers, and no score of its own."""
    has_test: bool = True
    """Whether there is a test split; without one, a run's result is its validation score."""
    splits: Mapping[Split, Sized] = MappingProxyType({})
    """The examples of each split, where they can be counted."""
    contents: str = ""
    """What the data are, for `describe`; empty where `unit` says it."""
    epoch_size: int
    """The number of training examples; 1 where all nodes of one graph are read at once."""
    unit: str = "examples"
    """What an example is, in the plural."""
    workers: int = 0
    """How many threads make the batches of the next steps while this one trains, which they do through `train_batch`;
    0: each is made when it is needed."""
    kept: tuple[str, ...] = ()
    """The names of the files that `keep` writes."""
    private: tuple[str, ...] = ()
    """Those of them that stay in the run, and do not lie beside a file of its model."""
    summary: tuple[str, ...] = ()
    """How its data were read, in lines that are printed before training."""
    changes: tuple[str, ...] | None = None
    """Of a task that keeps its split in a run, what its split lacks, or what has changed since, in sentences."""
    few: bool = False
    """Whether its data are gone, and but a few of its examples are there, which a run has kept."""
    idle: tuple[str, ...] = ()
    """Options that it was given and that have no effect beside the others, each in a sentence."""
    tables: bool = False
    """Whether `elsewhere` reads tables of inputs too, by the columns that training read."""
    curves: tuple[str, ...] = ()
    """The scores to show over the steps of a training, beside the loss; without any, the metric."""

    @property
    def maximise(self) -> bool:
        """Whether more of the metric is better: as the task says, or else as the name of its metric does.

        Errors      ConfigError where neither does
        """
        said: bool | None = vars(self).get("maximise")
        return larger_is_better(self.metric, type(self).__name__) if said is None else said

    @maximise.setter
    def maximise(self, larger: bool) -> None:
        vars(self)["maximise"] = larger

    @abstractmethod
    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """Draw `size` training examples: a pure function of the generator, so that training resumes exactly."""

    def train_parts(
        self, size: int, generator: torch.Generator, pattern: Pattern, parts: Parts
    ) -> tuple[int, list[Batch]]:
        """How many terms the mean loss of `train_batch` has over all parts, and those parts that are wanted.

        All parts together are that batch, however many there are. By default it is drawn whole and cut; a task that can
        draw a part alone does so, so that several ranks share the work.
        """
        batch = self.train_batch(size, generator, pattern)
        last, count, pieces = vars(self).get("_cut", (None, 0, []))
        if batch is not last or count != parts.count:  # a whole graph is the same batch at every step
            pieces = batch.split(parts.count)
            self._cut = batch, parts.count, pieces
        return sum(piece.size for piece in pieces), [pieces[number] for number in parts.mine]

    @abstractmethod
    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """Every example of a split once, in a fixed order, `size` at a time."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The mean loss of a batch."""

    @abstractmethod
    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Sums over the batch's terms, and their number as "count"; a mean over batches is the ratio of their sums."""

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        """The scores of a split from the means over its examples, for scores that are no such mean themselves."""
        return means

    def describe(self) -> str:
        """The data in a line."""
        if not self.splits:
            return f"{self.name}: {self.epoch_size:,} {self.unit} to train on"
        return f"{self.name}: {self.contents or self.unit} ({sizes(self.splits)})"

    def _repr_html_(self) -> str:
        first, *more = self.summary or (self.describe(),)
        kind = element("p", f"{type(self).__name__}, measured by {self.metric}")
        return note(first, kind, folded([*more, *(self.changes or ())]))

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        """The value under a key, built at the first call: what `edgewise.graphs.derived.cached` stores methods' results
        by, so that evaluations read the same graphs and batches."""
        values: dict[Hashable, T] = vars(self).setdefault("_values", {})
        if key not in values:
            values[key] = build()
        return values[key]

    @cached
    def laid(self, pattern: Pattern, own: Callable[..., Graph], *layout: int) -> Graph:
        """A pattern's graph over a layout, or `own(*layout)` for the data's own graph: the same object every time."""
        return lay(own if given(pattern) else pattern, *layout)


def larger_is_better(metric: str, of: str) -> bool:
    """Whether more of a metric is better, as the words in its name say.

    Errors      ConfigError for a name that says neither, or both, with the attribute that decides

    >>> larger_is_better("balanced_accuracy", "Pairs"), larger_is_better("ndcg@10", "Pairs")
    (True, True)
    >>> larger_is_better("force error", "Pairs"), larger_is_better("MeanSquaredError", "Pairs")
    (False, False)
    """
    words = set(re.findall(r"[a-z]+[12]?", re.sub("(?<=[a-z])(?=[A-Z])", " ", metric).replace("²", "2").lower()))
    larger, smaller = (any(map(kind.fullmatch, words)) for kind in (LARGER, SMALLER))
    smaller = smaller and "neg" not in words
    if larger == smaller:
        which = f"whether more or less {metric!r} is better does not follow from its name"
        raise ConfigError(f"{which}: give {of} maximise = True or maximise = False")
    return larger


def _given() -> None:
    """The data's own graph."""


GRAPHS: dict[str, Callable[..., Any]] = {"given": _given, **PATTERNS}
# How nodes lie is the task's to say, not an option of a pattern.
LAYOUT = ("n", "receivers", "senders", "offset", "sizes", "left", "right", "height", "width")


@dataclass(frozen=True)
class PatternChoice(Choice):
    """A graph chosen by name, with options: what a recipe writes under `graph`, and a task calls with its layout.

    Args:
        name: A name of `PATTERNS`, or "given" for the data's own graph.
        options: The pattern's own options, for instance {"radius": 8} for "window".

    Errors      an unknown name, an option that the pattern does not take or a layout that it cannot have:
                `ConfigError`.

    Example
        >>> PatternChoice("window", {"radius": 1}).build(4).num_edges
        10
    """

    name: str = "given"

    def __post_init__(self) -> None:
        known("graph", self.name, GRAPHS)
        known_options(f"graph {self.name!r}", self.options, OneOf(GRAPHS).options(self.name))

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.options.items()))))

    def __call__(self, *layout: int) -> Graph:
        return self.build(*layout)

    def build(self, *layout: int) -> Graph:
        """The graph over a layout: `build(n)` for n positions in a row, `build(height, width)` for a grid of them."""
        if self.name == "given":
            raise ConfigError("the graph 'given' is the data's own: it cannot be built from a layout")
        try:
            graph = lay(partial(PATTERNS[self.name], **self.options), *layout)
        except (TypeError, GraphError) as error:
            options = ", ".join(f"{option}={value!r}" for option, value in self.options.items())
            shape = " x ".join(map(str, layout))
            raise ConfigError(f"the graph {self.name}({options}) does not fit {shape} positions: {error}") from error
        return graph


def check_range(least: float, most: float, **options: float) -> None:
    """Refuse options of a task that are not within a range.

    >>> check_range(1, 9, digit=0)
    Traceback (most recent call last):
    edgewise.errors.ConfigError: task.digit must be from 1 to 9, not 0
    """
    for name, value in options.items():
        if not least <= value <= most:
            raise ConfigError(f"task.{name} must be from {least} to {most}, not {value}")


def figure(scores: Mapping[str, float], name: str, task: Task) -> float:
    """The one of a task's scores by which weights are chosen; a ConfigError where it is none of them."""
    if name not in scores:
        known = ", ".join(map(repr, scores)) or "none"
        raise ConfigError(f"weights are to be chosen by {name!r}, but the scores of the task {task.name!r} are {known}")
    return scores[name]


def given(pattern: Pattern) -> bool:
    """Whether a pattern stands for the data's own graph."""
    return pattern is None or (isinstance(pattern, PatternChoice) and pattern.name == "given")


def without_future(graph: Graph) -> Graph:
    """The graph, if no token attends to a later one; any other is a ConfigError."""
    if not is_causal(graph):
        advice = "choose causal, strided, or window with sides=past"
        raise ConfigError(f"{graph} lets a token see the next one, which the model has to guess: {advice}")
    return graph


def lay(pattern: Pattern, *layout: int) -> Graph:
    """A pattern's graph over a layout: a pattern that knows height and width reads both, any other their product.

    Example
        >>> lay(PATTERNS["complete"], 2, 3).num_receivers
        6
    """
    assert pattern is not None
    if not isinstance(pattern, PatternChoice):
        parameters = inspect.signature(pattern).parameters.values()
        plane = any(p.name == "height" or p.kind is p.VAR_POSITIONAL for p in parameters)
        layout = layout if plane else (prod(layout),)
    graph = pattern(*layout)
    if not isinstance(graph, Graph):
        raise GraphError(f"the pattern made {a_kind(graph)} of {prod(layout)} positions, and not a Graph")
    if not graph.is_square or graph.num_receivers != prod(layout):
        shape = f"{graph.num_receivers} receivers and {graph.num_senders} senders"
        raise GraphError(f"it has {shape} for {prod(layout)} positions")
    return graph


class NumberedExamples(Task):
    """A task whose `splits` hold numbers of examples: a batch is some of them, and an epoch all that train."""

    splits: Mapping[Split, Tensor]
    replacement: bool = True
    """Whether training draws with replacement; without, `size` different examples, or all where there are fewer."""
    stored: bool = False
    """Whether the batches of an evaluation are made once, for all evaluations."""

    @abstractmethod
    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        """The examples of those numbers; in training, where they may vary, with a generator of the variation."""

    def numbers(self, split: Split) -> Tensor:
        return self.splits[split]

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        return self.batch(self._drawn(size, generator), pattern, generator)

    def _drawn(self, size: int, generator: torch.Generator) -> Tensor:
        numbers, count = self.numbers("train"), self.epoch_size
        if self.replacement:
            return numbers[torch.randint(count, (size,), generator=generator)]
        return numbers[torch.randperm(count, generator=generator)[:size]]

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        if self.stored:
            yield from self._stored(split, size, pattern)
        else:
            yield from (self.batch(numbers, pattern) for numbers in self.numbers(split).split(size))

    @cached
    def _stored(self, split: Split, size: int, pattern: Pattern) -> list[Batch]:
        return [self.batch(numbers, pattern) for numbers in self.numbers(split).split(size)]


class OneGraph(Task):
    """Every batch is the whole graph; a split only says which outputs the loss reads, so each batch is made once.

    The N nodes have features x [N, C], dense or sparse, and targets [N] or [N, T]; a split holds numbers of nodes. The
    edges may have features e [E, D], in the graph's own order: they are of no use to a pattern: a ConfigError."""

    epoch_size = 1
    splits: Mapping[Split, Tensor]
    whole: type[Batch] = Batch
    """What a batch is."""

    def __init__(
        self,
        graph: Graph,
        x: Tensor | SparseFeatures,
        targets: Tensor,
        splits: Mapping[Split, Tensor],
        e: Tensor | None = None,
    ) -> None:
        self._graph, self._x, self._targets, self.splits, self._e = graph, x, targets, splits, e

    def graph(self, pattern: Pattern = None) -> Graph:
        """The data's own graph, or a pattern over the nodes in their order."""
        if self._e is not None and not given(pattern):
            own = "belong to its own graph: the recipe's graph must be 'given'"
            raise ConfigError(f"the features of {self.name}'s edges {own}")
        return self._graph if given(pattern) else self.laid(pattern, complete, self._graph.num_receivers)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """The whole graph, read at the training nodes; `size` and `generator` have nothing to choose."""
        return self.batch("train", pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        yield self.batch(split, pattern)

    @cached
    def batch(self, split: Split, pattern: Pattern) -> Batch:
        rows = self.splits[split]
        return self.whole(self.graph(pattern), self._x, self._targets[rows], rows, self._e)
