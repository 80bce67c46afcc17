"""Simulated slides: tissue, tumour nests and rings of immune cells; only their arrangement tells the classes apart."""

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
    """What is on a slide, in cells of 16 pixels: tissue, and the region where a ring encloses a nest, bool [64, 64];
    one or two tumour nests and rings of immune cells [n, 5], centre, radii and the share of those that is empty; and
    the stain: the colours of tissue and nuclei [2, 3].
    """

    tissue: NDArray[np.bool_]
    region: NDArray[np.bool_]
    nests: Floats
    rings: Floats
    stain: Floats


def plan(number: int, seed: int) -> Plan:
    """What is on a slide: on odd ones a ring encloses a nest, on even ones no ring does.

    Four places have room for a ring around a nest, and all are drawn from one distribution; slides 2 k and 2 k + 1 have
    as many nests and rings: both classes have the same amounts of everything. The gap between a ring
    and its nest is as wide as a tile of 32 microns.
    """
    random = np.random.default_rng((seed, number, 0))
    cells = SIDE // CELL
    y, x = np.mgrid[:cells, :cells] + 0.5
    quarters = np.array([[1, 1], [1, 3], [3, 1], [3, 3]]) * cells / 4
    places = random.permutation(quarters) + random.uniform(-2.5, 2.5, (4, 2))
    tissue = np.zeros((cells, cells), dtype=bool)
    for row, column in places:
        radii, wave = random.uniform(14, 18, 2), random.uniform(0, 6.28, 3)
        angle = np.arctan2(y - row, x - column)
        edge = 1 + 0.12 * np.sin(3 * angle + wave[0]) + 0.08 * np.sin(5 * angle + wave[1])
        tissue |= np.hypot((y - row) / radii[0], (x - column) / radii[1]) < edge
    enclosed = bool(number % 2)
    n, m = np.random.default_rng((seed, number // 2, 2)).integers(1, 3, 2).tolist()  # rings and nests
    outer, wide = random.uniform(12, 12.5, (n, 1)), random.uniform(2.6, 3.2, (n, 1))
    rings = np.hstack([places[:n], outer, outer, 1 - wide / outer])
    nests = np.hstack([places[n - enclosed :][:m], random.uniform(3.5, 4.8, (m, 2)), np.zeros((m, 1))])
    region = (np.hypot(y - rings[-1, 0], x - rings[-1, 1]) < outer[-1]) & enclosed
    stain = np.array([[226, 170, 200], [110, 70, 150]]) * random.uniform(0.88, 1.08, (2, 3))
    return Plan(tissue, region, nests, rings, stain.clip(0, 235))


def draw(planned: Plan, number: int, seed: int) -> Pixels:
    """The slide's pixels [1024, 1024, 3].

    Nuclei have radii of 2 to 3.5 microns; those of immune cells 1.5 to 2.2 and those of nests 4.5 to 7, both densely.
    """
    from PIL import Image, ImageDraw, ImageFilter

    random = np.random.default_rng((seed, number, 1))
    whole = (SIDE, SIDE)
    fibres = planned.stain[0] + random.uniform(-15, 15, (SIDE // 8, SIDE // 8, 1))
    ground = Image.fromarray(fibres.clip(0, 255).astype(np.uint8)).resize(whole)
    smooth = Image.fromarray(planned.tissue.astype(np.uint8) * 255).resize(whole, Image.Resampling.BICUBIC)
    inside = np.asarray(smooth) > 127
    picture = Image.composite(ground, Image.new("RGB", whole, (243, 243, 243)), Image.fromarray(inside))
    pen = ImageDraw.Draw(picture)
    for x, y, wide, high, shade in _nuclei(planned, random):
        if inside[int(y) % SIDE, int(x) % SIDE]:
            colour = tuple(int(c) for c in (planned.stain[1] * shade).clip(0, 255))
            pen.ellipse((x - wide, y - high, x + wide, y + high), fill=colour)
    grain = np.tile(random.normal(0, 3, (SIDE // 8, SIDE // 8, 3)).astype(np.int16), (8, 8, 1))
    blurred = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.8)))
    return (blurred + grain).clip(0, 255).astype(np.uint8)


def _nuclei(planned: Plan, random: np.random.Generator) -> list[list[float]]:
    """Centre, half axes in pixels and shade of every nucleus [n, 5]: normal ones, immune cells, those of nests."""

    def fill(shapes: Floats, density: float) -> Floats:
        centres = []
        for row, column, high, wide, empty in shapes.tolist():
            count = int(density * np.pi * high * wide * (1 - empty**2))
            angle, radius = random.uniform(0, 6.2832, count), np.sqrt(random.uniform(empty**2, 1, count))
            centres.append(np.stack([column + wide * radius * np.cos(angle), row + high * radius * np.sin(angle)], 1))
        return np.concatenate(centres) * CELL

    normal = random.uniform(0, SIDE, (900, 2))
    kinds = [
        (normal, 4.0, 7.0, 1.0),
        (fill(planned.rings, 2.5), 3.0, 4.4, 0.8),
        (fill(planned.nests, 0.4), 9.0, 14.0, 0.85),
    ]
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
    """The JPEG tiles of a picture, whose last pixels fill up the tiles at its right and lower edge."""
    from PIL import Image

    pixels = np.pad(pixels, ((0, -pixels.shape[0] % TILE), (0, -pixels.shape[1] % TILE), (0, 0)), mode="edge")
    for y in range(0, pixels.shape[0], TILE):
        for x in range(0, pixels.shape[1], TILE):
            content = io.BytesIO()
            tile = Image.fromarray(np.ascontiguousarray(pixels[y : y + TILE, x : x + TILE]))
            tile.save(content, "JPEG", quality=QUALITY, subsampling=2)
            yield content.getvalue()


def simulate(path: str, number: int, seed: int) -> int:
    """Write a simulated slide of three levels, unless it is there; its number."""
    from PIL import Image

    if not Path(path).is_file():
        pixels = draw(plan(number, seed), number, seed)
        levels = []
        for coarser in (1, 2, 4):
            side = SIDE // coarser
            smaller = Image.fromarray(pixels).reduce(coarser)
            levels.append(Level(side, side, encoded(np.asarray(smaller)), coarser))
        write_pyramid(Path(path), levels, MPP)
    return number
