"""Whole-slide classification: a slide's tiles are the nodes of a graph. Simulated slides, or your own."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgewise.data.splits import SPLITS, Split, by_class, cut, named
from edgewise.data.table import lines_of
from edgewise.errors import DataError
from edgewise.files import Tensors, cache_path, cached, check_header, digest, holds, read_bytes, reading
from edgewise.layers import ResNet
from edgewise.models.signature import Attribution
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.classification import class_probabilities
from edgewise.tasks.core.drawing import Content, Drawing, HeatMap, HeatMaps, Output, Section
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Device, Pattern, check_range, given, lay
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs
from edgewise.tasks.links.prediction import ranking_scores
from edgewise.tasks.slides.reader import (
    OVERVIEW,
    Extractor,
    Features,
    Layout,
    Tiling,
    extract,
    fit_scale,
    in_parallel,
    lay_out,
    learn_extractor,
    overview,
)
from edgewise.tasks.slides.simulator import CELL, MPP, QUALITY, SIDE, plan, simulate

KEPT = "features.safetensors"
MAX_BYTES = 1 << 26
MAX_TABLE = 1 << 20  # bytes of labels.csv: a dictionary for each line
DRAWN = 4  # slides in a report
Region = Callable[[int], NDArray[np.bool_]]


@dataclass(frozen=True)
class Slides:
    """Slides with labels: their files, the class of each in targets [G], and the slides of each split.

    `region(g)`, where it is known, is a map of equal cells over slide g that says where it shows its class."""

    paths: tuple[Path, ...]
    targets: Tensor
    classes: tuple[str, ...]
    splits: Mapping[Split, Tensor]
    region: Region | None = None


class SlideClassification(GraphClassification):
    """Each slide is one example: tiles with tissue are nodes with an extractor's features, linked to those around them.

    Equation    slide → tiles → X = (extractor(tile) - mean) / σ → 8-neighbour graph → GNN → min-cut → attention → class
    Symbols     mean, σ = mean and deviation over the training tiles
    Scores      auc, the area under the ROC curve, each class against the others, their mean; pointing, of the test
                split, where regions are known and the model is an `Attribution`: the share of slides of the last class
                whose tile of the most relevance has its centre in the region
    Errors      a split without one of the classes is a `DataError`
    Cost        features: one pass over the slides; a slide's graph is a few hundred bytes for each tile
    Reference   Zheng et al., "A graph-transformer for whole slide image classification", 2022; Baggag & Saad, §5.6
    """

    metric = "auc"
    kept = (KEPT,)
    files = (".svs", ".tif", ".tiff", ".ndpi", ".scn", ".bif")  # those slides that are one file

    def __init__(
        self,
        name: str,
        slides: Slides,
        layouts: Sequence[Layout],
        x: Sequence[Tensor],
        features: Features,
        tiling: Tiling,
    ) -> None:
        for split, chosen in slides.splits.items():
            absent = set(range(len(slides.classes))) - set(slides.targets[chosen].tolist())
            if absent:
                raise DataError(f"{name}: no slide of the {split} split is {slides.classes[min(absent)]!r}")
        members = tuple(layout.graph() for layout in layouts)
        super().__init__(name, Graphs(members, torch.cat([*x]), slides.targets, slides.splits, slides.classes))
        self.slides, self.layouts, self.features, self.tiling = slides, layouts, features, tiling

    def keep(self, run: Path) -> None:
        """Write the extractor's weights, where it has some, and the features' scale into a run folder."""
        safetensors.torch.save_file(_state(self.features), run / KEPT)

    def recall(self, run: Path) -> None:
        """Go on with the extractor of a run folder, where it has one; if it is another one, with its features."""
        if not (run / KEPT).is_file():
            return
        content = read_bytes(run / KEPT, MAX_BYTES)
        with reading(run / KEPT, "the weights of this extractor"):
            check_header(content)
            state = safetensors.torch.load(content)
            if all(torch.equal(own, state[name]) for name, own in _state(self.features).items()):
                return
            _restore(self.features, state)
        self._x = tuple(self.features.of(self.layouts, self.tiling))
        self.graphs = replace(self.graphs, x=torch.cat(self._x))
        vars(self).pop("_values", None)  # batches with the former features

    @torch.no_grad()
    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: Device) -> dict[str, float]:
        """The area under the ROC curve of a split, and of the test split how often the heat points into the region."""
        batches = [batch.to(device) for batch in self.batches(split, 16, pattern)]
        chances = torch.cat([batch.read(model(batch.graph, batch.x)).double().softmax(-1) for batch in batches]).cpu()
        targets = torch.cat([batch.target for batch in batches]).cpu()
        judged = {"auc": auc(chances, targets)}
        if split == "test" and self.slides.region is not None and isinstance(model, Attribution):
            judged["pointing"] = self._pointing(model, split, pattern, device)
        return judged

    def _pointing(self, model: Attribution, split: Split, pattern: Pattern, device: Device) -> float:
        last = len(self.slides.classes) - 1
        chosen = [g for g in self.slides.splits[split].tolist() if self.slides.targets[g] == last]
        hits = 0
        for number in chosen:  # is the centre of the tile of the most heat in the slide's region?
            hottest_tile = int(self.heat(model, number, pattern, device, last).argmax())
            layout, region = self.layouts[number], cast(Region, self.slides.region)(number)
            centre = (layout.places[hottest_tile].numpy() + 0.5) * layout.side / layout.extent
            row, column = (centre * region.shape).astype(int)
            hits += bool(region[row, column])
        return hits / len(chosen)

    def heat(self, model: Attribution, number: int, pattern: Pattern, device: Device, output: int) -> Tensor:
        """How much each tile of a slide contributes to a class [M]."""
        batch = self.batch(torch.tensor([number]), pattern).to(device)
        return model.relevance(batch.graph, batch.x, output).cpu()

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The class of a slide: the path of a file that OpenSlide reads, or a split and a number in it: "test:7"."""
        return self.examine_slide(model, pattern, request, device).values

    predictions = Predicts.predictions  # one after the other, as `predict` has them

    def examine(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> Output:
        """What `predict` gives, and the heat map of the predicted class."""
        examined = self.examine_slide(model, pattern, request, device)
        return Output(examined.values, examined.drawings(self.tiling))

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """The class of a slide, whose tiles are drawn under their scores."""
        examined = self.examine_slide(model, pattern, request, "cpu")
        places = (examined.layout.places * round(examined.layout.side)).tolist()
        names = [f"x {round(column)}, y {round(row)}" for row, column in places]

        def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
            title = f"{examined.layout.path.name}: {examined.values['class']}"
            heat = replace(examined, heat=nodes).map(self.tiling, title)
            caption = "The slide, and below it the tiles that speak for the class; what speaks against it is left grey."
            return [Drawing("explanation", HeatMaps([heat]), caption)]

        return replace(super().subject(model, pattern, request), names=names, draw=draw)

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        if isinstance(model, Attribution):
            yield Section("Heat maps", lambda: [self.heat_maps(model, pattern)])
        yield from super().draw(model, pattern, scores)

    def heat_maps(self, model: nn.Module, pattern: Pattern) -> Drawing:
        """The heat maps of some test slides, those of the last class first."""
        positive = self.slides.targets[self.slides.splits["test"]] == len(self.classes) - 1
        chosen = [*positive.nonzero()[:, 0].tolist()[: DRAWN - 1], *(~positive).nonzero()[:, 0].tolist()[:1]]
        maps = []
        for number in chosen:
            examined = self.examine_slide(model, pattern, f"test:{number}", "cpu")
            title, label = examined.values["class"], examined.values["label"]
            region = self.slides.region and self.slides.region(int(self.slides.splits["test"][number]))
            maps.append(examined.map(self.tiling, title if title == label else f"{title}, not {label}", region))
        outline = " A line outlines the enclosed nest, which the model was never shown." if self.slides.region else ""
        caption = f"Test slides, and below them how much each tile contributes to the predicted class.{outline}"
        return Drawing("heat", HeatMaps(maps), caption)

    @torch.no_grad()
    def examine_slide(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> Examined:
        """What `predict` gives, and the heat behind it."""
        if request.strip().startswith(("train:", "valid:", "test:")):
            number = int(self.example(request))
            layout, x, label = self.layouts[number], self._x[number], self.slides.targets[number]
            known: dict[str, Any] = {"label": self.slides.classes[int(label)]}
        else:
            layout = lay_out(Path(request), self.tiling)
            (x,), known = self.features.of([layout], self.tiling), {}
        graph = (layout.graph() if given(pattern) else lay(pattern, len(x))).to(device)
        probabilities = class_probabilities(model.eval()(graph, x.to(device))[0].cpu(), self.slides.classes)
        best = next(iter(probabilities))
        values = {"slide": str(layout.path), "tiles": len(x), "class": best} | known | {"probabilities": probabilities}
        if not isinstance(model, Attribution):
            return Examined(values, layout, None)
        heat = model.relevance(graph, x.to(device), self.slides.classes.index(best)).cpu()
        return Examined(values | {"hottest tiles": hottest(layout, heat)}, layout, heat)


def auc(chances: Tensor, targets: Tensor) -> float:
    """The area under the ROC curve of each class against the others, and their mean.

    Equation    1/K Σ_k P(p_k of a slide of class k > p_k of another), equal ones count half
    Shapes      chances [G, K], targets [G] of which each class occurs

    Example
        >>> auc(torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]]), torch.tensor([0, 1, 0]))
        1.0
    """
    scores = [ranking_scores(p[targets == k], p[targets != k])["auc"] for k, p in enumerate(chances.T)]
    return float(torch.stack(scores).mean())


def _state(features: Features) -> Tensors:
    state = {"mean": features.mean, "deviation": features.deviation}
    if isinstance(features.extractor, nn.Module):
        state |= {f"extractor.{name}": value.contiguous() for name, value in features.extractor.state_dict().items()}
    return state


def _restore(features: Features, state: Tensors) -> None:
    if isinstance(features.extractor, nn.Module):
        mine = {name: value for name, value in state.items() if name.startswith("extractor.")}
        features.extractor.load_state_dict({name.removeprefix("extractor."): value for name, value in mine.items()})
    features.mean, features.deviation = state["mean"], state["deviation"]


def read_slides(name: str, slides: Slides, tiling: Tiling, extractor: Extractor) -> SlideClassification:
    """The task on some slides, by an extractor of your own: any object that makes features of tiles.

    Cost        one pass over the slides

    Example: `read_slides("mine", slides, Tiling(mpp=0.5, size=224), extractor=my_network)`
    """
    layouts = [lay_out(path, tiling) for path in slides.paths]
    return _task(name, slides, layouts, extract(extractor, layouts, tiling), extractor, tiling)


def _task(
    name: str, slides: Slides, layouts: list[Layout], x: list[Tensor], extractor: Extractor, tiling: Tiling
) -> SlideClassification:
    features = fit_scale(extractor, [x[g] for g in slides.splits["train"].tolist()])
    return SlideClassification(name, slides, layouts, [features.scaled(tiles) for tiles in x], features, tiling)


def slides(
    folder: str | None = None,
    count: int = 200,
    mpp: float = 1.0,
    tile: int = 32,
    tissue: float = 0.5,
    width: int = 64,
    steps: int = 160,
    workers: int = 2,
    seed: int = 0,
) -> SlideClassification:
    """Detect in a whole slide whether, and show where, immune cells enclose a tumour nest; or classify your own.

    Simulated slides are pyramids of 1,024 × 1,024 pixels at 0.5 microns each. All have one or two nests and rings of
    immune cells; on half of them a ring encloses a nest, on the others nests and rings are apart. A residual network
    first learns from the training slides' tiles, without labels. The slides and the features are cached; both are made
    in some minutes, once. Of the slides, 50 % train, 15 % choose the weights and 35 % test.

    Reference   Zheng et al., "A graph-transformer for whole slide image classification", 2022

    Args:
        folder: Your own slides, of any format that OpenSlide reads, with a file labels.csv: its columns are slide,
            label and, if you like, split (train, valid or test). Without one the slides are simulated.
        count: Number of simulated slides.
        mpp: Microns per pixel of a tile.
        tile: Pixels of a tile's side.
        tissue: The least share of a tile that tissue covers.
        width: Features of a tile.
        steps: Steps of the residual network's own training.
        workers: Processes that read slides; 0: none but this one.
        seed: Chooses the slides, the splits of your own, and what the residual network is drawn from.

    Errors      a file that is missing, damaged or no slide is a `DataError` that names it.
    """
    check_range(20, 100_000, count=count)
    check_range(4, 4096, width=width)
    check_range(0, 10**6, steps=steps)
    check_range(0, 2**32 - 1, seed=seed)
    tiling = Tiling(mpp, tile, tissue, workers)
    data = _simulated(count, seed, workers) if folder is None else read_folder(Path(folder).expanduser(), seed)
    content = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in data.paths]
    training = data.splits["train"].tolist()

    def find() -> Tensors:
        tensors: Tensors = {}
        for g, path in enumerate(data.paths):
            layout = lay_out(path, replace(tiling, workers=0))
            tensors[f"frame.{g}"] = torch.tensor([layout.side, *layout.extent], dtype=torch.float64)
            tensors[f"places.{g}"] = layout.places
        return tensors

    key = (replace(tiling, workers=0), content)
    laid = cached("slides", ("layouts", key), find)
    layouts = []
    for g, path in enumerate(data.paths):
        side, *extent = laid[f"frame.{g}"].tolist()
        layouts.append(Layout(path, side, (int(extent[0]), int(extent[1])), laid[f"places.{g}"]))
    seen = [layouts[g] for g in training]
    learned = ("extractor", key, training, width, steps, seed)
    numbers = [str(g) for g in range(len(layouts))]
    network = ResNet(width).eval().requires_grad_(False)

    def learn() -> Tensors:
        return learn_extractor(seen, tiling, width, steps, seed).state_dict()

    network.load_state_dict(cached("slides", learned, learn))
    made = cached(
        "slides", ("features", learned), lambda: dict(zip(numbers, extract(network, layouts, tiling), strict=True))
    )
    x = [made[number] for number in numbers]
    return _task("slides" if folder is None else Path(folder).name, data, layouts, x, network, tiling)


def _simulated(count: int, seed: int, workers: int) -> Slides:
    place = cache_path("slides", digest((SIDE, MPP, CELL, QUALITY, seed, 3)))
    try:
        place.mkdir(parents=True, exist_ok=True)
        paths = tuple(place / f"slide-{number}.tiff" for number in range(count))
        for _ in in_parallel(simulate, [(str(path), number, seed) for number, path in enumerate(paths)], workers):
            pass
    except OSError as error:
        raise DataError(f"simulated slides cannot be written to {place}: {error.strerror}") from error
    splits = cut(torch.arange(count), (count // 2, count * 13 // 20))
    targets = torch.arange(count) % 2
    return Slides(paths, targets, ("apart", "enclosed"), splits, lambda number: plan(number, seed).region)


def read_folder(folder: Path, seed: int) -> Slides:
    """The slides that labels.csv of a folder names; without a split for each, 60 % train, 20 % validate and 20 % test.

    Errors      DataError for a table without slides, an unknown split, or a file outside the folder
    """
    path = folder / "labels.csv"
    content = read_bytes(path, MAX_TABLE)
    with reading(path, "a CSV file"):
        rows = list(csv.DictReader(lines_of(path, content)))
    if not rows or not {"slide", "label"} <= set(rows[0]):
        raise DataError(f"{path}: the columns slide and label, and at least one slide, are needed")
    for line, row in enumerate(rows, start=2):
        name, split = row["slide"] or "", row.get("split", "train")
        if not holds(folder, name):
            raise DataError(f"{path}, line {line}: {name[:80]!r} is no file of this folder")
        if not row["label"] or split not in SPLITS:
            raise DataError(f"{path}, line {line}: a label, and a split train, valid or test, are needed")
    classes = tuple(sorted({row["label"] for row in rows}))
    targets = torch.tensor([classes.index(row["label"]) for row in rows])
    if "split" in rows[0]:
        splits = named([row["split"] for row in rows], lambda number: f"{path}, line {number + 2}")
    else:
        splits = by_class(targets, seed)
    return Slides(tuple(folder / row["slide"] for row in rows), targets, classes, splits)


HOTTEST = 5  # tiles that a prediction names
LARGEST = 800  # pixels of a drawn slide's longer side


@dataclass(frozen=True)
class Examined:
    """What a model says of a slide, as JSON, and why: the heat [M] is how much each of its tiles contributes to the
    predicted class, None for a model that cannot say."""

    values: dict[str, Any]
    layout: Layout
    heat: Tensor | None

    def map(self, tiling: Tiling, title: str, region: NDArray[np.bool_] | None = None) -> HeatMap:
        """The slide and the heat on its tiles, from 0 to 1; what contributes against the class is 0."""
        assert self.heat is not None
        picture, _, _ = overview(self.layout.path, tiling)
        cells = np.zeros((picture.shape[0] // OVERVIEW, picture.shape[1] // OVERVIEW))
        heat = self.heat.double().numpy().clip(0)
        cells[tuple(self.layout.places.numpy().T)] = heat / max(float(heat.max()), 1e-12)
        thin = slice(None, None, -(-max(picture.shape) // LARGEST))
        height, width = (extent / self.layout.side for extent in self.layout.extent)
        return HeatMap(title, picture[thin, thin] / 255, cells, region, (height, width))

    def drawings(self, tiling: Tiling) -> dict[str, Drawing]:
        """The heat map of the predicted class, where there is one."""
        if self.heat is None:
            return {}
        predicted, path = self.values["class"], self.layout.path
        title = f"{path.name}: {predicted}, {self.values['probabilities'][predicted]:.0%}"
        name = re.sub(r"[^\w.-]", "-", path.stem, flags=re.ASCII)
        return {"heat map": Drawing(f"heat-{name}", HeatMaps([self.map(tiling, title)]))}


def hottest(layout: Layout, heat: Tensor) -> list[dict[str, int]]:
    """Where the tiles of the most heat are, in pixels at full resolution."""
    places = layout.places[heat.argsort(descending=True)[:HOTTEST]].tolist()
    side = layout.side
    return [{"x": round(column * side), "y": round(row * side), "side": round(side)} for row, column in places]
