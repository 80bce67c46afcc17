"""Recall: images in black and white are stored, and given back from damaged ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgewise.data.splits import Split
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, complete
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Drawing, Pictures, Section
from edgewise.tasks.core.task import Device, Pattern, check_range
from edgewise.tasks.images.classification import Images, read_image
from edgewise.tasks.images.digits import digits

DRAWN = 8  # images in a report


class Recall(Predicts):
    """Give back stored images from damaged ones: P images of ±1 are stored together, at every step of training.

    Equation    recalled = 1/B Σ_b [ŷ_b = x_b], units = the same over single pixels; damaged: a share of the pixels is
                turned over at random ("noise"), or the rows of the lower part are empty ("cover")
    Symbols     x_b = the stored image, ŷ_b = what is given back of it; ink = +1, empty = −1
    Shapes      x, target [B, 1, pixels]
    Errors      ConfigError for less than one image, or more than there are; for a share outside 0 to 1
    Edge cases  the loss has no gradient of its own: what a memory lowers is its energy. Damage that validates and tests
                is drawn once, from different seeds
    Reference   Hopfield, 1982
    """

    metric = "recalled"
    maximise = True
    unit = "images"
    files = (".npy", ".png")

    def __init__(
        self, name: str, images: Images, patterns: int, damage: Literal["noise", "cover"], share: float
    ) -> None:
        grey = images.pixels[images.splits["train"]]
        check_range(1, len(grey), patterns=patterns)
        check_range(0, 1, share=share)
        if damage not in ("noise", "cover"):
            raise ConfigError(f"unknown damage {damage!r}; known are noise, cover")
        self.name, self.damage, self.share, self.size = name, damage, share, tuple(grey.shape[1:])
        self.stored = _signs(grey[_spread(images.labels[images.splits["train"]])[:patterns]].float())
        self.signature = Features(self.stored.shape[1], self.stored.shape[1], length=1, whole_graph=True, classes=False)
        self.epoch_size, self.splits = patterns, {split: range(patterns) for split in ("train", "valid", "test")}
        self.contents = f"{self.size[0]} × {self.size[1]} pixels, damaged by {damage} of {share:g}, images"

    def graph(self, pattern: Pattern = None) -> Graph:
        """One node, which has all pixels."""
        return self.laid(pattern, complete, 1)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """All images that are to be stored, whatever the size."""
        return self._batch(self.stored, self.stored, pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        damaged = self.damaged(split)
        for first in range(0, len(self.stored), size):
            part = slice(first, first + size)
            yield self._batch(damaged[part], self.stored[part], pattern)

    def damaged(self, split: Split) -> Tensor:
        """The images of a split as a memory reads them [P, pixels]; those of "train" are whole."""
        if split == "train":
            return self.stored
        if self.damage == "cover":
            height, width = self.size
            covered = torch.arange(height * width) >= round((1 - self.share) * height) * width
            return torch.where(covered, -torch.ones(()), self.stored)
        generator = torch.Generator().manual_seed(0 if split == "valid" else 1)
        turned = torch.rand(self.stored.shape, generator=generator) < self.share
        return torch.where(turned, -self.stored, self.stored)

    def _batch(self, x: Tensor, target: Tensor, pattern: Pattern) -> Batch:
        return Batch(self.graph(pattern), x[:, None], target[:, None])

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The share of wrong pixels."""
        return (outputs.sign() != batch.target).to(outputs).mean()

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Sums over the images: wrong pixels as "loss", right ones as "units", images without a wrong one."""
        right = (outputs.detach().sign() == batch.target).double().flatten(1)
        units = right.mean(1)
        scores = {"loss": (1 - units).sum(), "units": units.sum(), "recalled": (units == 1).double().sum()}
        return scores | {"count": torch.tensor(float(len(units)), dtype=torch.float64, device=units.device)}

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Recall", lambda: self.recalled(model, pattern))

    @torch.no_grad()
    def recalled(self, model: nn.Module, pattern: Pattern) -> list[Drawing]:
        """The first images as they were stored, damaged and given back."""
        batch = self._batch(self.damaged("test")[:DRAWN], self.stored[:DRAWN], pattern)
        given = model.eval()(batch.graph, batch.x)
        wrong = (given != batch.target).flatten(1).any(1).tolist()
        rows = (
            ("stored", batch.target, "Images that were stored.", [False] * len(wrong)),
            (
                "damaged",
                self.damaged("test")[:DRAWN],
                "The same, damaged as the test images are.",
                [False] * len(wrong),
            ),
            ("recalled", given, "What the memory gives back of these.", wrong),
        )
        drawn = []
        for name, images, words, faults in rows:
            pixels = (images.reshape(-1, *self.size).double().numpy() + 1) / 2
            drawn.append(Drawing(name, Pictures(pixels, ["wrong" if bad else "" for bad in faults], faults), words))
        return drawn

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """What is given back of an image: a .npy or grey .png file, or a damaged one of the data: "test:7"."""
        named = request.strip()
        if named.lower().endswith(self.files):
            x, number = _signs(torch.from_numpy(read_image(Path(named), *self.size))[None])[0], None
        else:
            number = int(self.example(named))
            x = self.damaged("test" if named.startswith("test") else "valid")[number]
        batch = self._batch(x[None], x[None], pattern).to(device)
        given = model.eval()(batch.graph, batch.x).cpu()[0, 0]
        nearest = int((self.stored @ given).argmax())
        exact = bool((self.stored[nearest] == given).all())
        rows = ["".join("#" if pixel > 0 else "." for pixel in row) for row in given.view(self.size).tolist()]
        return {"image": named, "stored": number, "recalled": nearest if exact else None, "pixels": rows}


def _signs(grey: Tensor) -> Tensor:
    """+1 where a pixel of an image [M, Y, X] is above half its largest one, else −1: [M, Y X]."""
    flat = grey.flatten(1)
    return torch.where(flat > flat.amax(1, keepdim=True) / 2, 1.0, -1.0)


def _spread(labels: Tensor) -> Tensor:
    """The images in an order that takes one of each class after the other."""
    turn = torch.zeros(len(labels), dtype=torch.int64)
    for label in labels.unique().tolist():
        own = labels == label
        turn[own] = torch.arange(int(own.sum()))
    return (turn * (int(labels.max()) + 1) + labels).argsort(stable=True)


def digits_recall(
    patterns: int = 50, damage: Literal["noise", "cover"] = "noise", share: float = 0.1, seed: int = 0
) -> Recall:
    """Store handwritten digits of 8 x 8 pixels, black and white, and give them back from damaged ones.

    A pixel has ink where it is more than half as strong as the image's strongest one. The digits are training images of
    `digits`, one of each class after the other.

    Reference   Hopfield, 1982; Alpaydin and Kaynak 1998, as distributed with scikit-learn (data)

    Args:
        patterns: How many are stored, the first ones.
        damage: "noise" turns pixels over; "cover" empties the lower rows.
        share: Share of the pixels, or of the rows, that is damaged.
        seed: Chooses the split of `digits`, and so the images.

    Example
        >>> task = digits_recall(patterns=3)
        >>> batch = task.train_batch(1, torch.Generator())
        >>> batch.x.shape, sorted(set(batch.x.flatten().tolist()))
        (torch.Size([3, 1, 64]), [-1.0, 1.0])
    """
    return Recall("digits to recall", digits(patch=0, seed=seed).images, patterns, damage, share)
