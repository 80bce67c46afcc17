import pytest
import torch

from edgewise.graphs import complete
from edgewise.tasks.slides.classification import Examined, hottest, smoothed
from edgewise.tasks.slides.reader import Tiling, lay_out
from edgewise.tasks.slides.simulator import plan, simulate

TILING = Tiling(2.0, 32, workers=0)


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    pytest.importorskip("openslide")
    path = tmp_path_factory.mktemp("slide") / "1.tiff"
    simulate(str(path), 1, 0)
    return lay_out(path, TILING)


def test_the_hottest_tile_is_the_strongest_and_what_speaks_against_is_left_bare(layout):
    heat = -torch.ones(len(layout.places))
    heat[3] = 2.0
    shown = Examined({}, layout, heat).map(TILING, "one", plan(1, 0).region)
    row, column = layout.places[3].tolist()
    assert shown.heat[row, column] == shown.heat.max() == 1.0 and (shown.heat > 0).sum() == 1
    assert shown.area == pytest.approx([extent / layout.side for extent in layout.extent])
    assert shown.picture.shape[2] == 3 and 0 <= shown.picture.min() < shown.picture.max() <= 1
    cold = Examined({}, layout, torch.zeros(len(layout.places))).map(TILING, "none")
    assert not cold.heat.any() and cold.region is None
    assert hottest(layout, heat)[0] == {"x": column * 128, "y": row * 128, "side": 128}


def test_heat_is_shared_with_neighbours():
    graph = complete(2).remove_self_loops()
    assert smoothed(graph, torch.tensor([1.0, 0.0])).tolist() == [0.5, 0.5]
