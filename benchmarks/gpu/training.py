"""Steps per second of two recipes in Edgewise's own training loop; the GPT beside a compiled plain one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.gpt import Sizes, training_step
from benchmarks.gpu.problems import Row
from benchmarks.gpu.sparse import power_law
from benchmarks.gpu.timing import Device, Turns, reason
from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.errors import DataError
from edgewise.layers import SparseFeatures
from edgewise.tasks import TASKS, Split
from edgewise.tasks.nodes.classification import NodeClassification, Nodes
from edgewise.tasks.text.language import Text
from edgewise.training import RunConfig
from edgewise.training.distributed import World
from edgewise.training.loop import Trainer

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
    """Steps of `cora-gat`; on a generated graph of Cora's sizes where there are no data."""
    row: Row = {"problem": "cora-gat, a training step", "dtype": "float32", "contender": "edgewise", "milliseconds": {}}
    try:
        config = configured("cora-gat", device)
        try:
            TASKS["citation"]()
            row["data"] = "Cora"
        except DataError:
            TASKS["generated"] = generated_cora
            config = replace(config, task=replace(config.task, name="generated", options={}))
            row["data"] = "generated, of Cora's sizes"
        step = stepping(config, device)
        row["losses"] = _losses(step)
        row["milliseconds"] = {"step": 1e3 * _per_step(device, {"edgewise": [step]})["edgewise"]}
    except Exception as error:
        row["refused"] = reason(error)
    finally:
        TASKS.pop("generated", None)
    return [row]


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
    """Steps of `shakespeare-gpt` in bfloat16: the loop as it is, compiled, and a plain GPT compiled."""
    sizes, compiler = (SMALL, "eager") if device.toy else (Sizes(), "inductor")
    tokens = Text("text", "".join(map(chr, range(40, 105))) * 5000, sizes.context)  # 65 characters, easily guessed
    TASKS["generated-text"] = lambda: tokens
    problem = f"GPT, {sizes.depth} layers, {sizes.heads} heads, {sizes.width}, {sizes.batch} × {sizes.context}"
    rows: dict[str, Row] = {}
    works: dict[str, list[Callable[[], Any]]] = {}
    makers: dict[str, Callable[[], Callable[[], Any]]] = {
        "edgewise": lambda: _ours(sizes, device, compiled=False),
        "edgewise compiled": lambda: _ours(sizes, device, compiled=True),
        "plain compiled": lambda: training_step(sizes, tokens._parts["train"], device.kind, compiler),
    }
    for name, make in makers.items():
        rows[name] = {"problem": problem, "dtype": "bfloat16", "contender": name, "milliseconds": {}}
        try:
            if device.toy and name == "edgewise compiled":
                raise RuntimeError("a dry run does not wait for a compiler")
            step = make()
            rows[name]["first step, s"] = device.waited(step)
            rows[name]["losses"] = _losses(step)
            works[name] = [step]
        except Exception as error:
            rows[name]["refused"] = reason(error)
    TASKS.pop("generated-text")
    for name, seconds in _per_step(device, works).items():
        rows[name]["milliseconds"] = {"step": 1e3 * seconds}
    return list(rows.values())


def _ours(sizes: Sizes, device: Device, compiled: bool) -> Callable[[], Any]:
    config = configured("shakespeare-gpt", device, compiled, sizes.batch)
    model = {"width": sizes.width, "depth": sizes.depth, "heads": sizes.heads}
    config = replace(
        config,
        task=replace(config.task, name="generated-text", options={}),
        model=replace(config.model, options=config.model.options | model),
    )
    return stepping(config, device)


def _losses(step: Callable[[], Any], steps: int = 40) -> list[float]:
    """The mean of the first five and of the last five losses, which has to fall."""
    found = [step() for _ in range(steps)]
    first, last = (sum(map(float, part)) / 5 for part in (found[:5], found[-5:]))
    if not last < first:
        raise ArithmeticError(f"{steps} steps took the loss from {first:.3f} to {last:.3f}")
    return [first, last]


def _per_step(device: Device, works: dict[str, list[Callable[[], Any]]]) -> dict[str, float]:
    return Turns(device, works).run(rounds=7, seconds=15.0) if works else {}
