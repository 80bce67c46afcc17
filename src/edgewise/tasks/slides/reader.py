"""Whole slides as tiles, streamed by parallel workers from what OpenSlide reads, and the tiles' features."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, prod
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from edgewise.errors import ConfigError, DataError, EdgewiseError, ShapeError, installing
from edgewise.files import reading
from edgewise.graphs import Graph
from edgewise.layers import MLP, ResNet

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


RATE, BATCH, PROJECTED = 0.005, 96, 128
CROP = 0.75  # of a tile's side, in training
MOST = 20_000  # tiles that are learned from


class Extractor(Protocol):
    """What turns tiles into features; any object that can be called so, such as a module of your own."""

    def __call__(self, tiles: Tensor) -> Tensor:
        """Bytes [B, size, size, 3], red, green and blue -> [B, C]."""


@dataclass
class Features:
    """An extractor, and mean and standard deviation [C] of what it gives for the training tiles."""

    extractor: Extractor
    mean: Tensor
    deviation: Tensor

    def of(self, layouts: Sequence[Layout], tiling: Tiling) -> list[Tensor]:
        """The features [M, C] of each slide's tiles, as `scaled`."""
        return [self.scaled(x) for x in extract(self.extractor, layouts, tiling)]

    def scaled(self, x: Tensor) -> Tensor:
        """What the extractor gave, at mean 0 and deviation 1 over the training tiles."""
        return (x - self.mean) / self.deviation


@torch.no_grad()
def extract(extractor: Extractor, layouts: Sequence[Layout], tiling: Tiling) -> list[Tensor]:
    """An extractor's features [M, C] of each slide, tile by tile as they are read.

    Errors      ShapeError where the extractor gives no finite [B, C] for B tiles
    Cost        memory for the features, and for a few hundred tiles per worker
    """
    if isinstance(extractor, nn.Module):
        extractor.eval()
    parts: list[list[Tensor]] = [[] for _ in layouts]
    for number, tiles in stream(layouts, tiling):
        x = extractor(tiles)
        if x.ndim != 2 or len(x) != len(tiles) or not x.isfinite().all():
            raise ShapeError(f"the extractor gave {list(x.shape)} for {len(tiles)} tiles: finite [B, C] is needed")
        parts[number].append(x.float().cpu())
    return [torch.cat(part) for part in parts]


def fit_scale(extractor: Extractor, training: Sequence[Tensor]) -> Features:
    """An extractor, with the mean and deviation of what it gave for the training slides [M, C]."""
    x = torch.cat([*training]).double()
    deviation = x.std(0, correction=0)
    return Features(extractor, x.mean(0).float(), torch.where(deviation > 1e-6, deviation, 1).float())


def contrast(a: Tensor, b: Tensor, temperature: float = 0.2) -> Tensor:
    """How hard it is to find each picture's other view among all other views: a cross-entropy.

    Equation    -1/2M Σ_i log [exp(cos(z_i, z_i') / τ) / Σ_{k≠i} exp(cos(z_i, z_k) / τ)]
    Symbols     z = a and b together, z_i' = the other view of z_i's picture; temperature = τ
    Shapes      a, b [M, C], two views of the same M pictures -> a number
    Cost        O(M² C)
    Reference   Chen et al., "A simple framework for contrastive learning of visual representations", 2020, (1)

    Example
        >>> a = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> contrast(a, a, temperature=1.0)  # cosine 1 with the other view, 0 with two: log(e + 2) - 1
        tensor(0.5514)
    """
    z = functional.normalize(torch.cat([a, b]), dim=-1)
    logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    return functional.cross_entropy(logits, torch.arange(len(z), device=z.device).roll(len(a)))


def view(tiles: Tensor, generator: torch.Generator) -> Tensor:
    """The tiles as another microscope might show them: a part, turned or mirrored, in other colours; of the same scale.

    Shapes      bytes [B, s, s, 3] -> bytes [B, 3/4 s, 3/4 s, 3]
    """
    size = tiles.shape[1]
    crop = max(1, round(CROP * size))
    top, left = torch.randint(size - crop + 1, (2,), generator=generator).tolist()
    tiles = tiles[:, top : top + crop, left : left + crop]
    mirrored, upside_down, turned = (torch.rand(3, len(tiles), generator=generator) < 0.5)[..., None, None, None]
    tiles = torch.where(mirrored, tiles.flip(1), tiles)
    tiles = torch.where(upside_down, tiles.flip(2), tiles)
    tiles = torch.where(turned, tiles.transpose(1, 2), tiles)
    stain = 0.8 + 0.4 * torch.rand(len(tiles), 1, 1, 3, generator=generator)
    light = 40 * torch.rand(len(tiles), 1, 1, 1, generator=generator) - 20
    return ((tiles.float() - 255) * stain + 255 + light).clamp(0, 255).to(torch.uint8)


def learn_extractor(layouts: Sequence[Layout], tiling: Tiling, width: int, steps: int, seed: int) -> ResNet:
    """A residual network that has learned from tiles alone: to know a tile's other view among those of other tiles.

    Edge cases  steps = 0: as it was drawn; of many tiles an even sample is learned from
    Cost        half a minute for 160 steps with tiles of 32 × 32; memory for `MOST` tiles
    Reference   Chen et al., 2020 (SimCLR)
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, projection = ResNet(width), MLP([width, PROJECTED, PROJECTED])
    generator, tiles = torch.Generator().manual_seed(seed), sample(layouts, tiling, MOST, seed)
    if len(tiles) < 2:
        raise DataError(f"{len(tiles)} tile is too few to learn from")
    weights = [*network.parameters(), *projection.parameters()]
    optimizer = torch.optim.AdamW(weights, RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=max(steps, 1))
    for _ in range(steps):
        chosen = tiles[torch.randint(len(tiles), (min(BATCH, len(tiles)),), generator=generator)]
        a, b = (projection(network(view(chosen, generator))) for _ in range(2))
        optimizer.zero_grad()
        contrast(a, b).backward()
        optimizer.step()
        schedule.step()
    return network.eval().requires_grad_(False)


def sample(layouts: Sequence[Layout], tiling: Tiling, most: int, seed: int) -> Tensor:
    """Tiles of some slides, at most so many, drawn evenly: bytes [M, size, size, 3]."""
    total = sum(len(layout.places) for layout in layouts)
    chosen = sorted(random.Random(seed).sample(range(total), min(most, total)))
    first, thinned = 0, []
    places = torch.tensor(chosen)
    for layout in layouts:
        mine = places[(places >= first) & (places < first + len(layout.places))] - first
        first += len(layout.places)
        if len(mine):
            thinned.append(replace(layout, places=layout.places[mine]))
    return torch.cat([tiles for _, tiles in stream(thinned, tiling)])
