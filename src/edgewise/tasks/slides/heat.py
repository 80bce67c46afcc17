"""Where on a slide a model's prediction comes from: the heat of each tile, and its drawing."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.tasks.core.drawing import Drawing, HeatMap, HeatMaps
from edgewise.tasks.slides.reader import OVERVIEW, Layout, Tiling, overview

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


def smoothed(graph: Graph, heat: Tensor) -> Tensor:
    """The mean of each tile's heat and of its neighbours': what a region shows, its tiles show together."""
    return aggregate(graph.add_self_loops(), heat[:, None], reduce="mean")[:, 0]


def hottest(layout: Layout, heat: Tensor) -> list[dict[str, int]]:
    """Where the tiles of the most heat are, in pixels at full resolution."""
    places = layout.places[heat.argsort(descending=True)[:HOTTEST]].tolist()
    side = layout.side
    return [{"x": round(column * side), "y": round(row * side), "side": round(side)} for row, column in places]
