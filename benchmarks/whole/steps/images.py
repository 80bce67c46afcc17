"""A vision transformer in plain PyTorch, and transformers' own Swin."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.whole.steps.peer import Peer, described, forms, turns
from edgewise.tasks.images.classification import ImageClassification
from edgewise.training.loop import Trainer


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), with batch normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.qkv, self.output = nn.BatchNorm1d(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm_2 = nn.BatchNorm1d(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        qkv = self.qkv(self.norm_1(x.flatten(0, 1)).view(shape)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x.flatten(0, 1)).view(shape))))


class ViT(nn.Module):
    """Patches, learned positions, blocks, and the largest of each channel."""

    def __init__(self, inputs: int, length: int, outputs: int, settings: Any) -> None:
        super().__init__()
        width = settings.width
        self.embed, self.positions = nn.Linear(inputs, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width, settings.heads) for _ in range(settings.depth))
        self.norm, self.head = nn.BatchNorm1d(width), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h.flatten(0, 1)).view(h.shape).amax(1))


def _batches(trainer: Trainer, made: Callable[[Tensor], Tensor]) -> Callable[[], Iterator[tuple[Tensor, Tensor]]]:
    """Images as the model reads them, made once and left where they are, and their labels."""
    task = trainer.task
    assert isinstance(task, ImageClassification)
    train = task.splits["train"]
    x, labels = made(task.images.pixels[train]), task.images.labels[train]

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for numbers in turns(len(train), trainer.settings.batch):
            yield x[numbers], labels[numbers]

    return batches


def _loss(model: Callable[..., Any], batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def vision_transformer(trainer: Trainer) -> list[Peer]:
    """ViT with SDPA on patches that are all made before the first step."""
    task, (settings, signature) = trainer.task, described(trainer)
    assert isinstance(task, ImageClassification)

    def make() -> nn.Module:
        return ViT(signature.inputs, signature.length, signature.outputs, settings)

    return forms("PyTorch", trainer, make, _batches(trainer, task.prepared), _loss, dynamic=False)


class Swin(nn.Module):
    """transformers' SwinModel with its own mean pooling, and a linear map."""

    def __init__(self, rows: int, patch: int, outputs: int, settings: Any) -> None:
        super().__init__()
        from transformers import SwinConfig, SwinModel

        config = SwinConfig(
            image_size=rows, patch_size=patch, num_channels=1, embed_dim=settings.width, depths=list(settings.depths),
            num_heads=list(settings.heads), window_size=settings.window, mlp_ratio=float(settings.hidden),
            drop_path_rate=0.0,
        )  # fmt: skip
        self.model = SwinModel(config)
        self.head = nn.Linear(self.model.num_features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.model(x).pooler_output)


def swin(trainer: Trainer) -> list[Peer]:
    """Swin on images that are scaled before the first step; they are not moved, as those of Edgewise are."""
    task, (settings, signature) = trainer.task, described(trainer)
    assert isinstance(task, ImageClassification)
    rows, patch = task.images.pixels.shape[-1], task.patch[0]
    mean, deviation = task.images.mean, task.images.deviation

    def make() -> nn.Module:
        return Swin(rows, patch, signature.outputs, settings)

    batches = _batches(trainer, lambda pixels: (pixels.unsqueeze(1).float() - mean) / deviation)
    return forms("transformers", trainer, make, batches, _loss, dynamic=False)
