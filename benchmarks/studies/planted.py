"""What the methods of explanation find of motifs planted in graphs and of words planted in texts, and how fast.

python -m benchmarks.studies.planted

ROC AUC of links, both directions together, or of words; the area between insertion and deletion above that of random
orders; seconds for each of six nodes or texts of three models of each kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import build
from edgewise.errors import ExplanationError
from edgewise.explanations import EXPLANATIONS, Explained, fidelity, scores
from edgewise.explanations.reach import within_reach
from edgewise.graphs import Graph, complete
from edgewise.models import Features, Tokens, model_named

HOUSE = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)]
WHEEL = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 0), (4, 1), (4, 2), (4, 3)]
CLIQUE = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]
MOTIFS = {"houses": HOUSE, "wheels": WHEEL, "cliques": CLIQUE}
BASE, PLANTED, SIZE = 100, 20, 5  # nodes that attach one after the other (Barabási & Albert), motifs, nodes of each
DEGREES = 10  # that nodes tell apart
WORDS, LENGTH, SENTENCES = 30, 12, 256
STEPS, RATE = 300, 0.01  # of training
SEEDS = (200, 201, 202)  # of graphs, texts and weights; how links are scored was chosen on the seeds 100 to 102
EXPLAINED = 6  # nodes or texts of each seed


@dataclass(frozen=True)
class Case:
    """Trained models, what of them is explained, and the truth: which edges or nodes were planted.

    Symbols     accuracy = the mean over the models
    """

    name: str
    of: Literal["edges", "nodes"]
    subjects: Sequence[tuple[Explained, Tensor]]
    accuracy: float


def motifs(name: str, seed: int = 0) -> tuple[Graph, Tensor, Tensor]:
    """A random tree with motifs attached by one edge each: the graph, which nodes and which edges are a motif's."""
    generator = torch.Generator().manual_seed(seed)
    ends = [0]
    pairs: list[tuple[int, int]] = []
    for node in range(1, BASE):
        other = ends[int(torch.randint(len(ends), (), generator=generator))]
        pairs.append((node, other))
        ends += [node, other]
    for number in range(PLANTED):
        first = BASE + number * SIZE
        pairs += [(first + i, first + j) for i, j in MOTIFS[name]]
        pairs.append((first + 2, int(torch.randint(BASE, (), generator=generator))))
    graph = Graph.from_edge_index(torch.tensor(pairs).T, BASE + PLANTED * SIZE).symmetrise()
    inside = (torch.arange(graph.num_receivers) >= BASE).long()
    block = (torch.arange(graph.num_receivers) - BASE) // SIZE
    same = block[graph.receivers] == block[graph.senders]
    return graph, inside, same & (inside[graph.receivers] > 0) & (inside[graph.senders] > 0)


def trained(model: nn.Module, loss: Callable[[], Tensor]) -> nn.Module:
    """The model after some steps of Adam."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=RATE)
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return model.eval()


def planted_motifs(name: str, seed: int) -> Case:
    """A graph convolution learns which nodes belong to a motif; the motif's edges are the truth."""
    graph, inside, edges = motifs(name, seed)
    x = functional.one_hot(graph.in_degrees().clamp(max=DEGREES - 1), DEGREES).float()
    settings, built = model_named("gnn")
    options = {"layer": {"name": "gcn"}, "width": 16, "depth": 3, "norm": "none"}
    torch.manual_seed(seed)
    model = built(build(settings, options, "gnn"), Features(DEGREES, 2))
    trained(model, lambda: functional.cross_entropy(model(graph, x), inside))
    y = model(graph, x)
    right = (y.argmax(-1) == inside) & (inside > 0)
    nodes = right.nonzero()[:, 0][:: max(1, int(right.sum()) // EXPLAINED)][:EXPLAINED].tolist()

    def margin(node: int) -> Callable[[Tensor], Tensor]:
        return lambda outputs: outputs[node, 1] - outputs[node, 0]

    subjects = [(Explained(model, (graph, x), margin(node), node=node), edges) for node in nodes]
    return Case(name, "edges", subjects, float((y.argmax(-1) == inside).double().mean()))


def planted_words(seed: int) -> Case:
    """A transformer learns whether two words are both in a text; these are the truth."""
    generator = torch.Generator().manual_seed(seed)
    texts = torch.randint(3, WORDS, (SENTENCES, LENGTH), generator=generator)
    both = torch.rand(SENTENCES, generator=generator) < 0.5
    where = torch.rand(SENTENCES, LENGTH, generator=generator).argsort(-1)[:, :2]
    rows = torch.arange(SENTENCES)
    texts[rows[both], where[both, 0]], texts[rows[both], where[both, 1]] = 0, 1
    settings, built = model_named("transformer")
    options = {"width": 16, "depth": 2, "heads": 2, "readout": "mean", "positions": "none"}
    torch.manual_seed(seed)
    model = built(build(settings, options, "transformer"), Tokens(WORDS, 2, length=LENGTH, whole_graph=True))
    graph, target = complete(LENGTH), both.long()
    trained(model, lambda: functional.cross_entropy(model(graph, texts).reshape(SENTENCES, 2), target))
    y = model(graph, texts).reshape(SENTENCES, 2)
    chosen = ((y.argmax(-1) == target) & both).nonzero()[:EXPLAINED, 0].tolist()

    def margin(outputs: Tensor) -> Tensor:
        return outputs.reshape(2)[1] - outputs.reshape(2)[0]

    subjects = [(Explained(model, (graph, texts[n][None]), margin), texts[n] < 2) for n in chosen]
    return Case("words", "nodes", subjects, float((y.argmax(-1) == target).double().mean()))


def together(parts: Sequence[Case]) -> Case:
    """The subjects of several seeds as one case."""
    subjects = [subject for part in parts for subject in part.subjects]
    return Case(parts[0].name, parts[0].of, subjects, fmean(part.accuracy for part in parts))


def of_links(graph: Graph, values: Tensor) -> Tensor:
    """The sum over both directions of a link, for each edge: a motif's links have none, and a message that runs away
    from the explained node matters less than the one back.

    Reference   Ying et al., "GNNExplainer", 2019, whose masks of the two directions are averaged

    Example
        >>> of_links(Graph.from_edge_index([[0, 1, 2], [1, 0, 1]], num_nodes=3), torch.tensor([1.0, 2.0, 5.0]))
        tensor([3., 3., 5.])
    """
    low, high = torch.minimum(graph.receivers, graph.senders), torch.maximum(graph.receivers, graph.senders)
    links, number = (low * graph.num_senders + high).unique(return_inverse=True)
    return values.new_zeros(len(links)).index_add(0, number, values)[number]


def agreement(case: Case, found: Sequence[Tensor]) -> float:
    """The mean ROC AUC of scores of each subject, over what is within reach of it."""
    aucs = []
    for (explained, truth), values in zip(case.subjects, found, strict=True):
        reach = within_reach(explained)[0 if case.of == "edges" else 1]
        if truth[reach].any() and not truth[reach].all():
            merged = values if case.of == "nodes" else of_links(explained.edges, values)
            aucs.append(roc_auc(truth[reach], merged[reach]))
    return fmean(aucs) if aucs else 0.0


def roc_auc(truth: Tensor, found: Tensor) -> float:
    """The chance that a planted score is above another, equal ones count half.

    Example
        >>> roc_auc(torch.tensor([True, True, False]), torch.tensor([3.0, 1.0, 2.0]))
        0.5
    """
    above = found[truth][:, None] - found[~truth][None]
    return float(((above > 0).double() + 0.5 * (above == 0).double()).mean())


def judge(case: Case, method: str) -> dict[str, float]:
    """The mean ROC AUC of a method over a case's subjects, its fidelity above random orders, seconds for each."""
    found, margins, seconds = [], [], 0.0
    for explained, _ in case.subjects:
        started = time.perf_counter()
        why = scores(explained, method)
        seconds += time.perf_counter() - started
        values = why.nodes if case.of == "nodes" else why.edges
        assert values is not None
        found.append(values)
        margins.append(fidelity(why, case.of, orders=2).margin)
    return {"auc": agreement(case, found), "fidelity": fmean(margins), "seconds": seconds / len(case.subjects)}


def results(case: Case) -> dict[str, dict[str, float]]:
    """What each method finds, but for those that read attention where there is none."""
    found = {}
    for method in EXPLANATIONS:
        with suppress(ExplanationError):
            found[method] = judge(case, method)
    return found


def main() -> None:
    cases = [together([planted_motifs(name, seed) for seed in SEEDS]) for name in MOTIFS]
    for case in (*cases, together([planted_words(seed) for seed in SEEDS])):
        print(f"\n| {case.name} ({case.accuracy:.0%} right) | ROC AUC | fidelity | s |\n|---|---|---|---|")
        for name, r in results(case).items():
            print(f"| `{name}` | {r['auc']:.3f} | {r['fidelity']:+.0%} | {r['seconds']:.3f} |")


if __name__ == "__main__":
    main()
