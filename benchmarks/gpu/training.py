"""Steps per second of two recipes in Edgewise's own training loop, beside PyTorch Geometric's GAT and a plain GPT."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.gpu.gpt import Sizes, training_step
from benchmarks.gpu.problems import Row
from benchmarks.gpu.sparse import power_law
from benchmarks.gpu.timing import Device, Turns, stopped
from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.errors import DataError
from edgewise.graphs import Graph
from edgewise.layers import SparseFeatures
from edgewise.tasks import TASKS, Split
from edgewise.tasks.nodes.classification import NodeClassification, Nodes
from edgewise.tasks.text.language import Text
from edgewise.training import RunConfig
from edgewise.training.distributed import World
from edgewise.training.loop import Trainer

Makers = dict[str, Callable[[], Callable[[], Any]]]  # of each contender, what makes a function that takes a step
SMALL = Sizes(depth=1, heads=2, width=16, context=16, batch=2)


def configured(name: str, device: Device, compiled: bool = False, batch: int | None = None) -> RunConfig:
    """A recipe's configuration for a device."""
    config = configure(recipes.read(name))
    machine = replace(config.machine, device=device.kind, deterministic=False, compile=compiled)
    return replace(config, machine=machine, train=replace(config.train, batch=batch or config.train.batch))


def stepping(config: RunConfig, device: Device) -> Callable[[], float]:
    """A step of the loop, with all that it does but evaluations and files: its loss."""
    trainer = Trainer(config, Path(tempfile.gettempdir()) / "never written", World(torch.device(device.kind)))

    def step() -> float:
        trainer.step += 1
        return trainer.update()[0]

    return step


def cora_gat(device: Device) -> list[Row]:
    """Steps of `cora-gat` beside PyG's; on a generated graph of Cora's sizes where there are no data."""
    config = configured("cora-gat", device)
    try:
        TASKS["citation"]()
        data = "Cora"
    except DataError:
        TASKS["generated"] = generated_cora
        config = replace(config, task=replace(config.task, name="generated", options={}))
        data = "generated, of Cora's sizes"
    eager = replace(config, machine=replace(config.machine, capture=False))
    makers: Makers = {
        "edgewise": partial(stepping, config, device),
        "edgewise, not captured": partial(stepping, eager, device),
        "pyg": partial(pyg_gat, config, device),
        "pyg compiled, CUDA graphs": partial(pyg_gat, config, device, "reduce-overhead"),
    }
    what: Row = {"problem": "cora-gat, a training step", "dtype": "float32", "data": data}
    try:
        return _timed(makers, what, device)
    finally:
        TASKS.pop("generated", None)


def pyg_gat(config: RunConfig, device: Device, mode: str | None = None) -> Callable[[], float]:
    """The same network and step in PyTorch Geometric, on dense features, which are faster for it than sparse ones."""
    from torch_geometric.nn import GATConv

    batch = TASKS[config.task.name]().train_batch(1, torch.Generator())
    assert isinstance(batch.graph, Graph) and isinstance(batch.x, SparseFeatures) and batch.rows is not None
    x, target, rows = (t.to(device.kind) for t in (batch.x.to_dense(), batch.target, batch.rows))
    edge_index = batch.graph.add_self_loops().edge_index().to(device.kind)  # once, not in every step

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GATConv(x.shape[1], 8, 8, dropout=0.6, add_self_loops=False)
            self.second = GATConv(64, 7, 1, concat=False, dropout=0.6, add_self_loops=False)

        def forward(self, x: Tensor) -> Tensor:
            x = functional.elu(self.first(functional.dropout(x, 0.6, self.training), edge_index))
            x = self.second(functional.dropout(x, 0.6, self.training), edge_index)
            return functional.cross_entropy(x[rows], target)

    model = Network().to(device.kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
    loss_of = model if mode is None or device.toy else torch.compile(model, mode=mode)

    def step() -> float:
        loss = loss_of(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def generated_cora() -> NodeClassification:
    """2,708 papers of 18 of 1,433 words, 10,556 citations, seven classes."""
    from scipy.sparse import random as sparse

    words = SparseFeatures.from_scipy(sparse(2708, 1433, density=18 / 1433, rng=0))
    meaning = torch.randn(1433, 7, generator=torch.Generator().manual_seed(0))
    labels, names = (words.to_dense() @ meaning).argmax(1), tuple(f"class {n}" for n in range(7))
    splits: dict[Split, Tensor] = {
        "train": torch.arange(140),
        "valid": torch.arange(140, 640),
        "test": torch.arange(1708, 2708),
    }
    return NodeClassification("generated", Nodes(power_law(2708, 10_556, "cpu"), words, labels, names, splits))


def shakespeare_gpt(device: Device) -> list[Row]:
    """Steps of `shakespeare-gpt` in bfloat16: the loop as it is, compiled, and a plain GPT compiled in two ways."""
    sizes, compiler = (SMALL, "eager") if device.toy else (Sizes(), "inductor")
    tokens = Text("text", "".join(map(chr, range(40, 105))) * 5000, sizes.context)  # 65 characters, easily guessed
    TASKS["generated-text"] = lambda: tokens
    problem = f"GPT, {sizes.depth} layers, {sizes.heads} heads, {sizes.width}, {sizes.batch} × {sizes.context}"
    makers: Makers = {
        "edgewise": lambda: _ours(sizes, device, compiled=False),
        "edgewise compiled": lambda: _ours(sizes, device, compiled=True),
        "plain compiled": lambda: training_step(sizes, tokens._parts["train"], device.kind, compiler),
    }
    if not device.toy:
        replayed = partial(training_step, sizes, tokens._parts["train"], device.kind, compiler, "reduce-overhead")
        makers["plain compiled, CUDA graphs"] = replayed
    if device.toy:  # a dry run does not wait for a compiler
        del makers["edgewise compiled"]
    try:
        return _timed(makers, {"problem": problem, "dtype": "bfloat16"}, device)
    finally:
        TASKS.pop("generated-text")


def _ours(sizes: Sizes, device: Device, compiled: bool) -> Callable[[], Any]:
    config = configured("shakespeare-gpt", device, compiled, sizes.batch)
    model = {"width": sizes.width, "depth": sizes.depth, "heads": sizes.heads}
    config = replace(
        config,
        task=replace(config.task, name="generated-text", options={}),
        model=replace(config.model, options=config.model.options | model),
    )
    return stepping(config, device)


def _timed(makers: Makers, what: Row, device: Device) -> list[Row]:
    """A row for each contender: its steps' losses, which have to fall, and their time, all in turns."""
    rows: dict[str, Row] = {}
    works: dict[str, list[Callable[[], Any]]] = {}
    for name, make in makers.items():
        row = rows[name] = what | {"contender": name, "milliseconds": {}}
        try:
            step = make()
            row["first step, s"] = device.waited(step)
            row["losses"] = _losses(step)
            works[name] = [step]
        except Exception as error:
            row |= stopped(error)
    for name, seconds in _per_step(device, works).items():
        rows[name]["milliseconds"] = {"step": 1e3 * seconds}
    return list(rows.values())


def _losses(step: Callable[[], Any], steps: int = 40) -> list[float]:
    """The mean of the first five and of the last five losses, which has to fall."""
    found = [step() for _ in range(steps)]
    first, last = (sum(map(float, part)) / 5 for part in (found[:5], found[-5:]))
    if not last < first:
        raise ArithmeticError(f"{steps} steps took the loss from {first:.3f} to {last:.3f}")
    return [first, last]


def _per_step(device: Device, works: dict[str, list[Callable[[], Any]]]) -> dict[str, float]:
    return Turns(device, works).run(rounds=7, seconds=15.0) if works else {}
