"""Recipes trained for the gallery, a little or to their end."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from edgewise import Graph, record, training
from edgewise.apps import options, recipes
from edgewise.training.runs import LoadedRun, load_run


@cache
def trained(recipe: str, *chosen: tuple[str, str]) -> LoadedRun:
    """A run of a recipe with some options: its task, and its model with the best weights."""
    torch.manual_seed(0)
    config = options.configure(recipes.read(recipe), chosen)
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        training.train(config, run)
        return load_run(run)


@contextmanager
def pretrained(recipe: str, *chosen: tuple[str, str]) -> Iterator[str]:
    """The folder of a run, for another to start from."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        training.train(options.configure(recipes.read(recipe), chosen), Path(folder) / "run")
        yield str(Path(folder) / "run")


def steps(count: int) -> tuple[tuple[str, str], ...]:
    """Options for a run of so many steps with one evaluation."""
    return (("train.steps", str(count)), ("evaluation.every", str(count)), ("train.checkpoints.every", str(count)))


def attention(model: nn.Module, graph: Graph, *inputs: Any) -> list[Tensor]:
    """The attention [I, J, H] of each layer of a model, in the order in which they compute."""
    with record() as seen, torch.no_grad():
        model.eval()(graph, *inputs)
    return [dense(one.graph, one.weights) for one in seen]


def dense(graph: Graph, weights: Tensor) -> Tensor:
    """Weights [E, H] as matrices [I, J, H]."""
    matrix = torch.zeros(graph.num_receivers, graph.num_senders, weights.shape[-1])
    matrix[graph.receivers, graph.senders] = weights.reshape(graph.num_edges, -1).float()
    return matrix
