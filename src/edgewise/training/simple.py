"""Simple methods beside a network: what the same examples, cut alike, would give without one, within seconds."""

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.data.columns import Target
from edgewise.data.splits import Split
from edgewise.files import read_json, write_file
from edgewise.tasks.core.abilities import HasRows, StandsBeside
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import OneGraph, Pattern, Task
from edgewise.tasks.own.several import SeveralTargets
from edgewise.training.runs import evaluate
from edgewise.training.settings import RunConfig

FILE = "simple.json"
LEARNS, READS = 20_000, 100_000  # examples that train a method, and that it is asked about, at most
NUMBERS = 1 << 27  # of a table of features
LEAF = 20  # examples of a boosted tree's leaf, at least
WIDE = 512  # features, of more of which boosted trees would take minutes
HOPS, STAY = 30, (0.5, 0.9)  # of labels that spread, and what of them each hop keeps
DOUBT = 1e-3  # of a probability: what has never been seen is not impossible
Scores = Callable[[Split], Mapping[str, float]]


@dataclass(frozen=True)
class Simple:
    """What the best of the simple methods reached: chosen on the validation split; the test split was read once.

    Symbols     name = that method; maximise = whether more of `metric` is better; valid, test = its values, test None
                for a task without that split; tried = the validation score of each method; left = what was left out to
                be done in time, or empty
    """

    name: str
    metric: str
    maximise: bool
    valid: float
    test: float | None
    seconds: float
    tried: dict[str, float]
    left: str = ""

    @classmethod
    def read(cls, run: Path) -> Self | None:
        """What a run folder keeps, if it has any."""
        return cls(**read_json(run / FILE, "the simple methods beside a run")) if (run / FILE).is_file() else None

    def keep(self, run: Path) -> None:
        """Write it into a run folder."""
        write_file(run / FILE, json.dumps(asdict(self), indent=1, ensure_ascii=False).encode())

    @property
    def value(self) -> float:
        """The figure to compare with that of a model: on the test split, or else on the validation split."""
        return self.valid if self.test is None else self.test


def beside(run: Path, task: Task, config: RunConfig) -> Simple | None:
    """What simple methods reach on the data of a run, which its folder then keeps; None where there are none."""
    found = Simple.read(run)
    if found is None and config.evaluation.simple:
        found = best_simple(task, config.evaluation.simple, config.evaluation_batch, config.train.weights == "balanced")
        if found is not None:
            found.keep(run)
    return found


def best_simple(task: Task, seconds: float = 30, size: int = 200, balanced: bool = False) -> Simple | None:
    """The best of the simple methods for a task, by its validation split; None for a task that has none.

    Nodes, graphs, molecules, texts, images and clouds of one's own: the commonest class or the mean; a linear model and
    gradient-boosted trees on each one's features in a row (of nodes also its neighbours' means, of graphs sums and
    counts, of images a thumbnail, of clouds moments), a forest on molecules' fingerprints, TF-IDF of texts, and for
    nodes labels that spread along edges. Links, facts and choices: rankings by counts. A text to continue: n-grams.

    Symbols     seconds = after which no further method is begun; size = examples of an evaluation's batch;
                balanced = whether all classes count alike
    Edge cases  at most 20,000 examples, drawn at random, train a method
    """
    began, tried = time.perf_counter(), dict[str, float]()
    best: tuple[float, str, Scores] | None = None
    left, metric = "", task.metric
    if isinstance(task, SeveralTargets):
        task = copy(task)
        task.read_by(())  # a trained model's threshold is not theirs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a linear model that is not done, which is tried as it is
        for name, scores in _methods(task, size, balanced):
            if metric not in (found := scores("valid")):  # a ranking has no probabilities to measure
                continue
            tried[name] = value = float(found[metric])
            merit = value if task.maximise else -value
            if best is None or merit > best[0]:
                best = merit, name, scores
            if time.perf_counter() - began > seconds:
                left = f"stopped after {seconds:g} s"
                break
        if best is None:
            return None
        test = float(best[2]("test")[metric]) if task.has_test else None
    valid = tried[best[1]]
    count = len(task.splits["train"]) if isinstance(task, HasRows) else 0
    if count > LEARNS:
        left = ", ".join([*([left] if left else []), f"trained on {LEARNS:,} of {count:,} {task.unit}"])
    taken = round(time.perf_counter() - began, 2)
    return Simple(best[1], metric, task.maximise, valid, test, taken, tried, left)


def _methods(task: Task, size: int, balanced: bool) -> Iterator[tuple[str, Scores]]:
    """Methods, each when it has learned, by name: what gives its scores of a split; the quickest first."""
    if isinstance(task, StandsBeside):
        yield from task.simple()
    elif isinstance(task, HasRows):
        for name, outputs in _of_rows(task, balanced):
            yield name, partial(_scores, task, outputs, size)


class _Given(nn.Module):
    """A model whose outputs are known."""

    outputs: Tensor

    def forward(self, *inputs: Any) -> Tensor:
        return self.outputs


def _scores(task: Task, outputs: Tensor, size: int, split: Split) -> dict[str, float]:
    """A task's own scores of the outputs [N, O] of all its examples, as if a model gave them."""
    model, reader = _Given(), copy(task)

    def batches(split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        numbers, place = torch.as_tensor(task.splits[split]), 0
        for batch in task.batches(split, size, pattern):
            here = numbers[place : place + len(batch.target)]
            model.outputs = outputs if batch.rows is not None else outputs[here]
            place += len(here)
            yield batch

    vars(reader)["batches"] = batches
    return evaluate(model, reader, split, size)


def _of_rows(task: Any, balanced: bool) -> Iterator[tuple[str, Tensor]]:
    """Outputs [N, O] of each method, of all examples of a split; those of others are 0."""
    given, fitted, splits = task.own.given, task.own.fitted, task.splits
    train = splits["train"]
    if len(train) > LEARNS:
        train = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:LEARNS]]
    others = torch.cat([splits["valid"], splits["test"]])
    weights = None if given.weights is None else given.weights[train]
    learners = [
        Learner(target, mean, deviation, target.values(labels)[train], balanced, weights)
        for target, (mean, deviation), labels in zip(fitted.targets, fitted.scales, given.targets, strict=True)
    ]

    def outputs(parts: list[Tensor]) -> Tensor:
        whole = torch.zeros(len(given), sum(learner.target.width for learner in learners), dtype=torch.float64)
        whole[others] = torch.cat(parts, 1)
        return whole

    kinds = {learner.target.kind for learner in learners}
    yield (
        " and ".join({"class": "the commonest class", "number": "the mean"}[kind] for kind in sorted(kinds)),
        outputs([learner.constant.expand(len(others), -1) for learner in learners]),
    )
    if len(others) > READS:
        return
    if isinstance(task, OneGraph):
        for stay in STAY:
            spread = [_spread(task, learner, train, stay)[others] for learner in learners]
            yield f"labels that spread along edges ({stay:g} a hop)", outputs(spread)
    for rows in task.rows(torch.cat([train, others])):
        if not isinstance(rows.x, list) and rows.x.shape[0] * rows.x.shape[1] > NUMBERS:
            continue
        x, y = rows.x[: len(train)], rows.x[len(train) :]
        for method in rows.by:
            if method == "trees":
                method = "forest" if x.shape[1] > WIDE else method
                if len(train) < 2 * LEAF:
                    continue
            each = (learner.learn(METHODS[method], x, y) for learner in learners)
            for made in zip(*each, strict=False):  # a class may have more stages than a number
                what = " and ".join(dict.fromkeys(name for name, _ in made))
                yield f"{what} on {rows.name}", outputs([part for _, part in made])


@dataclass(frozen=True)
class Learner:
    """A target, and what the examples that train have of it [M]: what a method learns, as a model's outputs."""

    target: Target
    mean: float
    deviation: float
    values: Tensor
    balanced: bool
    weights: Any  # how much each example counts, [M]; None: all alike

    @property
    def known(self) -> Tensor:
        """Which of those have a value, [M]."""
        return self.values >= 0 if self.target.kind == "class" else ~self.values.isnan()

    @property
    def wanted(self) -> Any:
        """The classes or standardised values that are known."""
        values = self.values[self.known]
        return (values if self.target.kind == "class" else (values - self.mean) / self.deviation).numpy()

    @property
    def constant(self) -> Tensor:
        """The output that says the same of all, [width]."""
        weights = None if self.weights is None else self.weights[self.known.numpy()]
        if self.target.kind == "number":
            return torch.tensor([np.average(self.wanted, weights=weights)])
        counts = np.bincount(self.wanted, weights, minlength=self.target.width)
        return _logarithms(torch.from_numpy(counts / counts.sum()))

    def learn(self, method: Callable[[str], Iterator[tuple[str, Any]]], x: Any, y: Any) -> Iterator[tuple[str, Tensor]]:
        """The outputs for the rows y of each stage of a method that learns from the rows x."""
        known, wanted = self.known.numpy(), self.wanted
        x = [one for one, there in zip(x, known, strict=True) if there] if isinstance(x, list) else x[known]
        count = y.shape[0] if hasattr(y, "shape") else len(y)
        for name, estimator in method(self.target.kind):
            if len(np.unique(wanted)) < 2:
                yield name, self.constant.expand(count, -1)
                continue
            weighs = [name for name in estimator.get_params() if self.balanced and name.endswith("class_weight")]
            last = f"{estimator.steps[-1][0]}__" if hasattr(estimator, "steps") else ""
            counts = {} if self.weights is None else {f"{last}sample_weight": self.weights[known]}
            estimator.set_params(**dict.fromkeys(weighs, "balanced")).fit(x, wanted, **counts)
            if self.target.kind == "number":
                yield name, torch.from_numpy(np.asarray(estimator.predict(y), dtype=np.float64)).reshape(-1, 1)
                continue
            p = torch.zeros(count, self.target.width, dtype=torch.float64)
            p[:, torch.from_numpy(estimator.classes_)] = torch.from_numpy(estimator.predict_proba(y)).double()
            yield name, _logarithms(p)


def _logarithms(p: Tensor) -> Tensor:
    """Those of probabilities, none of which is 0 then."""
    return ((1 - DOUBT) * p + DOUBT / p.shape[-1]).log()


def _spread(task: OneGraph, learner: Learner, train: Tensor, stay: float) -> Tensor:
    """Labels of the nodes that train, spread along edges: of each node the mean of those that reach it.

    Equation    out = Σ_k s^k S^k Y / Σ_k s^k S^k m,  S = D^-1/2 A D^-1/2, Y the labels, m where they are known
    Reference   Zhou et al., "Learning with local and global consistency", 2004
    """
    edges = task.graph().to_scipy().astype(np.float64)
    scale = 1 / np.sqrt(np.maximum(np.asarray(edges.sum(1)).ravel(), 1))
    edges = edges.multiply(scale[:, None]).multiply(scale[None, :]).tocsr()
    rows, kind, prior = train[learner.known].numpy(), learner.target.kind, learner.constant.double()
    prior = prior.exp() if kind == "class" else prior
    start = np.zeros((edges.shape[0], learner.target.width + 1))
    start[rows, -1] = 1
    if kind == "class":
        start[rows, learner.wanted] = 1
    else:
        start[rows, 0] = learner.wanted
    found = start
    for _ in range(HOPS):
        found = start + stay * (edges @ found)
    totals = torch.from_numpy(found)
    means = (totals[:, :-1] + DOUBT * prior) / (totals[:, -1:] + DOUBT)
    return _logarithms(means / means.sum(-1, keepdim=True)) if kind == "class" else means


def _linear(kind: str) -> Iterator[tuple[str, Any]]:
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "number":
        yield "a linear model", make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 8)))
        return
    for strength in (0.01, 1.0):
        regression = LogisticRegression(C=strength, max_iter=200)
        yield f"logistic regression (C = {strength:g})", make_pipeline(StandardScaler(), regression)


def _trees(kind: str) -> Iterator[tuple[str, Any]]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    make = HistGradientBoostingRegressor if kind == "number" else HistGradientBoostingClassifier
    trees = make(min_samples_leaf=LEAF, warm_start=True, early_stopping=False, random_state=0)
    for rounds in (30, 120):
        yield f"gradient-boosted trees ({rounds} rounds)", trees.set_params(max_iter=rounds)


def _forest(kind: str) -> Iterator[tuple[str, Any]]:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    make = RandomForestRegressor if kind == "number" else RandomForestClassifier
    yield "a random forest", make(100, max_features="sqrt" if kind == "class" else 0.1, random_state=0)


def _words(kind: str) -> Iterator[tuple[str, Any]]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    frequent = {"sublinear_tf": True, "max_features": 200_000, "dtype": np.float32}
    words = {"token_pattern": r"\w+|[^\w\s]", "ngram_range": (1, 2)}
    for what, how in (("words", words), ("letters", {"analyzer": "char_wb", "ngram_range": (1, 5)})):
        for strength in (1.0, 10.0):
            model = Ridge(1 / strength) if kind == "number" else LogisticRegression(C=strength, max_iter=200)
            name = "ridge regression" if kind == "number" else "logistic regression"
            yield (
                f"TF-IDF of {what} with {name} (C = {strength:g})",
                make_pipeline(TfidfVectorizer(**frequent, **how), model),
            )


METHODS: dict[str, Callable[[str], Iterator[tuple[str, Any]]]] = {
    "linear": _linear,
    "trees": _trees,
    "forest": _forest,
    "words": _words,
}
