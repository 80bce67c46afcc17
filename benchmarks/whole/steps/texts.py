"""A GPT as nanoGPT writes it, and PyTorch's own transformer on padded batches."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from benchmarks.contenders.gpt import PlainGPT, fill
from benchmarks.whole.steps.peer import Peer, described, forms, turns
from edgewise.tasks.text.language import Text
from edgewise.tasks.text.translation import Translation
from edgewise.training.loop import Trainer

PADDING = -100  # of targets, as PyTorch's cross-entropy leaves it out


def gpt(trainer: Trainer) -> list[Peer]:
    """The GPT of `benchmarks small-gpt`, on windows of the same text."""
    task, size = trainer.task, trainer.settings.batch
    assert isinstance(task, Text)
    generator = torch.Generator().manual_seed(0)
    drawn = [task.train_batch(size, generator) for _ in range(100)]
    windows, targets = (torch.cat([getattr(batch, name) for batch in drawn]) for name in ("x", "target"))

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for numbers in turns(len(windows), size):
            yield windows[numbers], targets[numbers]

    def make() -> nn.Module:
        model = PlainGPT()
        fill(model)
        return model

    def loss(model: Callable[..., Any], batch: tuple[Tensor, Tensor]) -> Tensor:
        tokens, target = batch
        return functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())

    return forms("PyTorch", trainer, make, batches, loss, dynamic=False)


class Translator(nn.Module):
    """nn.Transformer between one embedding for both sides and its transpose, with sinusoidal positions."""

    positions: Tensor

    def __init__(self, tokens: int, longest: int, settings: Any) -> None:
        super().__init__()
        width = settings.width
        self.embed = nn.Embedding(tokens, width)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.transformer = nn.Transformer(
            width, settings.heads, settings.encoder_depth, settings.decoder_depth, 512, settings.dropout,
            batch_first=True, norm_first=True,
        )  # fmt: skip
        angles = torch.arange(longest)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.width, self.dropout = width, nn.Dropout(settings.dropout)

    def embedded(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embed(tokens) * math.sqrt(self.width) + self.positions[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor, padded: Tensor, padded_target: Tensor) -> Tensor:
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        h = self.transformer(
            self.embedded(source), self.embedded(target), tgt_mask=future, src_key_padding_mask=padded,
            tgt_key_padding_mask=padded_target, memory_key_padding_mask=padded,
        )  # fmt: skip
        return functional.linear(h, self.embed.weight)


def translator(trainer: Trainer) -> list[Peer]:
    """nn.Transformer on batches padded to their longest sentences."""
    task, (settings, _), size = trainer.task, described(trainer), trainer.settings.batch
    assert isinstance(task, Translation)
    pairs = task.pairs("train")
    longest = max(len(side) for pair in pairs for side in pair)

    def batches() -> Iterator[tuple[Tensor, ...]]:
        for numbers in turns(len(pairs), size):
            chosen = [pairs[n] for n in numbers.tolist()]
            source = pad_sequence([x for x, _ in chosen], batch_first=True, padding_value=-1)
            read = pad_sequence([y[:-1] for _, y in chosen], batch_first=True, padding_value=-1)
            target = pad_sequence([y[1:] for _, y in chosen], batch_first=True, padding_value=PADDING)
            yield source.clamp(min=0), read.clamp(min=0), source < 0, read < 0, target

    def loss(model: Callable[..., Any], batch: tuple[Tensor, ...]) -> Tensor:
        *read, target = batch
        outputs = model(*read)
        return functional.cross_entropy(outputs.flatten(0, 1), target.flatten(), label_smoothing=task.manner.smoothing)

    tokens = task.tokenizer.size
    return forms("PyTorch", trainer, lambda: Translator(tokens, longest, settings), batches, loss, dynamic=True)
