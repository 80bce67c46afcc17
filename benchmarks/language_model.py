"""Edgewise's transformer beside a GPT in plain PyTorch: 4 layers, 4 heads, width 128, context 64, batch 12.

The peer is written as nanoGPT writes it: fused query-key-value map, scaled_dot_product_attention(is_causal=True), tied
embedding. Both start from the same weights and read the same batches; their losses are compared before their times.

    python benchmarks/language_model.py
"""

from __future__ import annotations

import math

import torch
from harness import Step, race, report
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, CONTEXT, WIDTH, HEADS, DEPTH, BATCH = 65, 64, 128, 4, 4, 12


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


def _ours() -> nn.Module:
    from edgewise.models import Signature, Transformer, TransformerSettings

    settings = TransformerSettings(width=WIDTH, depth=DEPTH, heads=HEADS, bias=False, tied=True)
    return Transformer(settings, Signature(VOCABULARY, VOCABULARY, tokens=True, length=CONTEXT))


def _fill(model: nn.Module) -> None:
    """The same numbers for parameters of the same shape in the same order, whatever they are called."""
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.02 if weight.shape[0] != WIDTH else 0.02 / math.sqrt(2), generator=generator)


def _step(model: nn.Module, logits: object) -> Step:
    _fill(model)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), foreach=True)
    generator = torch.Generator().manual_seed(2)
    text = torch.randint(VOCABULARY, (100_000,), generator=generator)

    def step() -> float:
        starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=generator)
        window = text[starts[:, None] + torch.arange(CONTEXT + 1)]
        out = logits(window[:, :-1])  # type: ignore[operator]
        loss = functional.cross_entropy(out.reshape(-1, VOCABULARY), window[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def plain() -> Step:
    """The peer's training step."""
    model = PlainGPT()
    return _step(model, model)


def edgewise() -> Step:
    """The same step with Edgewise's model on the causal graph."""
    from edgewise import causal

    model, graph = _ours(), causal(CONTEXT)
    return _step(model, lambda tokens: model(graph, tokens))


if __name__ == "__main__":
    timings = race({"edgewise": edgewise, "plain PyTorch": plain})
    difference = max(abs(a - b) for a, b in zip(timings[0].losses, timings[1].losses, strict=True))
    print(f"largest difference between the two loss curves: {difference:.1e}")
    report(f"GPT, {DEPTH} layers, width {WIDTH}, context {CONTEXT}, batch {BATCH}: a training step", timings)
