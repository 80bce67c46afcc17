"""How an explanation is told: what its number, nodes and features are called, what adds up, and the largest scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.explanations.explained import Explained
from edgewise.layers.plain.linear import SparseFeatures

LISTED = 10  # scores in a table


def as_number(features: Tensor) -> str:
    """What one entry says."""
    return f"{float(features[0]):.4g}"


@dataclass(frozen=True)
class Feature:
    """Entries of what is known of a node or an edge that are one thing: a column of a table, a property of an atom.

    Symbols     width = how many entries; says = in words what they hold; at = what they say at the baseline
    """

    name: str
    width: int = 1
    says: Callable[[Tensor], str] = as_number
    at: str = "0"


class Sum(NamedTuple):
    """What scores add up to: output = baseline + parts + remainder; meaning = the baseline in words."""

    of: str
    parts: float
    baseline: float
    remainder: float
    meaning: str


class Listing(NamedTuple):
    """A table of scores: what each is of, in cells under a head."""

    title: str
    head: Sequence[str]
    cells: Sequence[Sequence[str]]
    scores: Sequence[float]

    @property
    def rows(self) -> list[list[str]]:
        """The cells, and the score of each as a text."""
        return [[*row, f"{score:+.4g}"] for row, score in zip(self.cells, self.scores, strict=True)]

    def plain(self) -> list[dict[str, Any]]:
        """The rows as JSON holds them."""
        return [
            dict(zip((*self.head, "score"), (*row, score), strict=True))
            for row, score in zip(self.cells, self.scores, strict=True)
        ]


@dataclass(frozen=True)
class Names:
    """How what an explanation is about is called.

    Symbols     what = the number, in words; unit = in what it is counted, such as log-odds; nodes = their names;
                features, edge_features = in the order of the entries, () where they have no names that say something,
                None: by number; groups = nodes that are one thing, as the tokens of a word, by its name; baseline =
                what stands for "not there", in words; empty: what the features say there
    """

    what: str = "the output"
    unit: str = ""
    nodes: Sequence[str] = ()
    features: Sequence[Feature] | None = ()
    edge_features: Sequence[Feature] = ()
    groups: Sequence[tuple[str, Sequence[int]]] = ()
    baseline: str = ""

    def absent(self, explained: Explained) -> str:
        """The baseline in words."""
        known = [f"{one.name} {one.at}" for one in (*(self.features or ()), *self.edge_features)]
        more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
        if self.baseline or known:
            return self.baseline or ", ".join(known[:LISTED]) + more
        if explained.tokens:
            return "an embedding of zeros for each token"
        given = explained.baseline
        return "the features that were given for it" if isinstance(given, Tensor) else f"{given:g} for every feature"

    @property
    def of_unit(self) -> str:
        """The unit behind a number."""
        return f" {self.unit}" if self.unit else ""

    def told(self, value: float, one: Sum) -> str:
        """A sum in a sentence."""
        unit = self.of_unit
        parts = f"The scores of {one.of} add up to {one.parts:+.4g}{unit}"
        whole = f"the output is {value:.4g}{unit}, at the baseline ({one.meaning}) {one.baseline:.4g}"
        return f"{parts}: {whole}; the remainder is {one.remainder:+.2g}."


def largest(
    names: Names,
    explained: Explained,
    edges: Tensor | None,
    nodes: Tensor,
    features: Sequence[Tensor],
    signed: bool,
) -> list[Listing]:
    """The largest scores that are not 0; of parts of a sum also what all others add up to.

    Symbols     edges, nodes, features = scores, as an `Explanation` has them
    """
    graph, called = explained.edges, names.nodes or [str(node) for node in range(explained.num_nodes)]
    first = 0 if graph.is_square else graph.num_senders  # receivers are named after the senders

    def ends(e: int) -> tuple[str, str]:
        return called[int(graph.senders[e])], called[int(graph.receivers[e]) + first]

    made = list[Listing]()
    if names.groups:
        sums = torch.stack([nodes[list(group)].sum() for _, group in names.groups])
        made.append(_top("Words", ["word"], sums, lambda n: [names.groups[n][0]], signed))
    given = [one for one in explained.inputs[2:] if isinstance(one, Tensor) and len(one) == graph.num_edges]
    parts = list[_Part]()
    if features and features[0].ndim == 2 and not isinstance(explained.x, SparseFeatures):
        x = explained.x.reshape(-1, *explained.x.shape[-2:])[explained.member or 0]
        numbered = [Feature(f"feature {c}") for c in range(x.shape[-1])]
        known = numbered if names.features is None else names.features
        parts += [_part(known, features[0], x, lambda j: called[j])] if known else []
    own = explained.node if graph.is_square and parts else None
    if len(features) > 1 and given and features[1].shape == given[0].shape and names.edge_features:
        parts.append(_part(names.edge_features, features[1], given[0], lambda e: " → ".join(ends(e))))
    if parts:
        head = ["feature"] if own is None else ["feature", f"of {called[own]}", "of all others"]
        sums = torch.cat([part.scores.sum(0) for part in parts])
        at_node = torch.zeros_like(sums)
        if own is not None:
            at_node[: len(parts[0].known)] = parts[0].scores[parts[0].rows == own].sum(0)
        told = [feature.name for part in parts for feature in part.known]

        def column(n: int) -> list[str]:
            shares = [] if own is None else [f"{float(one[n]):+.4g}" for one in (at_node, sums - at_node)]
            return [told[n], *shares]

        def entry(n: int) -> list[str]:
            part = parts[0] if n < parts[0].scores.numel() else parts[1]
            return part.entry(n if part is parts[0] else n - parts[0].scores.numel())

        flat = torch.cat([part.scores.flatten() for part in parts])
        made.append(_top("Features", head, sums, column, signed))
        made.append(_top("Entries", ["of", "feature", "is", "at the baseline"], flat, entry, signed))
    if edges is not None:
        made.append(_top("Edges", ["from", "to"], edges, lambda e: list(ends(e)), signed))
    made.append(_top("Nodes", ["node"], nodes, lambda n: [called[n]], signed))
    return made


class _Part(NamedTuple):
    """Scores [R, F] of named features in some rows [R], whose entries are x [*, C]; called = what a row is of."""

    known: Sequence[Feature]
    scores: Tensor
    rows: Tensor
    x: Tensor
    called: Callable[[int], str]

    def entry(self, n: int) -> list[str]:
        """What the n-th score is of, what is there, and what is there at the baseline."""
        row, k = int(self.rows[n // len(self.known)]), n % len(self.known)
        start = sum(feature.width for feature in self.known[:k])
        feature = self.known[k]
        return [self.called(row), feature.name, feature.says(self.x[row, start : start + feature.width]), feature.at]


def _part(known: Sequence[Feature], scores: Tensor, x: Tensor, called: Callable[[int], str]) -> _Part:
    """The rows of scores [*, C] that are not 0 alone."""
    rows = scores.any(-1).nonzero()[:, 0]
    split = scores[rows].split([one.width for one in known], -1)
    return _Part(known, torch.stack([part.sum(-1) for part in split], -1), rows, x, called)


def _top(title: str, head: list[str], scores: Tensor, says: Callable[[int], list[str]], signed: bool) -> Listing:
    count = int(scores.count_nonzero())
    top = scores.abs().topk(min(LISTED, count)).indices.tolist()
    cells, values = [says(n) for n in top], scores[top].tolist()
    if signed and count > len(top):
        cells.append([f"{count - len(top):,} more", *[""] * (len(head) - 1)])
        values.append(float(scores.double().sum() - scores[top].double().sum()))
    return Listing(title, head, cells, values)
