"""Features of a slide's tiles: a residual network that learns from them without labels, or the user's own extractor."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import DataError, ShapeError
from edgewise.layers import MLP, ResNet
from edgewise.tasks.slides.reader import Layout, Tiling, stream

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
