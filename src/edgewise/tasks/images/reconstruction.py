"""Images given back: from a code of a few numbers, judged by the evidence lower bound, or by a memory of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.splits import Split
from edgewise.errors import ConfigError, counted
from edgewise.graphs import Graph, complete
from edgewise.models.signature import Features, Latent, latent_model
from edgewise.models.text.sampling import COUNT, Sampling
from edgewise.models.vision.vae import kl_from_normal
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Drawing, Output, Pictures, Section
from edgewise.tasks.core.task import EXAMPLE, Device, NumberedExamples, Pattern, check_range
from edgewise.tasks.images.classification import ENDINGS, Images, read_image
from edgewise.tasks.images.digits import digits, mnist

SAMPLES = 64  # codes of an image, for its bound
DRAWN, SIDE = 8, 15  # images in a row of a report, and images on a side of its map
WIDE = 2.0  # standard deviations that the map shows


class ImageReconstruction(NumberedExamples, Predicts):
    """Give back images [B, 1, pixels] of grey values from 0 to 1, through a code of a few numbers.

    Equation    loss = −1/B Σ_b Σ_n x_n log p_n + (1 − x_n) log(1 − p_n), to which the model adds its KL;
                elbo = 1/B Σ_b E_q[log p(x | z)] − KL[q(z | x) ‖ N(0, I)],
                likelihood = 1/B Σ_b log 1/K Σ_k p(x | z_k) p(z_k) / q(z_k | x), z_k ~ q: elbo ≤ likelihood ≤ log p(x)
    Symbols     p = sigmoid of the outputs; K = 64 codes, drawn by a seed
    Errors      ConfigError for a model without codes
    Edge cases  both in nats per image. The loss of an evaluation is that of the mean code, without the KL
    Reference   Kingma & Welling, 2014; Burda, Grosse & Salakhutdinov, "Importance weighted autoencoders", 2016
    """

    metric = "elbo"
    unit = "images"
    files = (".npy", *ENDINGS)
    generates = "--count 10"

    def __init__(self, name: str, images: Images) -> None:
        self.name, self.images, self.splits = name, images, images.splits
        self.size = (int(images.pixels.shape[1]), int(images.pixels.shape[2]))
        self.largest = float(images.pixels.max().clamp(min=1))
        pixels = self.size[0] * self.size[1]
        self.signature = Features(pixels, pixels, length=1, whole_graph=True, classes=False)
        self.epoch_size = len(images.splits["train"])
        self.contents = f"{self.size[0]} × {self.size[1]} pixels, images"

    def graph(self, pattern: Pattern = None) -> Graph:
        """One node, which has all pixels."""
        return self.laid(pattern, complete, 1)

    def grey(self, numbers: Tensor) -> Tensor:
        """Images by their numbers, from 0 to 1: [B, pixels]."""
        return self.images.pixels.index_select(0, numbers).float().flatten(1) / self.largest

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        x = self.grey(numbers)[:, None]
        return Batch(self.graph(pattern), x, x)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return -log_likelihood(outputs, batch.target).mean()

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        losses = -log_likelihood(outputs.detach(), batch.target).double()
        return {"loss": losses.sum(), "count": torch.tensor(float(losses.numel()), dtype=torch.float64)}

    @torch.no_grad()
    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: Device) -> dict[str, float]:
        """The ELBO and the importance-weighted bound of a split, in nats per image."""
        latent, sums = latent_model(model), torch.zeros(2, dtype=torch.float64)
        generator = torch.Generator().manual_seed(0)
        for numbers in self.splits[split].split(256):
            sums += torch.stack(bounds(latent, self.grey(numbers).to(device), generator)).double().sum(-1).cpu()
        elbo, likelihood = (sums / len(self.splits[split])).tolist()
        return {"elbo": elbo, "likelihood": likelihood}

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        latent = latent_model(model)
        yield Section("The space of codes", lambda: self.map(latent))
        yield Section("Images given back", lambda: self.given_back(latent))

    @torch.no_grad()
    def map(self, model: Latent) -> list[Drawing]:
        """What lies in the first two dimensions of the space, and between two test images."""
        x = self.grey(self.splits["test"])
        mean, _ = model.encode(x)
        steps = torch.linspace(-WIDE, WIDE, SIDE)
        z = mean.new_zeros(SIDE, SIDE, mean.shape[-1])
        z[..., 0] = steps
        if mean.shape[-1] > 1:
            z[..., 1] = -steps[:, None]
        tiles = model.decode(z).sigmoid().view(SIDE, SIDE, *self.size).transpose(1, 2)
        whole = tiles.reshape(1, SIDE * self.size[0], SIDE * self.size[1])
        labels = self.images.labels[self.splits["test"]]
        first = mean[(labels == labels.min()).nonzero()[0]]
        last = mean[(labels == labels.max()).nonzero()[0]]
        way = torch.linspace(0, 1, DRAWN)[:, None]
        between = model.decode(first * (1 - way) + last * way).sigmoid().view(-1, *self.size)
        words = f"What the decoder makes of codes: two dimensions, from −{WIDE:g} to {WIDE:g}; the others are 0."
        return [
            _pictures("codes", whole, words),
            _pictures("between", between, "From the code of one test image to that of another, in a straight line."),
        ]

    @torch.no_grad()
    def given_back(self, model: Latent) -> list[Drawing]:
        """The first test images, and what the decoder makes of the mean of their codes."""
        x = self.grey(self.splits["test"][:DRAWN])
        given = model.decode(model.encode(x)[0]).sigmoid()
        return [
            _pictures("images", x.view(-1, *self.size), "Test images."),
            _pictures("given-back", given.view(-1, *self.size), "What is left of these through the code."),
        ]

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The code of an image and its bounds: a .npy file or a picture, or one of the data as in "test:7"."""
        x = self.read(request)[None].to(device)
        latent = latent_model(model.eval())
        mean, log_variance = latent.encode(x)
        elbo, likelihood = bounds(latent, x, torch.Generator().manual_seed(0))
        deviation = (log_variance / 2).exp()
        code = {"code": mean[0].tolist(), "deviation": deviation[0].tolist()}
        given = latent.decode(mean).sigmoid()[0].view(self.size).tolist()
        return {"image": request} | code | {"elbo": elbo.item(), "likelihood": likelihood.item(), "pixels": given}

    def read(self, request: str) -> Tensor:
        """The grey values that a request names, from 0 to 1: [pixels]."""
        if EXAMPLE.fullmatch(request.strip()):
            return self.grey(self.example(request)[None])[0]
        grey = torch.from_numpy(read_image(Path(request), *self.size)).flatten()
        return (grey / max(self.largest, float(grey.max()))).clamp(0, 1)

    @torch.no_grad()
    def generate(self, model: nn.Module, pattern: Pattern, sampling: Sampling, device: Device) -> Output:
        """Images of codes from the standard normal distribution, by the seed."""
        sampling.only("images", "count", "seed")
        latent, generator = latent_model(model.eval()), torch.Generator().manual_seed(sampling.seed)
        count = sampling.count or COUNT
        dimensions = latent.encode(self.grey(self.splits["train"][:1]).to(device))[0].shape[-1]
        z = torch.randn(count, dimensions, generator=generator)
        made = latent.decode(z.to(device)).sigmoid().cpu().view(-1, *self.size)
        drawing = _pictures("generated", made, "Images of codes that were drawn at random.")
        values = {"codes": z.tolist(), "pixels": made.tolist()}
        images = counted(count, "image")
        return Output(values, {"generated": drawing}, f"{images} of {self.size[0]} × {self.size[1]} pixels")


def log_likelihood(outputs: Tensor, target: Tensor) -> Tensor:
    """log p(x | z) of images by logits: [*, pixels], [*, pixels] -> [*].

    Example
        >>> log_likelihood(torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 0.5]])) / torch.tensor(2.0).log()
        tensor([-3.])
    """
    return -functional.binary_cross_entropy_with_logits(outputs, target, reduction="none").sum(-1)


def bounds(model: Latent, x: Tensor, generator: torch.Generator, samples: int = SAMPLES) -> tuple[Tensor, Tensor]:
    """The ELBO and the importance-weighted bound of images [B, pixels], in nats: [B] each.

    Equation    ELBO = 1/K Σ_k log p(x | z_k) − KL[q ‖ N(0, I)];  log 1/K Σ_k p(x | z_k) p(z_k) / q(z_k | x),  z_k ~ q
    """
    mean, log_variance = model.encode(x)
    noise = torch.randn(samples, *mean.shape, generator=generator).to(x)
    z = mean + (log_variance / 2).exp() * noise
    fit = log_likelihood(model.decode(z), x.expand(samples, *x.shape))
    ratio = (noise.square() + log_variance - z.square()).sum(-1) / 2  # log p(z) − log q(z | x)
    weighted = (fit + ratio).logsumexp(0) - torch.tensor(float(samples)).log()
    return fit.mean(0) - kl_from_normal(mean, log_variance), weighted


def _pictures(name: str, grey: Tensor, words: str) -> Drawing:
    images = grey.double().cpu().numpy()
    return Drawing(name, Pictures(images, [""] * len(images), [False] * len(images)), words)


def digits_reconstruction(seed: int = 0) -> ImageReconstruction:
    """Give back handwritten digits of 8 x 8 pixels through a code of a few numbers.

    Reference   Alpaydin and Kaynak 1998, as distributed with scikit-learn

    Args:
        seed: Chooses the split, which is that of `digits`.

    Example
        >>> task = digits_reconstruction()
        >>> task.signature.inputs, task.epoch_size
        (64, 1297)
    """
    return ImageReconstruction("digits", digits(patch=0, seed=seed).images)


def mnist_reconstruction(folder: str | None = None, download: bool = False) -> ImageReconstruction:
    """Give back handwritten digits of 28 x 28 pixels through a code of a few numbers; the split is that of `mnist`.

    Reference   LeCun, Bottou, Bengio and Haffner 1998. Licence: CC BY-SA 3.0

    Args:
        folder: Where the four IDX files lie, gzipped or not (default: mnist in $EDGEWISE_DATA, then the cache).
        download: Fetch what is missing, over TLS and verified by its hash.

    Errors      those of `mnist`
    """
    return ImageReconstruction("mnist", mnist(folder=folder, download=download).images)


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
    unit = "images"
    files = (".npy", *ENDINGS)

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
        rows = (
            ("stored", batch.target, "Images that were stored."),
            ("damaged", self.damaged("test")[:DRAWN, None], "The same, damaged as the test images are."),
            ("recalled", given, "What the memory gives back of these."),
        )
        drawn = []
        for name, images, words in rows:
            wrong = [name == "recalled" and bad for bad in (images != batch.target).flatten(1).any(1).tolist()]
            pixels = (images.reshape(-1, *self.size).double().numpy() + 1) / 2
            drawn.append(Drawing(name, Pictures(pixels, ["wrong" if bad else "" for bad in wrong], wrong), words))
        return drawn

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """What is given back of an image: a .npy file or a picture, or a damaged one of the data: "test:7"."""
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
