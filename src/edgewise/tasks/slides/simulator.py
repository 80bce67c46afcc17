"""Simulated slides: stained tissue with nuclei, immune cells and, in half of them, a region of large dark nuclei."""

import io
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.files import whole

Floats = NDArray[np.float64]
Pixels = NDArray[np.uint8]

SIDE = 1024  # pixels
MPP = 0.5
TILE = 256  # pixels of a tile of the file
CELL = 16  # pixels of a cell of the coarse maps
QUALITY = 80


@dataclass(frozen=True)
class Plan:
    """What is on a slide, in cells of 16 pixels: tissue and a planted region, bool [64, 64] (none on a healthy slide),
    clusters of immune cells [n, 3], centre and radius of each, and the stain: the colours of tissue and nuclei [2, 3].
    """

    tissue: NDArray[np.bool_]
    region: NDArray[np.bool_]
    clusters: Floats
    stain: Floats


def plan(number: int, seed: int) -> Plan:
    """What is on a slide: odd ones have a planted region, an ellipse with radii of 56 to 112 microns."""
    random = np.random.default_rng((seed, number, 0))
    cells = SIDE // CELL
    y, x = np.mgrid[:cells, :cells] + 0.5
    tissue = np.zeros((cells, cells), dtype=bool)
    while tissue.mean() < 0.4:
        centre, radii, wave = random.uniform(16, 48, 2), random.uniform(12, 26, 2), random.uniform(0, 6.28, 3)
        angle = np.arctan2(y - centre[0], x - centre[1])
        edge = 1 + 0.12 * np.sin(3 * angle + wave[0]) + 0.08 * np.sin(5 * angle + wave[1])
        tissue |= np.hypot((y - centre[0]) / radii[0], (x - centre[1]) / radii[1]) < edge

    def somewhere() -> Floats:
        inside = np.argwhere(tissue & (np.abs(y - 32) < 26) & (np.abs(x - 32) < 26))
        return inside[random.integers(len(inside))] + 0.5

    region = np.zeros_like(tissue)
    if number % 2:
        centre, radii = somewhere(), random.uniform(7, 14, 2)
        region = np.hypot((y - centre[0]) / radii[0], (x - centre[1]) / radii[1]) < 1
    clusters = np.array([[*somewhere(), random.uniform(4, 9)] for _ in range(random.integers(1, 4))])
    stain = np.array([[226, 170, 200], [110, 70, 150]]) * random.uniform(0.88, 1.08, (2, 3))
    return Plan(tissue, region, clusters, stain.clip(0, 235))


def draw(planned: Plan, number: int, seed: int) -> Pixels:
    """The slide's pixels [1024, 1024, 3].

    Nuclei have radii of 2 to 3.5 microns; those of immune cells 1.5 to 2.2, and lie densely; planted ones 4.5 to 7,
    and lie densely too: being dark or dense alone means nothing.
    """
    from PIL import Image, ImageDraw, ImageFilter

    random = np.random.default_rng((seed, number, 1))
    texture = Image.fromarray(random.integers(0, 255, (128, 128), dtype=np.uint8)).resize((SIDE, SIDE))
    fibres = (np.asarray(texture, dtype=np.float32)[..., None] - 127) * 0.12
    paper = np.full((SIDE, SIDE, 3), 243, dtype=np.float32)
    smooth = Image.fromarray(planned.tissue.astype(np.uint8) * 255).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    inside = np.asarray(smooth)[..., None] > 127
    ground = np.where(inside, planned.stain[0].astype(np.float32) + fibres, paper)
    picture = Image.fromarray(ground.clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    for x, y, wide, high, shade in _nuclei(planned, random):
        if inside[int(y) % SIDE, int(x) % SIDE, 0]:
            colour = tuple(int(c) for c in (planned.stain[1] * shade).clip(0, 255))
            pen.ellipse((x - wide, y - high, x + wide, y + high), fill=colour)
    grain = np.tile(random.normal(0, 3, (SIDE // 8, SIDE // 8, 3)).astype(np.float32), (8, 8, 1))
    blurred = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.8)), dtype=np.float32)
    return (blurred + grain).clip(0, 255).astype(np.uint8)


def _nuclei(planned: Plan, random: np.random.Generator) -> list[list[float]]:
    """Centre, half axes in pixels and shade of every nucleus [n, 5]: normal ones, immune cells, planted ones."""
    normal = random.uniform(0, SIDE, (900, 2))
    immune = [(random.normal(0, 0.5, (int(8 * r * r), 2)) * r + (x, y)) * CELL for y, x, r in planned.clusters.tolist()]
    cells = np.argwhere(planned.region)[:, ::-1]
    planted = (cells[::3] + random.uniform(0, (3, 1), (len(cells[::3]), 2))) * CELL
    free = ~planned.region[tuple((normal // CELL).astype(int).T[::-1])]
    kinds = [(normal[free], 4.0, 7.0, 1.0), (np.concatenate(immune), 3.0, 4.4, 0.8), (planted, 9.0, 14.0, 0.85)]
    drawn = []
    for centres, least, most, shade in kinds:
        axes = random.uniform(least, most, (len(centres), 1)) * random.uniform(0.75, 1.25, (len(centres), 2))
        drawn.append(np.concatenate([centres, axes, shade * random.uniform(0.85, 1.15, (len(centres), 1))], 1))
    return np.concatenate(drawn).tolist()


class Level(NamedTuple):
    """One level of a pyramid: its size, its tiles as JPEG row by row, and how much coarser it is than the first."""

    width: int
    height: int
    tiles: Iterable[bytes]
    coarser: int


def write_pyramid(path: Path, levels: Iterable[Level], mpp: float) -> None:
    """Write a tiled, pyramidal TIFF with JPEG tiles of 256 × 256 pixels, tile by tile, as OpenSlide reads it.

    Edge cases  the file appears when it is whole
    Cost        memory for one tile and 8 bytes for each; a file of at most 4 GB
    Reference   Adobe, "TIFF, revision 6.0", 1992; technical note 2, 1995 (JPEG)
    """
    with whole(path) as part, part.open("xb") as file:
        file.write(struct.pack("<2sHI", b"II", 42, 0))
        link = 4  # where the place of the next directory goes
        for number, level in enumerate(levels):
            places, sizes = [], []
            for tile in level.tiles:
                places.append(file.tell())
                sizes.append(len(tile))
                file.write(tile + b"\0" * (len(tile) % 2))
            link = _directory(file, link, level, (number > 0, mpp), (places, sizes))


def _directory(file: Any, link: int, level: Level, kind: tuple[bool, float], where: tuple[list[int], list[int]]) -> int:
    """Write a level's directory, and into `link` where it is; where the next one's place goes."""
    resolution = (round(1e7 / (kind[1] * level.coarser)), 1000)  # pixels per centimetre
    fields: list[tuple[int, str, Any]] = [
        (254, "I", [kind[0]]), (256, "I", [level.width]), (257, "I", [level.height]), (258, "H", [8, 8, 8]),
        (259, "H", [7]), (262, "H", [6]), (277, "H", [3]), (282, "R", resolution), (283, "R", resolution),
        (284, "H", [1]), (296, "H", [3]), (322, "I", [TILE]), (323, "I", [TILE]), (324, "I", where[0]),
        (325, "I", where[1]), (530, "H", [2, 2]),
    ]  # fmt: skip
    entries = b""
    for tag, form, values in fields:
        data = struct.pack(f"<{len(values)}{'I' if form == 'R' else form}", *values)
        if len(data) > 4:
            place = struct.pack("<I", file.tell())
            file.write(data)
            data = place
        count = 1 if form == "R" else len(values)
        entries += struct.pack("<HHI", tag, {"H": 3, "I": 4, "R": 5}[form], count) + data.ljust(4, b"\0")
    if file.tell() % 2:
        file.write(b"\0")
    place = file.tell()
    file.write(struct.pack("<H", len(fields)) + entries + b"\0" * 4)
    file.seek(link)
    file.write(struct.pack("<I", place))
    file.seek(0, 2)
    return int(file.tell()) - 4


def encoded(pixels: Pixels) -> Iterator[bytes]:
    """The JPEG tiles of a picture whose sides are multiples of 256."""
    from PIL import Image

    for y in range(0, pixels.shape[0], TILE):
        for x in range(0, pixels.shape[1], TILE):
            content = io.BytesIO()
            tile = Image.fromarray(np.ascontiguousarray(pixels[y : y + TILE, x : x + TILE]))
            tile.save(content, "JPEG", quality=QUALITY, subsampling=2)
            yield content.getvalue()


def simulate(path: str, number: int, seed: int) -> int:
    """Write a simulated slide of three levels, unless it is there; its number."""
    if not Path(path).is_file():
        pixels = draw(plan(number, seed), number, seed)
        levels = []
        for coarser in (1, 2, 4):
            side = SIDE // coarser
            smaller = pixels.reshape(side, coarser, side, coarser, 3).mean((1, 3)).astype(np.uint8)
            levels.append(Level(side, side, encoded(smaller), coarser))
        write_pyramid(Path(path), levels, MPP)
    return number
