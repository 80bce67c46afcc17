"""A GPT in plain PyTorch, as nanoGPT writes it, and the training step that it shares with Edgewise's transformer.

Fused query-key-value map, scaled_dot_product_attention(is_causal=True), tied embedding. Both models start from the same
weights and read the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.inputs import Inputs, SmallGPT

VOCABULARY, CONTEXT, WIDTH, HEADS, DEPTH, BATCH = 65, 64, 128, 4, 4, 12


def refuses(inputs: Inputs) -> str | None:
    """Takes training steps of the small GPT."""
    return None if isinstance(inputs, SmallGPT) else "takes a small GPT"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """The peer's training step."""
    model = PlainGPT()
    return training_step(model, model)


def exact(steps: int) -> Tensor:
    """The losses of the first steps in float64."""
    model = PlainGPT()
    fill(model)
    step = training_step(model.double(), model, filled=True)
    return torch.tensor([step() for _ in range(steps)], dtype=torch.float64)


class PlainBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.output = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).split(WIDTH, dim=2)
        q, k, v = (t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).contiguous().view(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class PlainGPT(nn.Module):
    """The peer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


def fill(model: nn.Module) -> None:
    """The same numbers for parameters of the same shape in the same order, whatever they are called."""
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.02 if weight.shape[0] != WIDTH else 0.02 / math.sqrt(2), generator=generator)


def training_step(model: nn.Module, logits: Callable[[Tensor], Tensor], *, filled: bool = False) -> Callable[[], float]:
    """Draw a batch of a random text, forward, backward, clip, AdamW: the loss."""
    if not filled:
        fill(model)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), foreach=True)
    generator = torch.Generator().manual_seed(2)
    text = torch.randint(VOCABULARY, (100_000,), generator=generator)

    def step() -> float:
        starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=generator)
        window = text[starts[:, None] + torch.arange(CONTEXT + 1)]
        out = logits(window[:, :-1])
        loss = functional.cross_entropy(out.reshape(-1, VOCABULARY), window[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step
