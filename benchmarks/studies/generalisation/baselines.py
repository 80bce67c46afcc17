"""What simple methods reach on the data of the recipes: the least that a network there should be better than.

python -m benchmarks.studies.generalisation.baselines [RECIPE ...]

Graphs      logistic regression on the sums and means of the nodes' features and the numbers of nodes and edges; on
            clouds of points, on how often two points are so far apart
Nodes       labels that spread along the edges (personalised PageRank from each class's training nodes), and logistic
            regression on a node's own features
Texts       the next character by counts of what followed the last few, shorter contexts where longer ones are rare
            (Witten and Bell, 1991)
Translation the translation of the training sentence that shares most words, weighed by their rarity

Whatever a method can choose (a penalty, a length, a share) is chosen on the validation data.
"""

import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise import training
from edgewise.apps import options, recipes
from edgewise.apps.command.runs import with_fold
from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.layers import SparseFeatures
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.nodes.classification import NodeClassification
from edgewise.tasks.text.language import Text
from edgewise.tasks.text.translation import Translation

FOLDS = {
    "mutag-gin": 10, "enzymes-sage": 10, "texas-sage": 10, "digits-gru": 1, "clouds-dgcnn": 1, "karate-kernel": 1,
    "cora-gcn": 1, "shakespeare-gpt-cpu": 1, "multi30k-bahdanau": 1,
}  # fmt: skip
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
RETURNS = (0.05, 0.2, 0.5)  # to a labelled node, of a walk
BINS = 24


def regression(parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> float:
    """Test accuracy of logistic regression on standardised features, its penalty the best on the validation part."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fitted = [
        make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=2000)).fit(*parts["train"]) for c in PENALTIES
    ]
    return float(max(fitted, key=lambda model: model.score(*parts["valid"])).score(*parts["test"]))


def whole_graphs(batch: Batch) -> np.ndarray:
    """Features of each graph of a batch: of points how far apart they are, else sums, means and counts."""
    graph, x = batch.graph, batch.x
    assert isinstance(graph, Graph) and isinstance(x, Tensor)
    members = graph.membership()
    if x.shape[-1] == 3:  # places
        clouds = x.split(members.in_degrees().tolist())
        return np.stack([np.histogram(torch.pdist(c).numpy(), BINS, (0, 4), density=True)[0] for c in clouds])
    sums, means = (aggregate(members, x, reduce=how) for how in ("sum", "mean"))
    nodes = members.in_degrees().to(x.dtype).unsqueeze(-1)
    edges = aggregate(members, graph.in_degrees().to(x.dtype).unsqueeze(-1))
    return torch.cat([sums, means, nodes, edges], -1).numpy()


def on_graphs(task: Any) -> dict[str, float]:
    parts = {}
    for part in ("train", "valid", "test"):
        batches = list(task.batches(part, 4096))
        rows = [whole_graphs(b) if b.rows is None and b.x.ndim == 2 else b.x.flatten(1).numpy() for b in batches]
        parts[part] = np.concatenate(rows), np.concatenate([b.target.numpy() for b in batches])
    return {"logistic regression": regression(parts)}


def on_nodes(task: Any) -> dict[str, float]:
    batches = {part: next(iter(task.batches(part, 1))) for part in ("train", "valid", "test")}
    graph, x = batches["train"].graph, batches["train"].x
    own = (x.to_dense() if isinstance(x, SparseFeatures) else x).numpy()
    parts = {part: (own[b.rows.numpy()], b.target.numpy()) for part, b in batches.items()}
    return {"labels that spread": spread(graph, batches), "its own features": regression(parts)}


def spread(graph: Graph, batches: dict[str, Batch]) -> float:
    """Test accuracy of the class whose training nodes a walk with returns visits a node from most often."""
    train = batches["train"]
    start = torch.zeros(graph.num_receivers, int(train.target.max()) + 1)
    start[train.rows, train.target] = 1
    start /= start.sum(0).clamp(min=1)
    best = (-1.0, -1.0)
    for back in RETURNS:
        share = start
        for _ in range(50):
            share = back * start + (1 - back) * aggregate(graph, share, reduce="mean")
        right = [float((share[b.rows].argmax(-1) == b.target).float().mean()) for b in batches.values()]
        best = max(best, (right[1], right[2]))
    return best[1]


def on_text(task: Any, longest: int = 8) -> dict[str, float]:
    """Validation losses by the length of the longest context."""
    train, valid = (task._parts[part].tolist() for part in ("train", "valid"))
    found = {}
    probability = [1 / len(task.vocabulary)] * (len(valid) - 1)  # of each character but the first
    for length in range(longest):
        followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for end in range(length, len(train)):
            followers[tuple(train[end - length : end])][train[end]] += 1
        for at in range(max(1, length), len(valid)):
            seen = followers.get(tuple(valid[at - length : at]))
            if seen is not None:  # the more different characters followed, the more is left to the shorter context
                kinds, count = len(seen), seen.total()
                probability[at - 1] = (seen[valid[at]] + kinds * probability[at - 1]) / (count + kinds)
        found[f"counts, {length} characters before"] = -statistics.fmean(map(log, probability))
    return found


def on_pairs(task: Any) -> dict[str, float]:
    """BLEU of the translation of the nearest training sentence."""
    from sacrebleu import corpus_bleu
    from sklearn.feature_extraction.text import TfidfVectorizer

    (known, said), (asked, wanted) = (task.texts[part] for part in ("train", "test"))
    words = TfidfVectorizer(analyzer=str.split).fit(known)
    nearest = (words.transform(asked) @ words.transform(known).T).toarray().argmax(1)
    return {"nearest sentence": corpus_bleu([said[i] for i in nearest], [list(wanted)], lowercase=True).score}


def simple(task: Any) -> dict[str, float]:
    """What each method that fits a task reaches."""
    kinds: dict[type, Callable[[Any], dict[str, float]]] = {
        Text: on_text, Translation: on_pairs, NodeClassification: on_nodes,
    }  # fmt: skip
    return next((how for kind, how in kinds.items() if isinstance(task, kind)), on_graphs)(task)


def baselines(recipe: str) -> dict[str, list[float]]:
    """What each method that fits the recipe's task reaches, on each of its folds."""
    config = options.configure(recipes.read(recipe))
    found = defaultdict(list)
    for fold in range(FOLDS.get(recipe, 1)):
        one = with_fold(config, fold) if "fold" in config.task.options else config
        task, _ = training.assemble(replace(one, train=replace(one.train, seed=fold)))
        for name, figure in simple(task).items():
            found[name].append(figure)
    return found


def main(names: list[str]) -> None:
    for recipe in names or FOLDS:
        for name, figures in baselines(recipe).items():
            deviation = f" ± {statistics.stdev(figures):.3f}" if len(figures) > 1 else ""
            print(f"| {recipe} | {name} | {statistics.fmean(figures):.3f}{deviation} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
