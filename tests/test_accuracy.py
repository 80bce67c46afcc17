"""Every recipe that the documentation gives a figure for reaches it: `make accuracy` (about half an hour)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FIGURES = [
    # recipe, seeds, least mean test accuracy (or largest validation loss)
    ("cora-gcn", 10, 0.813),
    ("cora-gat", 10, 0.825),
    ("cora-sage", 3, 0.78),
    ("cora-gatv2", 3, 0.79),
    ("cora-gin", 3, 0.75),
    ("cora-gated-gcn", 3, 0.79),
    ("cora-monet", 3, 0.79),
    ("clouds-edge-conv", 1, 0.74),
    ("clouds-dgcnn", 1, 0.76),
    ("digits-graph-network", 1, 0.83),
    ("digits-graphormer", 1, 0.89),
    ("mnist-mlp", 1, 0.980),
    ("digits-vit", 3, 0.97),
    ("digits-vit-grid", 3, 0.97),
    ("shakespeare-gpt-cpu", 1, -1.88),
    ("planted-sage", 3, 0.885),
    ("planted-fastgcn", 3, 0.98),
    ("shakespeare-positions", 1, -1.95),
    ("shakespeare-sparse", 1, -2.0),
    ("shakespeare-performer", 1, -2.15),
    ("shakespeare-linear", 1, -2.25),
    ("kernel-regression", 1, -0.06),
]

FOLDS = [
    # recipe, folds, least mean test score
    ("cora-vgae", 10, 0.914),
]

PARTICLES = [
    # recipe, options that keep it within five minutes on one thread, largest test error
    ("nbody-linear", "", 0.084),
    ("nbody-radial-field", "", 0.0104),
    ("nbody-egnn", "--train.steps 1500 --train.evaluate_every 300", 0.0105),
]


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("recipe", "options", "bound"), PARTICLES)
def test_particles_are_forecast_within_their_bound(recipe: str, options: str, bound: float, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgewise", "train", recipe, "--train.threads", "1", *options.split(), "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["recipe"], result["metric"]) == (recipe, "mse")
    assert result["mean"] <= bound, f"{recipe}: {result['mean']:.4f}"


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("recipe", "folds", "bound"), FOLDS)
def test_a_recipe_reaches_its_figure_over_folds(recipe: str, folds: int, bound: float, tmp_path: Path, data) -> None:
    data(".")
    command = [sys.executable, "-m", "edgewise", "train", recipe, "--folds", str(folds), "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert len(result["values"]) == folds
    assert result["mean"] >= bound, f"{recipe}: {result['mean']:.4f} ± {result['sd']:.4f} over {folds} folds"


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("recipe", "seeds", "bound"), FIGURES)
def test_a_recipe_reaches_its_figure(recipe: str, seeds: int, bound: float, tmp_path: Path, data) -> None:
    data(".")
    command = [sys.executable, "-m", "edgewise", "train", recipe, "--seeds", str(seeds), "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    mean = -result["mean"] if result["metric"] == "loss" else result["mean"]
    assert len(result["values"]) == seeds
    assert mean >= bound, f"{recipe}: {result['mean']:.4f} ± {result['sd'] or 0:.4f} over {seeds} seeds"
