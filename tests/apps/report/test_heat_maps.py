import json
import re

import pytest
import torch

from edgewise.apps.command import answers
from edgewise.apps.report import figures
from edgewise.apps.report.heat_maps import Seen, draw_slides, heat_maps, write_heat_map
from edgewise.models import GNN, GNNSettings, PooledTransformer, PooledTransformerSettings
from edgewise.tasks.slides.classification import Examined, Slides, read_slides
from edgewise.tasks.slides.reader import Tiling
from edgewise.tasks.slides.simulator import plan, simulate
from edgewise.training import LoadedRun

pytest.importorskip("openslide")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    place = tmp_path_factory.mktemp("slides")
    paths = tuple(place / f"{number}.tiff" for number in range(2))
    for number, path in enumerate(paths):
        simulate(str(path), number, 0)
    both = torch.arange(2)
    splits = dict.fromkeys(("train", "valid", "test"), both)
    found = Slides(paths, both, ("healthy", "planted"), splits, lambda n: plan(n, 0).region)
    return read_slides("two", found, Tiling(2.0, 32, workers=0), lambda tiles: tiles.float().mean((1, 2)))


@pytest.fixture
def loaded(task):
    torch.manual_seed(0)
    model = PooledTransformer(PooledTransformerSettings(width=8, clusters=2, heads=2), task.signature).eval()
    return LoadedRun(None, task, None, model)


def test_a_report_shows_slides_of_both_classes_and_outlines_the_region(loaded):
    (drawing,) = heat_maps(loaded)
    drawn = figures.svg(drawing.figure, "heat")
    assert "outlines the planted region" in drawing.caption
    assert len(re.findall("<image", drawn)) == 2 * 3  # a slide, a grey one and its heat, twice
    assert heat_maps(without_pooling(loaded)) == []


def without_pooling(loaded):
    return LoadedRun(None, loaded.task, None, GNN(GNNSettings(readout="mean"), loaded.task.signature))


def test_the_hottest_tile_is_the_strongest_and_what_speaks_against_is_left_bare(task):
    layout = task.layouts[1]
    heat = -torch.ones(len(layout.places))
    heat[3] = 2.0
    figure = draw_slides([Seen(Examined({}, layout, heat), "one")], task.tiling)
    below = figure.axes[1]
    opacity = below.images[1].get_array()[..., 3]
    row, column = layout.places[3].tolist()
    assert opacity[row, column] == opacity.max() and (opacity > 0).sum() == 1
    left, right, bottom, top = below.images[1].get_extent()
    assert (left, right, bottom, top) == (0, opacity.shape[1], opacity.shape[0], 0)


def test_predict_draws_the_slide_that_it_was_asked_about(loaded, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("edgewise.training.load_run", lambda run: loaded)
    answer = answers.predict(str(tmp_path), str(loaded.task.slides.paths[1]))
    assert json.loads(capsys.readouterr().out) == answer
    assert answer["heat map"] == str(tmp_path / "figures" / "heat-1.svg")
    assert (tmp_path / "figures" / "heat-1.svg").read_text().startswith("<?xml")
    assert answer["class"] in ("healthy", "planted") and len(answer["hottest tiles"]) == 5


def test_without_heat_there_is_no_file(task, tmp_path):
    assert write_heat_map(Examined({}, task.layouts[0], None), task.tiling, tmp_path) is None
