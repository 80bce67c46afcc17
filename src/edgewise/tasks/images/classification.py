"""Image classification: an image is cut into patches, the patches are the nodes, their place is the layout."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError
from edgewise.files import read_bytes, reading
from edgewise.graphs import PATTERNS, Graph
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Alone
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.classification import Classification, class_probabilities
from edgewise.tasks.core.drawing import Content, Drawing, Heat, Pictures, Section
from edgewise.tasks.core.subject import OfFeatures, Subject, last_attention, matrices
from edgewise.tasks.core.task import EXAMPLE, Device, NumberedExamples, Pattern
from edgewise.tasks.images.pixels import pixels_of

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
MAX_BYTES = 1 << 26
MAX_PIXELS = 1 << 26  # of a picture; a file of a few bytes can claim any number
Colour = Literal["grey", "rgb"]
Pixels = np.ndarray[Any, np.dtype[np.uint8]]
DRAWN = 6  # images in a report


@dataclass(frozen=True)
class Images:
    """The data of an image classification.

    Args:
        pixels: Grey values, uint8 [M, height, width], or colours [M, height, width, 3].
        labels: The classes [M].
        classes: The classes' names.
        mean: Mean value of the training images; each image is shifted by it ...
        deviation: ... and divided by their standard deviation.
        splits: For "train", "valid" and "test" the images that it reads.
    """

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    mean: float
    deviation: float
    splits: Mapping[Split, Tensor]


def cut(pixels: Tensor, height: int, width: int) -> Tensor:
    """Cut images into patches, row by row: [M, Y, X] -> [M, (Y / height)·(X / width), height·width]; of colours
    [M, Y, X, 3] a patch has height·width·3 numbers.

    Example
        >>> cut(torch.arange(8).view(1, 2, 4), 2, 2).tolist()
        [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    """
    count, y, x, *colours = pixels.shape
    rows = pixels.view(count, y // height, height, x // width, width, *colours)
    return rows.transpose(2, 3).reshape(count, (y // height) * (x // width), -1)


def move(pixels: Tensor, moves: Tensor) -> Tensor:
    """Move each image down and to the right by its own whole numbers: [M, Y, X, ...], [M, 2] -> the same; 0 comes in.

    Example
        >>> move(torch.tensor([[[1, 2], [3, 4]]]), torch.tensor([[1, -1]])).tolist()
        [[[0, 0], [2, 0]]]
    """
    count, height, width, *colours = pixels.shape
    margin = int(moves.abs().max()) if count else 0
    padded = functional.pad(pixels, (0, 0) * len(colours) + (margin,) * 4)
    y, x = (torch.arange(size) + margin - moves[:, axis, None] for axis, size in enumerate((height, width)))
    return padded[torch.arange(count)[:, None, None], y[:, :, None], x[:, None, :]]


class ImageClassification(NumberedExamples, Classification):
    """Each image is one example: P patches [B, P, C] on one shared graph, one output per image.

    Errors      a patch that does not divide the image, or a shift that could move all of it out, is a `ConfigError`.
    """

    unit = "images"
    files: tuple[str, ...] = (".npy", *ENDINGS)

    def __init__(self, name: str, images: Images, patch: int, shift: int = 0) -> None:
        height, width = images.pixels.shape[1:3]
        if not 0 <= shift < min(height, width):
            raise ConfigError(f"shift={shift} must be at least 0 and less than the image, {height} x {width} pixels")
        if patch < 0 or (patch and (height % patch or width % patch)):
            raise ConfigError(f"patch={patch} does not cut images of {height} x {width} pixels into equal squares")
        self.name, self.images, self.shift = name, images, shift
        self.classes, self.splits = images.classes, images.splits
        self.patch = (patch or height, patch or width)
        self.layout = (height // self.patch[0], width // self.patch[1])
        self._patches = cut(images.pixels, *self.patch).contiguous()
        _, nodes, channels = self._patches.shape
        self.signature = Features(inputs=channels, outputs=len(images.classes), length=nodes, whole_graph=True)
        self.epoch_size, self.has_test = len(images.splits["train"]), len(images.splits["test"]) > 0
        self.contents = f"{height} × {width} pixels in patches of {self.patch[0]} × {self.patch[1]}"

    def graph(self, pattern: Pattern = None) -> Graph:
        """A pattern over the patches; the data's own graph joins each patch to its 8 neighbours and itself."""
        return self.laid(pattern, PATTERNS["grid"], *self.layout)

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        if self.shift and generator is not None:
            moves = torch.randint(-self.shift, self.shift + 1, (len(numbers), 2), generator=generator)
            patches = cut(move(self.images.pixels.index_select(0, numbers), moves), *self.patch)
        else:
            patches = self._patches.index_select(0, numbers)
        return Batch(self.graph(pattern), self._normalise(patches), self.images.labels[numbers])

    def prepared(self, pixels: Tensor) -> Tensor:
        """What the model reads of images [B, Y, X], or of colours: patches [B, P, C] of scaled grey values."""
        return (cut(pixels.float(), *self.patch) - self.images.mean) / self.images.deviation

    def _normalise(self, grey: Tensor) -> Tensor:
        # In place, because grey values are never float32 yet: a batch is one pass over memory less.
        return grey.float().sub_(self.images.mean).div_(self.images.deviation)

    def alone(self, model: nn.Module, pattern: Pattern) -> Alone:
        pixels = self.images.pixels[self.splits["valid"][:2]].float()
        name = "pixels" if pixels.ndim == 3 else "colours"
        return Alone(OnPixels(model, self), (self.graph(pattern), pixels), (name,))

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Attention", lambda: [self.attention(model, pattern)])
        yield from super().draw(model, pattern, scores)

    @torch.no_grad()
    def attention(self, model: nn.Module, pattern: Pattern) -> Drawing:
        """The model's last attention on a test image of each class, as far as there is one among the first 64."""
        batch = next(self.batches("test", 64, pattern))
        labels = batch.target.reshape(-1)
        chosen = torch.tensor([int((labels == c).nonzero()[0]) for c in labels.unique().tolist()][:DRAWN])
        outputs, call = last_attention(model, self.graph(pattern), cast(Tensor, batch.x)[chosen])
        predicted, count = self.predicted(outputs.reshape(len(chosen), -1)), len(chosen)
        wrong = (predicted != labels[chosen]).tolist()
        pixels = self.images.pixels[self.images.splits["test"][chosen]].double()
        grey = (greys(pixels) / pixels.max().clamp(min=1)).numpy()
        pairs = [(self.classes[p], self.classes[t]) for p, t in zip(predicted, labels[chosen], strict=True)]
        titles = [p if p == t else f"{p}, not {t}" for p, t in pairs]
        if call is None:
            caption = "Test images and their predicted classes. This model has no attention weights."
            return Drawing("examples", Pictures(grey, titles, wrong), caption)
        weights = matrices(call.graph, call.weights.double().mean(-1))
        ink = cut(pixels, *self.patch).mean(-1).argmax(-1)
        heat = (
            Heat("attention to each patch, mean of all patches", weights.mean(1).reshape(count, *self.layout)),
            Heat(
                "attention of the outlined patch",
                weights[np.arange(count), ink].reshape(count, *self.layout),
                [divmod(patch, self.layout[1]) for patch in ink.tolist()],
            ),
        )
        caption = (
            f"Test images, cut into {self.layout[0]} × {self.layout[1]} patches. The outlined patch has the most ink. "
            "Mean over the heads of the last attention layer."
        )
        return Drawing("attention", Pictures(grey, titles, wrong, heat), caption)

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """Class probabilities of one image: a path to a .npy file or a picture, or a split and a number: "test:7"."""
        return self.predictions(model, pattern, [request], device)[0]

    @torch.no_grad()
    def predictions(
        self, model: nn.Module, pattern: Pattern, requests: Sequence[str], device: Device
    ) -> list[dict[str, Any]]:
        pixels, labels = zip(*map(self.read, requests), strict=True)
        x = self._normalise(cut(torch.stack([one.float() for one in pixels]), *self.patch))
        batch = Batch(self.graph(pattern), x, torch.zeros(len(requests), dtype=torch.long)).to(device)
        logits = batch.read(model.eval()(batch.graph, batch.x)).cpu()
        return [
            {"image": request} | self._named(output, label)
            for request, label, output in zip(requests, labels, logits, strict=True)
        ]

    def _named(self, output: Tensor, label: str | None) -> dict[str, Any]:
        """What the outputs for an image mean, beside its class, where that is known."""
        p = class_probabilities(output, self.images.classes, self.objective)
        return {"class": next(iter(p)), "label": label, "probabilities": p}

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """The class of an image, whose patches are drawn in the colour of their scores: of one that is not cut, its
        pixels."""
        pixels = greys(self.read(request)[0].double())
        grey = (pixels / pixels.max().clamp(min=1)).numpy()[None]
        made, what = super().subject(model, pattern, request), "of the patches"
        rows, columns = self.layout
        if self.layout == (1, 1) and self.images.pixels.ndim == 3:
            (rows, columns), what = self.patch, "of the pixels"
            graph, x = made.inputs
            apart = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), rows * columns)
            made = replace(made, inputs=(apart, x.mT), reads=lambda model: OfFeatures(model, graph))
        names = [f"row {row + 1}, column {column + 1}" for row in range(rows) for column in range(columns)]

        def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
            parts = [(what, nodes)]
            if edges is not None:
                graph = self.graph(pattern)
                sent = torch.zeros(graph.num_senders).index_add(0, graph.senders, edges.float())
                parts.append(("of all that a patch sends", sent))
            caption = f"The image, and the scores {what}."
            heat = [
                Heat(f"scores {part_of}", part.double().numpy().reshape(1, rows, columns)) for part_of, part in parts
            ]
            return [Drawing("explanation", Pictures(grey, ["the image"], [False], heat), caption)]

        return replace(made, names=names, draw=draw, absent="the mean of the pixels that train, everywhere")

    def read(self, request: str) -> tuple[Tensor, str | None]:
        """The grey values [height, width], or colours, that a request names, and their class where it is known."""
        if EXAMPLE.fullmatch(request.strip()):
            number = self.example(request)
            return self.images.pixels[number], self.images.classes[int(self.images.labels[number])]
        return torch.from_numpy(read_image(Path(request), *self.images.pixels.shape[1:])), None


def greys(pixels: Tensor) -> Tensor:
    """Grey values of images, for drawings: of colours [*, 3] the mean."""
    return pixels.mean(-1) if pixels.shape[-1:] == (3,) else pixels


class OnPixels(nn.Module):
    """A model of patches that reads images: scaling and cutting are part of it.

    Shapes      pixels [B, Y, X] -> [B, classes]
    """

    def __init__(self, model: nn.Module, task: ImageClassification) -> None:
        super().__init__()
        self.model, self.prepared, self.signature = model, task.prepared, task.signature

    def forward(self, graph: Graph, pixels: Tensor) -> Tensor:
        return self.model(graph, self.prepared(pixels)).squeeze(-2)


def read_picture(path: Path, colour: Colour, size: int = 0) -> Pixels:
    """The pixels of a picture, uint8 [height, width] or [height, width, 3], as it is to be looked at.

    Symbols     size = height and width of what is read: the picture is scaled until its shorter side has so many
                pixels, and its middle is cut out; 0: it stays as it is
    Errors      DataError: no such file, none of `FORMATS`, damaged, or more than `MAX_PIXELS`; floating numbers, of
                which nothing says what is white, and whole ones beyond 16 bits
    Edge cases  what is transparent is white; 16 bits are scaled to 8, and 32 of a TIFF where one is above 255; of
                several frames the first is read
    """
    from PIL import Image, UnidentifiedImageError

    content = read_bytes(path, MAX_BYTES)
    with reading(path, "a readable picture"), catch_warnings():
        simplefilter("error", Image.DecompressionBombWarning)
        try:
            opened = Image.open(io.BytesIO(content), formats=FORMATS)
        except UnidentifiedImageError as error:  # whose message names an object in memory
            raise DataError(f"{path}: not a readable picture (none of {', '.join(FORMATS)})") from error
        width, height = opened.size
        if width * height > MAX_PIXELS or not width * height:
            raise DataError(f"{path}: {width:,} x {height:,} pixels, of at most {MAX_PIXELS:,}")
        opened.load()
        try:
            return pixels_of(opened, colour, size)
        except ValueError as error:
            raise DataError(f"{path}: {error}") from error


def read_image(path: Path, *shape: int) -> np.ndarray[Any, Any]:
    """Grey values or colours of a .npy array or a picture, as float32.

    Shapes      shape = [height, width], or [height, width, 3] of colours
    Errors      another kind of file, another size, a damaged file, or a value that is no finite number: `DataError`.
    """
    if path.suffix.lower() in ENDINGS:
        pixels: np.ndarray[Any, Any] = read_picture(path, "rgb" if len(shape) > 2 else "grey").astype(np.float32)
    elif path.suffix.lower() == ".npy":
        pixels = _read_npy(path)
    else:
        raise DataError(f"{path}: give a .npy file, a picture, or a split and a number as in 'test:7'")
    if pixels.shape != shape:
        wanted, size = (" x ".join(map(str, one)) for one in (shape, pixels.shape))
        what = "an image in colours" if len(shape) > 2 else "a grey image"
        raise DataError(f"{path}: {what} of {wanted} pixels was expected, this one is {size}")
    if not np.isfinite(pixels).all():
        raise DataError(f"{path}: a value is not a finite number")
    return pixels


def _read_npy(path: Path) -> np.ndarray[Any, Any]:
    read_bytes(path, MAX_BYTES)
    with reading(path, "a numpy array of numbers"):
        # Mapped rather than read, so that a header which promises terabytes allocates none; and never unpickled.
        pixels = np.lib.format.open_memmap(path, mode="r")
        if pixels.dtype.kind not in "buif":
            raise DataError(f"{path}: not a numpy array of real numbers")
        return pixels.astype(np.float32)
