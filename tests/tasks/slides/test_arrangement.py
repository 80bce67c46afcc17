"""Only how their parts lie tells simulated slides apart: `pytest -m accuracy -s tests/tasks/slides`."""

import json
from statistics import fmean

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from edgewise.apps.command.main import main
from edgewise.tasks import slides

SEEDS = (20,)  # the options were chosen on the slides of seed 0


def bag(seed):
    """The area under the curve of test slides by the means and deviations of their tiles' features."""
    task = slides(count=400, workers=0, seed=seed)
    tiles = task.graphs.x.split([len(layout.places) for layout in task.layouts])
    x = torch.stack([torch.cat([of_slide.mean(0), of_slide.std(0)]) for of_slide in tiles]).numpy()
    y, parts = task.slides.targets.numpy(), task.slides.splits
    known, test = torch.cat([parts["train"], parts["valid"]]).numpy(), parts["test"].numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)).fit(x[known], y[known])
    return roc_auc_score(y[test], model.decision_function(x[test]))


def trained(folder, seed, options=""):
    """The test scores of the recipe."""
    where = f"--task.workers 0 --machine.device cpu --machine.threads 1 --run {folder}"
    words = f"train slides-min-cut --task.seed {seed} --train.seed {seed} {where} {options}"
    assert main(words.split()) == 0
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["test"]


@pytest.mark.accuracy
@pytest.mark.timeout(7200)
def test_slides_of_the_same_tiles_are_told_apart_by_their_graphs_alone(tmp_path, capsys):
    pytest.importorskip("openslide")
    found = {"bag of tiles": [], "tiles alone": [], "recipe": [], "pointing": []}
    for seed in SEEDS:
        scores = trained(tmp_path / f"graph-{seed}", seed)
        alone = trained(tmp_path / f"alone-{seed}", seed, "--graph window --graph.radius 0")
        figures = (bag(seed), alone["auc"], scores["auc"], scores["pointing"])
        for values, figure in zip(found.values(), figures, strict=True):
            values.append(figure)
        with capsys.disabled():
            print(
                f"\nseed {seed}: " + ", ".join(f"{name} {v[-1]:.3f} (mean {fmean(v):.3f})" for name, v in found.items())
            )
    assert fmean(found["bag of tiles"]) <= 0.65
    assert fmean(found["tiles alone"]) <= fmean(found["recipe"]) - 0.2
    assert fmean(found["recipe"]) >= 0.95 and fmean(found["pointing"]) >= 0.9
