"""`edgewise evaluate`, `predict` and `generate`: what a trained run answers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise import training
from edgewise.apps.numbers import shown
from edgewise.errors import ConfigError
from edgewise.models import Transformer
from edgewise.tasks import GraphGeneration, Simulation, SlideClassification, Split, Text
from edgewise.training import LoadedRun

TEMPERATURE = 0.8  # of text: a little surer than the model itself


def evaluate(run: str) -> dict[str, Any]:
    """Print the scores of a run's best weights on the validation data and, where there are any, on the test data."""
    loaded = training.load_run(Path(run))
    settings = loaded.config.train
    size = settings.evaluate_batch or settings.batch
    answer: dict[str, Any] = {"run": run, "recipe": loaded.config.recipe, "metric": loaded.task.metric}
    splits: tuple[Split, ...] = ("valid", "test") if loaded.task.has_test else ("valid",)
    for split in splits:
        scores = training.evaluate(loaded.model, loaded.task, split, size, loaded.pattern, device_of(loaded))
        answer[split] = scores
        print(f"{split}: " + ", ".join(f"{name} {shown(name, value)}" for name, value in scores.items()))
    return answer


def predict(run: str, request: str) -> dict[str, Any]:
    """Print what a run's best weights say about one input."""
    loaded = training.load_run(Path(run))
    if isinstance(loaded.task, SlideClassification):
        answer = _slide(loaded, loaded.task, Path(run), request)
    else:
        answer = loaded.task.predict(loaded.model, loaded.pattern, request, device_of(loaded))
    if isinstance(loaded.task, Simulation):
        from edgewise.apps.report.rollouts import write_animation

        answer["animation"] = str(write_animation(loaded, Path(run), request))
    print(json.dumps(answer, ensure_ascii=False, indent=2))
    return answer


def _slide(loaded: LoadedRun, task: SlideClassification, run: Path, request: str) -> dict[str, Any]:
    """What a model says of a slide, and the file with its heat map."""
    from edgewise.apps.report.heat_maps import write_heat_map

    examined = task.examine_slide(loaded.model, loaded.pattern, request, device_of(loaded))
    path = write_heat_map(examined, task.tiling, run)
    return examined.answer | ({} if path is None else {"heat map": str(path)})


def generate(
    run: str,
    prompt: str,
    steps: int,
    temperature: float | None,
    top_k: int | None,
    *,
    cache: bool = True,
    seed: int = 0,
    count: int = 10,
) -> dict[str, Any]:
    """Print a prompt and what a language model's best weights add to it; of a model of graphs, `count` new ones."""
    loaded = training.load_run(Path(run))
    if isinstance(loaded.task, GraphGeneration):
        from edgewise.apps.report.generated import generate_graphs

        return generate_graphs(loaded, Path(run), count, 1.0 if temperature is None else temperature, seed)
    task, model, device = loaded.task, loaded.model, device_of(loaded)
    if not isinstance(task, Text) or not isinstance(model, Transformer):
        raise ConfigError(
            f"{run} is no language model: it was trained on {task.name!r} with a {loaded.config.model.name}"
        )
    if not prompt:
        raise ConfigError("the prompt is empty: give at least one character")
    temperature = TEMPERATURE if temperature is None else temperature
    tokens = task.encode(prompt)[None].to(device)
    generator = torch.Generator(device).manual_seed(seed)
    started = time.perf_counter()

    def graph(length: int) -> Any:
        return task.graph(loaded.pattern, length).to(device)

    continued: Tensor = model.generate(tokens, steps, graph, temperature, top_k, cache, generator)
    seconds = time.perf_counter() - started
    text = task.decode(continued[0].cpu())
    print(text)
    return {"run": run, "prompt": prompt, "text": text, "seconds": seconds, "cache": cache}


def device_of(loaded: LoadedRun) -> torch.device:
    """Where a run's weights are."""
    return next(loaded.model.parameters()).device
