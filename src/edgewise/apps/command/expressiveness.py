"""`edgewise check`: which hard pairs of graphs a model tells apart, beside Weisfeiler and Leman."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import configuration
from edgewise.apps.console import columns
from edgewise.apps.options import assignments, overridden
from edgewise.configuration import options_of
from edgewise.errors import counted
from edgewise.graphs import Graph
from edgewise.graphs.refinement import refinement_classes
from edgewise.models import Features, model_named
from edgewise.tasks.graphs.isomorphism import FAMILIES, Family, read_pairs

SEEDS = 3  # of a model's weights: what one draw misses by chance, another sees
RELABELLINGS = 100
THRESHOLD = 1e-6  # relative, in float64
CHANNELS = 8
BATCH = 500_000  # nodes cubed: a batch of graphs that a network on marked pairs reads in some hundred MB
RATE = 0.003  # of Adam, where a pair is trained on
LISTED = 20  # pairs that are named as not told apart


@dataclass(frozen=True)
class Verdict:
    """Of a family's pairs, how many each test and the model tell apart; and whether a relabelling fooled the model."""

    family: str
    graphs: int
    pairs: int
    wl_1: int
    wl_2: int
    model: int
    false: int
    """Relabelled copies, of so many for each graph, that the model tells apart from their originals."""
    missed: tuple[int, ...]
    """The pairs, numbered from 1, that the model does not tell apart."""


def check(
    what: str, model: str, options: Sequence[str], pairs: str | None, train: int, relabellings: int
) -> dict[str, Any]:
    """Print what a model tells apart, and what it takes for different and is not."""
    models = [build(model, options, seed) for seed in range(SEEDS)]
    families = [made() for made in FAMILIES.values()] if pairs is None else [read_pairs(Path(pairs))]
    trained = f"; trained for {counted(train, 'step')} on each pair" if train else ""
    print(f"pairs of graphs told apart (2-WL: folklore; false: of {relabellings} relabellings of each graph{trained})")
    verdicts = [judge(family, models, train, relabellings) for family in families]
    rows = [
        {"family": v.family, "graphs": str(v.graphs), "pairs": str(v.pairs), "1-WL": str(v.wl_1), "2-WL": str(v.wl_2),
         model: str(v.model), "false": str(v.false)}
        for v in verdicts
    ]  # fmt: skip
    print(columns(rows, heads=True))
    if pairs is not None and verdicts[0].missed:
        missed = verdicts[0].missed
        more = f" and {len(missed) - LISTED} more" if len(missed) > LISTED else ""
        print(f"  not told apart: pairs {', '.join(map(str, missed[:LISTED]))}{more}")
    return {"model": model, "options": list(options), "families": [vars(v) for v in verdicts]}


def judge(family: Family, models: Sequence[nn.Module], steps: int = 0, relabellings: int = RELABELLINGS) -> Verdict:
    """Compare every pair of a family, and every graph with relabelled copies of itself."""
    relabelled = [_relabelled(family, number, relabellings) for number in range(len(family.graphs))]
    read = (_trained if steps else _drawn)(family, models, relabelled, steps)
    labels = [refinement_classes(family.graphs, order, family.colors or None) for order in (1, 2)]
    wl_1, wl_2 = (sum(int(label[a] != label[b]) for a, b in family.pairs) for label in labels)
    apart, false = read
    missed = tuple(number for number, told in enumerate(apart.tolist(), 1) if not told)
    told = len(family.pairs) - len(missed)
    return Verdict(family.name, len(family.graphs), len(family.pairs), wl_1, wl_2, told, int(false.sum()), missed)


Batch = tuple[Graph, Tensor]  # graphs, and the features of their nodes
Copies = list[Batch]  # of one graph, so many in a batch that a network on marked pairs can read it


def _drawn(family: Family, models: Sequence[nn.Module], copies: Sequence[Copies], _: int) -> tuple[Tensor, Tensor]:
    """With weights as drawn: which pairs one of the models tells apart, and which relabelled copies."""
    first, second = torch.tensor(family.pairs).T
    apart = torch.zeros(len(family.pairs), dtype=torch.bool)
    false = []
    for model in models:
        y = torch.cat([predictions(model, [_original(family, number)]) for number in range(len(family.graphs))])
        apart |= differ(y[first], y[second])
        false.append(torch.cat([differ(predictions(model, own), one) for own, one in zip(copies, y, strict=True)]))
    return apart, torch.stack(false).any(0)


def _trained(
    family: Family, models: Sequence[nn.Module], copies: Sequence[Copies], steps: int
) -> tuple[Tensor, Tensor]:
    """As `_drawn`, each model trained for each pair to turn its two predictions away from each other."""
    apart = torch.zeros(len(family.pairs), dtype=torch.bool)
    relabellings = sum(len(graphs.sizes) for graphs, _ in copies[0])
    false = torch.zeros(len(family.graphs), relabellings, dtype=torch.bool)
    for place, pair in enumerate(family.pairs):
        for drawn in models:
            model = copy.deepcopy(drawn)
            optimizer = torch.optim.Adam(model.parameters(), RATE)
            for _ in range(steps):
                a, b = (model(*_original(family, number)) for number in pair)
                optimizer.zero_grad()
                functional.cosine_similarity(a, b).sum().backward()
                optimizer.step()
            y = [predictions(model, [_original(family, number)]) for number in pair]
            apart[place] |= differ(*y)[0]
            for number, one in zip(pair, y, strict=True):
                false[number] |= differ(predictions(model, copies[number]), one)
    return apart, false


@torch.no_grad()
def predictions(model: nn.Module, batches: Sequence[Batch]) -> Tensor:
    """The model's prediction for each member of some batches of graphs: [G, CHANNELS]."""
    return torch.cat([model(graphs, x) for graphs, x in batches])


def differ(a: Tensor, b: Tensor) -> Tensor:
    """Whether two predictions [..., C] differ by more than rounding."""
    return ((a - b).abs() > THRESHOLD * torch.maximum(a.abs(), b.abs()).clamp(min=1)).any(-1)


def build(name: str, options: Sequence[str], seed: int) -> nn.Module:
    """A model of that name with random weights, in float64, for tasks on whole graphs."""
    settings, model = model_named(name)
    known = options_of(settings)
    content = {"readout": "sum"} if "readout" in known else {}
    made = configuration.build(settings, overridden(content, assignments(options, known)), name)
    torch.manual_seed(seed)
    built: nn.Module = model(made, Features(1, CHANNELS, whole_graph=True)).double().eval()
    return built


def _original(family: Family, number: int) -> Batch:
    return family.graphs[number], family.features(number)


def _relabelled(family: Family, number: int, count: int) -> Copies:
    """Copies of a graph whose nodes are numbered at random."""
    generator = torch.Generator().manual_seed(number)
    graph, x = _original(family, number)
    n = graph.num_receivers
    copies = []
    for numbers in torch.arange(count).split(max(BATCH // max(n, 1) ** 3, 1)):
        order = torch.cat([n * place + torch.randperm(n, generator=generator) for place in range(len(numbers))])
        copies.append((Graph.batch([graph] * len(numbers)).permute(order), x.repeat(len(numbers), 1)[order]))
    return copies
