"""The first batches of recipes whose data are made, at small sizes: the documentation's figures hold for these data,
and a change of them must not go unnoticed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from edgewise.apps import recipes
from edgewise.tasks import TASKS
from edgewise.training import RunConfig
from recorded import check_recorded, summary

RECIPES: dict[str, dict[str, Any]] = {
    "clouds-dgcnn": {"points": 16, "neighbors": 4, "examples": 20, "seed": 3},
    "communities-autoencoder": {"train": 10, "test": 10},
    "communities-transformer": {"train": 10, "test": 10, "draws": 4},
    "copper-schnet": {"training": 2, "held_out": 1, "frames": 4, "seed": 3},
    "demo-text": {},
    "digits-gru": {},
    "digits-randomized": {},
    "digits-vit": {},
    "granular-gns": {"training": 2, "held_out": 1, "particles": 12, "seed": 3},
    "grids-transformer": {"train": 10, "test": 10, "draws": 4},
    "karate-hadamard": {},
    "kernel-regression": {"points": 20},
    "listops-full": {"longest": 40, "examples": 20, "seed": 3},
    "nbody-egnn": {"training": 4, "held_out": 4},
    "nbody-se3": {"training": 4, "held_out": 4},
    "planted-fastgcn": {"nodes": 200},
    "planted-sage": {"nodes": 200},
    "skip-links-laplacian": {"copies": 5},
}


def lines(name: str, options: dict[str, Any]) -> list[str]:
    sections = recipes.read(name).sections
    config = RunConfig.from_plain(sections)
    config = replace(config, task=replace(config.task, options=config.task.options | options))
    task = TASKS[config.task.name](**config.task.options)
    batch = task.train_batch(2, torch.Generator().manual_seed(0), config.graph)
    return [
        f"{part} {summary(value)}"
        for part in ["graph", "x", "target", "rows", "e", "u"]
        if (value := getattr(batch, part)) is not None
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_data_are_those_on_record(name: str, cache: Path) -> None:
    check_recorded(f"data/{name}", lines(name, RECIPES[name]))
