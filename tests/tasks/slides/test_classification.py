import shutil
from pathlib import Path

import pytest
import torch

from edgewise.errors import DataError
from edgewise.models import GNN, GNNSettings, MinCutSettings, PooledTransformer, PooledTransformerSettings
from edgewise.tasks import SlideClassification, slides
from edgewise.tasks.slides import classification as module
from edgewise.tasks.slides.classification import Examined, Slides, hottest, read_folder, read_slides
from edgewise.tasks.slides.reader import Tiling, lay_out
from edgewise.tasks.slides.simulator import CELL, plan, simulate

pytest.importorskip("openslide")
TILING = Tiling(mpp=2.0, size=32, workers=0)


def colours(tiles):
    """An extractor of one's own, which needs no learning."""
    pixels = tiles.float()
    return torch.cat([pixels.mean((1, 2)), pixels.std((1, 2))], 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("slides")
    for number in range(6):
        simulate(str(place / f"{number}.tiff"), number, 0)
    return place


@pytest.fixture
def task(files):
    parts = {"train": [0, 1], "valid": [2, 3], "test": [4, 5]}
    splits = {split: torch.tensor(part) for split, part in parts.items()}
    paths = tuple(files / f"{number}.tiff" for number in range(6))
    found = Slides(paths, torch.arange(6) % 2, ("apart", "enclosed"), splits, lambda n: plan(n, 0).region)
    return read_slides("mine", found, TILING, colours)


def model(task, **options):
    return PooledTransformer(
        PooledTransformerSettings(width=8, pooling=MinCutSettings(3), heads=2, **options), task.signature
    ).eval()


def test_a_slide_becomes_a_graph_of_its_tiles(task):
    (batch,) = task.batches("train", 2)
    assert task.signature.inputs == 6 and task.signature.outputs == 2 and task.epoch_size == 2
    assert batch.graph.sizes.tolist() == [len(layout.places) for layout in task.layouts[:2]]
    assert batch.target.tolist() == [0, 1]
    first = task.layouts[0]
    near = (first.places[:, None] - first.places[None]).abs().amax(-1) == 1
    assert torch.equal(task.graphs.members[0].dense_mask(), near)


def test_heat_points_where_the_answer_comes_from(task, monkeypatch):
    """A heat map that is the region itself always points into it, one that avoids it never does."""
    for sign, wanted in ((1.0, 1.0), (-1.0, 0.0)):

        def heat(model, number, pattern, device, output, sign=sign):
            layout, region = task.layouts[number], plan(number, 0).region
            centre = ((layout.places.numpy() + 0.5) * layout.side / CELL).astype(int)
            return sign * torch.from_numpy(region[tuple(centre.T)]).double()

        monkeypatch.setattr(task, "heat", heat)
        judged = task.judge(model(task), "test", None, "cpu")
        assert judged["pointing"] == wanted and judged["auc"] in (0.0, 0.5, 1.0)
    assert "pointing" not in task.judge(GNN(GNNSettings(readout="mean"), task.signature).eval(), "test", None, "cpu")


def test_a_files_answer_is_that_of_the_slide_in_the_data(task, files):
    one = model(task)
    known = task.examine_slide(one, None, "test:1", "cpu")
    read = task.examine_slide(one, None, str(files / "5.tiff"), "cpu")
    assert known.values["label"] == "enclosed" and "label" not in read.values
    assert read.values["probabilities"] == pytest.approx(known.values["probabilities"])
    assert read.values["tiles"] == len(read.heat) and torch.allclose(read.heat, known.heat, atol=1e-6)
    hottest = read.values["hottest tiles"][0]
    row, column = read.layout.places[int(read.heat.argmax())].tolist()
    assert hottest == {"x": column * 128, "y": row * 128, "side": 128}
    assert task.predict(one, None, "test:1", "cpu") == known.values
    assert task.examine_slide(GNN(GNNSettings(readout="mean"), task.signature), None, "test:1", "cpu").heat is None


@pytest.mark.parametrize("request_", ["test:2", "test:x", "nowhere.svs"])
def test_a_request_for_no_slide_is_named(task, request_):
    with pytest.raises(DataError, match=request_[:4]):
        task.predict(model(task), None, request_, "cpu")


@pytest.fixture
def home(cache, tmp_path):
    return tmp_path


def test_simulated_slides_and_their_features_are_made_once(home, files, monkeypatch):
    def copy(path, number, seed):
        return Path(path).exists() or shutil.copy(files / f"{number % 6}.tiff", path)

    monkeypatch.setattr(module, "simulate", copy)
    options = {"count": 20, "mpp": 2.0, "width": 8, "steps": 1, "workers": 0}
    made = slides(**options)
    assert isinstance(made, SlideClassification) and made.epoch_size == 10
    assert len(list(home.rglob("slide-*.tiff"))) == 20
    monkeypatch.setattr(module, "learn_extractor", None)  # a call would fail
    again = slides(**options)
    assert torch.equal(made.graphs.x, again.graphs.x) and made.graphs.members == again.graphs.members
    made.keep(home)
    again.features.deviation += 1
    again.features.extractor.stem.weight.data += 1
    again.recall(home)
    assert torch.equal(again.features.deviation, made.features.deviation)
    batches = [next(iter(task.batches("valid", 2))) for task in (made, again)]
    assert torch.allclose(batches[0].x, batches[1].x, atol=1e-5)
    (home / "features.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="not the weights of this extractor"):
        again.recall(home)


def test_slides_of_ones_own_come_from_a_folder_and_the_extractor_learns_from_those_that_train(files, home, monkeypatch):
    mine, seen, learn = home / "mine", [], module.learn_extractor
    shutil.copytree(files, mine)
    table = [f"{n}.tiff,{'ab'[n % 2]},{('train', 'valid', 'test')[n // 2]}" for n in range(6)]
    (mine / "labels.csv").write_text("\n".join(["slide,label,split", *table]))

    def learned(layouts, *rest):
        seen.extend(layout.path.name for layout in layouts)
        return learn(layouts, *rest)

    monkeypatch.setattr(module, "learn_extractor", learned)
    found = slides(folder=str(mine), mpp=2.0, width=8, steps=0, workers=0)
    assert found.slides.classes == ("a", "b") and found.name == "mine" and found.slides.region is None
    assert found.slides.splits["test"].tolist() == [4, 5] and seen == ["0.tiff", "1.tiff"]
    assert torch.cat([batch.x for batch in found.batches("train", 1)]).mean(0).abs().max() < 1e-4
    assert "pointing" not in found.judge(model(found), "test", None, "cpu")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("name,label\n0.tiff,a", "columns slide and label"),
        ("slide,label", "at least one slide"),
        ("slide,label\nno.tiff,a", "line 2: 'no.tiff' is no file"),
        ("slide,label\n../mine/0.tiff,a", "is no file of this folder"),
        ("slide,label\n0.tiff,", "line 2: a label"),
        ("slide,label,split\n0.tiff,a,training", "train, valid or test"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(tmp_path, table, message):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "0.tiff").write_bytes(b"")
    (mine / "labels.csv").write_text(table)
    with pytest.raises(DataError, match=message):
        read_folder(mine, 0)


def test_a_report_shows_slides_of_both_classes_and_outlines_the_region(task):
    sections = {section.title: section for section in task.draw(model(task), None, {})}
    assert list(sections) == ["Heat maps", "Clusters", "Confusion matrix"]
    (drawing,) = sections["Heat maps"].make()
    assert "outlines the enclosed nest" in drawing.caption
    assert [heat.region is None for heat in drawing.figure.maps] == [False, False]
    assert [heat.region.any() for heat in drawing.figure.maps] == [True, False]
    plain = GNN(GNNSettings(readout="mean"), task.signature).eval()
    assert [section.title for section in task.draw(plain, None, {})] == ["Confusion matrix"]


def test_a_prediction_comes_with_a_heat_map_of_its_slide(task, files):
    values, drawings, _ = task.examine(model(task), None, str(files / "5.tiff"), "cpu")
    assert drawings["heat map"].name == "heat-5"
    (heat,) = drawings["heat map"].figure.maps
    assert heat.title == f"5.tiff: {values['class']}, {values['probabilities'][values['class']]:.0%}"
    plain = GNN(GNNSettings(readout="mean"), task.signature)
    assert task.examine(plain, None, str(files / "5.tiff"), "cpu").drawings == {}


def test_the_hottest_tile_is_the_strongest_and_what_speaks_against_is_left_bare(files):
    layout = lay_out(files / "1.tiff", TILING)
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
