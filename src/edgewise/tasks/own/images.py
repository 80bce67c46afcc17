"""Images of one's own: a folder of them for each class, of any usual format, read by Pillow within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from edgewise.data import record
from edgewise.data.columns import Encoding, check_folders
from edgewise.data.examples import Asked, Examples
from edgewise.data.options import on_own
from edgewise.data.record import Fitted, Settled
from edgewise.data.splits import SPLITS, How, Split, Splits, named
from edgewise.data.table import Problems
from edgewise.errors import ConfigError, DataError
from edgewise.files import folder_name, spelt
from edgewise.tasks.core.abilities import Rows
from edgewise.tasks.core.task import EXAMPLE
from edgewise.tasks.images.classification import (
    ENDINGS,
    Colour,
    ImageClassification,
    Images,
    Pixels,
    read_picture,
)
from edgewise.tasks.own.graphs import ROWS, Files, OwnAnswers
from edgewise.tasks.own.several import Several

PARTS: dict[str, Split] = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
MAX_IMAGES = 1 << 20
MAX_VALUES = 1 << 32  # bytes of all pixels together
SIZES = 5  # that a message lists
THUMBNAIL, LEVELS = 12, 8  # pixels of a side, and values that are told apart, for a simple method


class OwnImages(OwnAnswers, ImageClassification):
    """Images of one's own; a prediction is for one of the data by its name, or for any picture."""

    how: ImageFiles

    def __init__(self, own: Settled, images: Images, how: ImageFiles) -> None:
        super().__init__(folder_name(own.given.place), images, how.patch, how.shift)
        self.own, self.how, self.changes, self.few = own, how, own.changes, own.few
        self.several = Several.of(own.fitted)
        self.summary = (self.describe(), *map(str, own.fitted.targets), *own.given.notes)

    def rows(self, numbers: Tensor) -> Iterator[Rows]:
        """A thumbnail of each image, and how often each of its values is."""
        made = []
        for some in numbers.split(ROWS):
            pixels = self.images.pixels[some].reshape(len(some), *self.images.pixels.shape[1:3], -1)
            small = functional.adaptive_avg_pool2d(pixels.movedim(-1, 1).float(), THUMBNAIL).flatten(1)
            levels = functional.one_hot((pixels.flatten(1, 2) // (256 // LEVELS)).long(), LEVELS)
            made.append(torch.cat([small, levels.float().mean(1).flatten(1)], 1))
        yield Rows("thumbnails and histograms", torch.cat(made).numpy())

    def read(self, request: str) -> tuple[Tensor, str | None]:
        named = self.own.given.number_of.get(request.strip())
        if named is not None:
            label = int(self.images.labels[named])
            return self.images.pixels[named], self.classes[label] if label >= 0 else None
        if EXAMPLE.fullmatch(request.strip()) or request.endswith(".npy"):
            return super().read(request)
        height, width = self.images.pixels.shape[1:3]
        pixels = read_picture(Path(request), self.how.colour, self.how.size)
        if pixels.shape[:2] != (height, width):
            raise DataError(f"{request}: {pixels.shape[0]} x {pixels.shape[1]} pixels, expected {height} x {width}")
        return torch.from_numpy(pixels.copy()), None

    def elsewhere(self, place: Path, labelled: bool = False) -> OwnImages:
        height, width = self.images.pixels.shape[1:3]
        return replace(self.how, shape=(height, width)).elsewhere(place, self.own.fitted, labelled)

    def _named(self, output: Tensor, label: str | None) -> dict[str, Any]:
        known = torch.tensor([torch.nan if label is None else self.classes.index(label)])
        return self.several.named(output, known)


@dataclass(frozen=True)
class ImageFiles(Files[Pixels, OwnImages]):
    """A folder of pictures for each class."""

    size: int = 0  # their height and width; 0: as they are, which must be the same of all
    colour: Colour = "rgb"  # grey values, or red, green and blue
    patch: int = 8  # side of a patch in pixels
    shift: int = 0  # by how many pixels images are moved in training
    fold: int = 0  # seed of the cut of what trains, where folders name the parts but for validation
    shape: tuple[int, int] | None = None  # the height and width that all must have; None: any

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, Pixels]:
        rows = classed_files(place, "images", labelled=self.asked.labelled)
        rows, pixels = self.pixels(rows)
        return replace(rows, splits=record.with_validation(rows.splits, self.fold, self.same(rows, pixels))), pixels

    def same(self, examples: Examples, inputs: Pixels) -> Sequence[object]:
        return [(one.shape, hash(one.tobytes())) for one in inputs]

    def fit(self, inputs: Pixels, fitted: Fitted, splits: Splits) -> Fitted:
        values = inputs[splits["train"].numpy()]
        mean, deviation = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64)) or 1.0
        target = replace(fitted.target, why="a folder for each")
        return replace(fitted, targets=(target,), columns=(Encoding("pixels", "number", mean, mean, deviation),))

    def to_plain(self, own: Settled) -> dict[str, Any]:
        return {
            "kind": "images",
            "unit": "image",
            "input": "a picture, or a folder of pictures",
            "size": self.size,
            "colour": self.colour,
            "endings": list(ENDINGS),
        }

    def task(self, settled: Settled, inputs: Pixels) -> OwnImages:
        given, fitted, splits = settled.given, settled.fitted, settled.splits
        (scale,), unknown = fitted.columns, torch.full((len(given),), -1)
        labels = fitted.target.values(given.targets[0]) if given.targets else unknown
        splits = splits or {split: torch.empty(0, dtype=torch.int64) for split in SPLITS}
        classes = fitted.target.classes
        images = Images(torch.from_numpy(inputs), labels, classes, scale.shift, scale.deviation, splits)
        return OwnImages(settled, images, self)

    def pixels(self, rows: Examples) -> tuple[Examples, Pixels]:
        """The pixels of all images, which must be of one size: all that cannot be read are one DataError, or left
        out."""
        made: list[Pixels] = []
        found, sizes, total, bad = Problems(), Counter[tuple[int, int]](), 0, dict[int, str]()
        for number, path in enumerate(rows.files):
            try:
                one = read_picture(path, self.colour, self.size)
            except DataError as error:
                bad[number] = str(error)
                continue
            total += one.nbytes
            if total > MAX_VALUES:
                raise DataError(
                    f"{rows.place}: its images are more than {MAX_VALUES:,} bytes of pixels: give --task.size"
                )
            sizes[one.shape[:2]] += 1
            made.append(one)
        if len(sizes) > 1 or (self.shape and sizes and {*sizes} != {self.shape}):
            found.add(f"{rows.place}: {_sizes(sizes, self.shape)}")
        found.extend(() if self.asked.skip and made else bad.values())
        found.check()
        return rows.without(bad), np.stack(made)


@on_own("image")
def image_folder(
    folder: str = "images",
    size: int = 0,
    colour: Literal["grey", "rgb"] = "rgb",
    patch: int = 8,
    shift: int = 0,
    fold: int = 0,
    like: str = "",
    cut: Literal["auto", "random", "stratified", "given"] = "auto",
    folds: int = 0,
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> ImageClassification:
    """Guess the class of your own images: from a folder with a folder of pictures for each class.

    PNG, JPEG, BMP, GIF, TIFF, WebP, PGM and PPM are read, turned as their camera says; what is transparent is white.
    Where the folder holds `train`, `test` and perhaps `valid` or `val`, each with a folder for each class, these are
    the parts; without `valid` a fifth of what trains chooses the weights. Else the images are cut into 60 % to train,
    20 % to choose the weights by and 20 % to test (80, 10 and 10 % of 1,000 and more); equal images are in one part. A
    run keeps the parts, the classes, and the mean and deviation of the pixels that train.

    Args:
        folder: Where the folders of the classes lie.
        size: Height and width to read: each image is scaled until its shorter side has so many pixels, and its middle
            is cut out. 0: images stay as they are, and must be of one size.
        colour: Read grey values, or red, green and blue.
        patch: Side of the square patches that are the nodes; 0 for the whole image.
        shift: Move each training image by up to so many pixels, at random.
        cut: "random"; "stratified", with equal shares of each class; or "given", as the folders say. "auto": as they
            say, else stratified.

    Errors      pictures that are damaged, too large or of several sizes are a `DataError` that names them all
    """
    if size < 0 or size > 4096:
        raise ConfigError(f"task.size must be from 0 to 4096, not {size}")
    files = ImageFiles(Asked("images", skip=bad_rows == "skip"), size, colour, patch, shift, fold)
    return files.settle(folder, like, "class", How(cut, fold, folds))


def classed_files(
    place: Path, unit: str, endings: Sequence[str] = ENDINGS, most: int = MAX_IMAGES, labelled: bool = True
) -> Examples:
    """The files of a folder, with their parts where its folders say so, and their classes where they are `labelled`."""
    if not place.is_dir():
        raise DataError(f"{place}: no such folder: expected one with a folder of {unit} for each class")
    files = sorted(path for path in place.rglob("*") if path.suffix.lower() in endings and path.is_file())
    if len(files) > most:
        raise DataError(f"{place}: {len(files):,} {unit}, of at most {most:,}")
    names = [spelt(path.relative_to(place)) for path in files]
    folders = {path.name for path in place.iterdir() if path.is_dir()}
    parted = {"train", "test"} <= folders and (not labelled or folders <= {*PARTS})
    depth = 1 + parted
    chosen = [number for number, name in enumerate(names) if not labelled or name.count("/") == depth]
    if not chosen:
        where = "in folders of their classes " * labelled
        raise DataError(f"{place}: it has no {unit} {where}({', '.join(endings)})")
    left = [names[number] for number in sorted({*range(len(names))} - {*chosen})]
    files, names = [files[number] for number in chosen], [names[number] for number in chosen]
    if labelled:
        record.check_count(place, names)
    labels = [[name.split("/")[depth - 1] for name in names]] if labelled else []
    check_folders(place, (label for each in labels for label in each))
    parts = [PARTS.get(name.partition("/")[0], "") for name in names]
    splits = named(parts, names.__getitem__) if parted else {}
    notes = [f"not read: {record.listed(left)}, which are in no class"] if left else []
    return Examples(
        place, tuple(files), unit, len(files), names, ("class",) * labelled, labels, splits, notes=tuple(notes)
    )


def _sizes(sizes: Counter[tuple[int, int]], shape: tuple[int, int] | None) -> str:
    listed = [f"{height} x {width} ({count:,})" for (height, width), count in sizes.most_common(SIZES)]
    more: Sequence[str] = [f"and {len(sizes) - SIZES} more"] if len(sizes) > SIZES else []
    advice = f"expected {shape[0]} x {shape[1]}" if shape else "give --task.size, to which they are scaled"
    return f"its images have {len(sizes)} sizes: {', '.join([*listed, *more])}: {advice}"
