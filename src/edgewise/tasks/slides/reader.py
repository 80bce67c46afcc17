"""Whole slides as tiles: any pyramid that OpenSlide reads, at a given resolution, streamed by parallel workers."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil, prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from edgewise.errors import ConfigError, DataError, EdgewiseError, installing
from edgewise.files import reading
from edgewise.graphs import Graph

T = TypeVar("T")
Pixels = NDArray[np.uint8]

OVERVIEW = 16  # pixels of an overview for each tile's side
REGION = 2048  # pixels of the largest region that is read at once, where a tile is not larger
BLOCK = 128  # tiles on a side of what is read at once, where they are smaller than their overview
AT_ONCE = 256  # tiles that a worker hands over
MAX_TILES = 640_000  # of a slide, tissue or not: the overview has 768 bytes of each
MAX_PIXELS = 1 << 24  # of a region or of one of the file's own tiles, of which there are some copies of 4 bytes each
CHROMA = 15  # a stained pixel's largest and smallest channel differ by at least this


@dataclass(frozen=True)
class Tiling:
    """How a slide is cut: options of `slides`; size = a tile's side in pixels, workers = processes that read."""

    mpp: float = 1.0
    size: int = 32
    tissue: float = 0.5
    workers: int = 2

    def __post_init__(self) -> None:
        if not 0.05 <= self.mpp <= 100 or not 8 <= self.size <= 2048:
            raise ConfigError(f"mpp={self.mpp} must be from 0.05 to 100 and tile={self.size} from 8 to 2048 pixels")
        if not 0 <= self.tissue <= 1 or not 0 <= self.workers <= 256:
            raise ConfigError(f"tissue={self.tissue} must be from 0 to 1 and workers={self.workers} from 0 to 256")


@dataclass(frozen=True)
class Layout:
    """A slide's tiles: row and column in `places`, int64 [M, 2], row by row, of each one with enough tissue.

    `side` is that of a tile, and `extent` the slide's height and width, in pixels at full resolution."""

    path: Path
    side: float
    extent: tuple[int, int]
    places: Tensor

    def graph(self) -> Graph:
        """Each tile attends to its up to eight neighbours."""
        return neighbours(self.places)


def lay_out(path: Path, tiling: Tiling) -> Layout:
    """Find the tiles of a slide that hold tissue.

    Errors      DataError for a file that is no slide, names no resolution or holds no tissue; EdgewiseError without
                OpenSlide
    Cost        reads the slide once, at the coarsest resolution that it has and that suffices; memory O(tiles), and
                `REGION`² pixels for each worker
    """
    covered, side, extent = _by_block(path, tiling, _covered, np.empty((1, 1)))
    places = torch.from_numpy(np.argwhere((covered >= tiling.tissue) & (covered > 0))).contiguous()
    if len(places) == 0:
        raise DataError(f"{path}: no tile of {tiling.size} pixels has {tiling.tissue:.0%} of tissue, of {covered.size}")
    return Layout(path, side, extent, places)


def overview(path: Path, tiling: Tiling) -> tuple[Pixels, float, tuple[int, int]]:
    """The whole tiles of a slide at `OVERVIEW` pixels each, uint8 [16 R, 16 C, 3], a tile's side, height and width."""
    return _by_block(path, tiling, _overview, np.empty((OVERVIEW, OVERVIEW, 3), np.uint8))


def _by_block(
    path: Path, tiling: Tiling, read: Callable[..., Any], tile: NDArray[Any]
) -> tuple[NDArray[Any], float, tuple[int, int]]:
    """What `read` makes of a slide, block by block, in one array; `tile` is like its part for one tile."""
    try:
        slide = _opened(str(path), os.getpid())
        side = tiling.size * tiling.mpp / microns(slide, path)
        if side < 1:
            size = f"{tiling.size} pixels of {tiling.mpp} microns are {side:.3g} of its own"
            raise DataError(f"{path}: {size}: take larger tiles, or more microns per pixel")
        width, height = slide.dimensions
        columns, rows = (max(1, int(extent / side + 1e-6)) for extent in (width, height))
        if rows * columns > MAX_TILES:
            size = f"{rows:,} x {columns:,} tiles of {side:.3g} pixels"
            raise DataError(f"{path}: {size} are more than {MAX_TILES:,}: take larger ones, or more microns per pixel")
        level = slide.get_best_level_for_downsample(max(1.0, side / OVERVIEW))
        step = min(BLOCK, max(1, int(REGION * slide.level_downsamples[level] / side)))
        corners = [(row, column) for row in range(0, rows, step) for column in range(0, columns, step)]
        jobs = [(str(path), side, level, r, c, min(step, rows - r), min(step, columns - c)) for r, c in corners]
        down, across = tile.shape[:2]
        whole = np.empty((down * rows, across * columns, *tile.shape[2:]), dtype=tile.dtype)
        for (row, column), part in zip(corners, in_parallel(read, jobs, tiling.workers), strict=True):
            y, x = down * row, across * column
            whole[y : y + part.shape[0], x : x + part.shape[1]] = part
    finally:
        _opened.cache_clear()
    return whole, side, (height, width)


def tissue(pixels: Pixels) -> NDArray[np.bool_]:
    """Which pixels are stained, and so neither glass nor shadow: [h, w, 3] -> [h, w].

    Example
        >>> tissue(np.array([[[240, 238, 241], [200, 120, 180], [60, 62, 61]]], dtype=np.uint8)).tolist()
        [[False, True, False]]
    """
    return np.asarray(pixels.max(-1) - pixels.min(-1) >= CHROMA)


def stream(layouts: Sequence[Layout], tiling: Tiling) -> Iterator[tuple[int, Tensor]]:
    """The tiles of some slides, in order: each slide's number and up to `AT_ONCE` tiles, uint8 [B, size, size, 3].

    Cost        memory for a few hundred tiles per worker, whatever the slides' sizes: workers wait to be read
    """
    numbers, jobs = [], []
    for number, layout in enumerate(layouts):
        for places in layout.places.split(AT_ONCE):
            numbers.append(number)
            jobs.append((str(layout.path), layout.side, tiling.size, places.numpy()))
    yield from zip(numbers, in_parallel(_tiles, jobs, tiling.workers), strict=True)


def neighbours(places: Tensor) -> Graph:
    """The graph of tiles in which each attends to those of the eight around it that are there.

    Shapes      places [M, 2], rows and columns, each place once

    Example
        >>> neighbours(torch.tensor([[0, 0], [1, 1], [1, 3]])).edge_index().tolist()
        [[1, 0], [0, 1]]
    """
    rows, columns = (int(extent) + 3 for extent in places.amax(0)) if len(places) else (1, 1)
    number = torch.full((rows, columns), -1)
    y, x = (places + 1).unbind(-1)
    number[y, x] = torch.arange(len(places))
    around = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
    senders = torch.stack([number[y + dy, x + dx] for dy, dx in around], -1)
    receivers = torch.arange(len(places))[:, None].expand_as(senders)
    there = senders >= 0
    return Graph.from_edge_index(torch.stack([senders[there], receivers[there]]), len(places))


def microns(slide: Any, path: Path) -> float:
    """Microns per pixel at full resolution: what the file says, else 10 over the objective's power."""
    said = slide.properties
    try:
        if "openslide.mpp-x" in said and "openslide.mpp-y" in said:
            x, y = float(said["openslide.mpp-x"]), float(said["openslide.mpp-y"])
        else:
            x = y = 10 / float(said["openslide.objective-power"])
    except (KeyError, ValueError, ZeroDivisionError):
        raise DataError(f"{path}: it says neither its microns per pixel nor its objective's power") from None
    if not 1e-3 < x < 1e5 or not x / 2 <= y <= 2 * x:
        raise DataError(f"{path}: pixels of {x:g} by {y:g} microns cannot be right")
    return (x * y) ** 0.5


def in_parallel(function: Callable[..., T], jobs: Sequence[tuple[Any, ...]], workers: int) -> Iterator[T]:
    """What a function of a module returns for each job, in order, by worker processes that run two jobs ahead."""
    workers = min(workers, len(jobs))
    options: dict[str, Any] = {"prefetch_factor": 2} if workers else {}
    run = partial(_run, function)  # as what puts a batch together, it runs in the workers
    yield from DataLoader(list(jobs), batch_size=None, num_workers=workers, collate_fn=run, **options)  # type: ignore[arg-type]


def _run(function: Callable[..., T], job: tuple[Any, ...]) -> T:
    return function(*job)


def open_slide(path: Path) -> Any:
    """A slide, open; whatever is wrong with the file is a DataError."""
    try:
        import openslide
    except ImportError as error:
        raise EdgewiseError(f"slides are read by OpenSlide: {installing('slides')}") from error
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    with reading(path, "a slide that OpenSlide can read"):
        slide = openslide.OpenSlide(path)
        for level in range(slide.level_count):
            sides = (slide.properties.get(f"openslide.level[{level}].tile-{side}", 1) for side in ("width", "height"))
            pixels = prod(map(int, sides))
            if pixels > MAX_PIXELS:
                raise DataError(f"{path}: it is cut into tiles of {pixels:,} pixels, of at most {MAX_PIXELS:,}")
        return slide


@lru_cache(maxsize=1)
def _opened(path: str, process: int) -> Any:
    """The slide that a process reads at present: a forked one opens it anew."""
    return open_slide(Path(path))


def _region(path: str, x: float, y: float, level: int, pixels: tuple[int, int]) -> Any:
    """A region as an RGB picture on white, from the place (x, y) at full resolution."""
    from PIL import Image

    if prod(pixels) > MAX_PIXELS:
        size = " x ".join(f"{side:,}" for side in pixels)
        raise DataError(f"{path}: a tile is {size} pixels at its coarsest resolution, of at most {MAX_PIXELS:,} in all")
    with reading(path, "a slide whose regions can be read"):
        read = _opened(path, os.getpid()).read_region((round(x), round(y)), level, pixels)
        white = Image.new("RGBA", read.size, "white")
        return Image.alpha_composite(white, read).convert("RGB")


def _overview(path: str, side: float, level: int, row: int, column: int, rows: int, columns: int) -> Pixels:
    """A block of tiles at `OVERVIEW` pixels a tile."""
    from PIL import Image

    scale = side / _opened(path, os.getpid()).level_downsamples[level]
    picture = _region(path, column * side, row * side, level, (ceil(columns * scale), ceil(rows * scale)))
    return np.asarray(picture.resize((OVERVIEW * columns, OVERVIEW * rows), Image.Resampling.BOX))


def _covered(path: str, side: float, level: int, row: int, column: int, rows: int, columns: int) -> NDArray[np.float64]:
    """How much of each tile of a block tissue covers."""
    picture = _overview(path, side, level, row, column, rows, columns)
    covered: NDArray[np.float64] = tissue(picture).reshape(rows, OVERVIEW, columns, OVERVIEW).mean((1, 3))
    return covered


def _tiles(path: str, side: float, size: int, places: NDArray[np.int64]) -> Tensor:
    """Tiles of a slide by row and column, uint8 [B, size, size, 3]."""
    from PIL import Image

    slide = _opened(path, os.getpid())
    level = slide.get_best_level_for_downsample(max(1.0, side / size * (1 + 1e-3)))
    pixels = ceil(side / slide.level_downsamples[level] - 1e-3)
    tiles = np.empty((len(places), size, size, 3), dtype=np.uint8)
    for tile, (row, column) in zip(tiles, places.tolist(), strict=True):
        picture = _region(path, column * side, row * side, level, (pixels, pixels))
        tile[:] = picture if pixels == size else picture.resize((size, size), Image.Resampling.BOX)
    return torch.from_numpy(tiles)
