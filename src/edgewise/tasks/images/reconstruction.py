"""Images given back from a code of a few numbers, judged by the evidence lower bound; new ones from drawn codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.splits import Split
from edgewise.errors import counted
from edgewise.graphs import Graph, complete
from edgewise.models.signature import Features, Latent, latent_model
from edgewise.models.vision.vae import kl_from_normal
from edgewise.tasks.core.abilities import Predicts, Sampling
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Drawing, Output, Pictures, Section
from edgewise.tasks.core.examples import NumberedExamples
from edgewise.tasks.core.task import EXAMPLE, Device, Pattern
from edgewise.tasks.images.classification import Images, read_image
from edgewise.tasks.images.digits import digits
from edgewise.tasks.images.mnist import mnist

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
    maximise = True
    unit = "images"
    files = (".npy", ".png")
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
        """Summed losses as "loss", and how many images as "count"."""
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
        """The code of an image and its bounds: a .npy or grey .png file, or one of the data as in "test:7"."""
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
        latent, generator = latent_model(model.eval()), torch.Generator().manual_seed(sampling.seed)
        dimensions = latent.encode(self.grey(self.splits["train"][:1]).to(device))[0].shape[-1]
        z = torch.randn(sampling.count, dimensions, generator=generator)
        made = latent.decode(z.to(device)).sigmoid().cpu().view(-1, *self.size)
        drawing = _pictures("generated", made, "Images of codes that were drawn at random.")
        values = {"codes": z.tolist(), "pixels": made.tolist()}
        images = counted(sampling.count, "image")
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
