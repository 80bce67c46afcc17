"""The peer of `shakespeare-gpt`: a GPT of nanoGPT's description in plain PyTorch, and its training step.

Pre-norm blocks without biases; one map for query, key and value; causal scaled_dot_product_attention; a GELU network
four times as wide; learned positions; the token embedding tied to the output; AdamW with decay on matrices, gradients
clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """Of nanoGPT's Shakespeare for a GPU."""

    depth: int = 6
    heads: int = 6
    width: int = 384
    context: int = 256
    batch: int = 64
    vocabulary: int = 65
    dropout: float = 0.2


class Block(nn.Module):
    """x + attention(norm(x)), then x + network(norm(x))."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, self.heads, self.p = sizes.width, sizes.heads, sizes.dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.ends, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.ends(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # [B, H, T, C]
        p = self.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True).transpose(1, 2).flatten(2)
        x = x + functional.dropout(self.out(y), self.p, self.training)
        y = self.down(functional.gelu(self.up(self.norms[1](x))))
        return x + functional.dropout(y, self.p, self.training)


class GPT(nn.Module):
    """Tokens [B, T] and the next ones -> their mean loss."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.p = sizes.dropout
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Parameter(0.02 * torch.randn(sizes.context, sizes.width))
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(sizes.width, bias=False)
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        x = functional.dropout(self.tokens(tokens) + self.positions[: tokens.shape[1]], self.p, self.training)
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def training_step(
    sizes: Sizes, text: Tensor, device: str, compiler: str, mode: str | None = None
) -> Callable[[], Tensor]:
    """Draw a batch, forward, backward, clip, AdamW; the loss stays on the device."""
    model = GPT(sizes).to(device)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    loss_of = torch.compile(model, mode=mode) if mode else torch.compile(model, backend=compiler)
    windows = text.unfold(0, sizes.context + 1, 1)

    def step() -> Tensor:
        batch = windows[torch.randint(len(windows), (sizes.batch,))].long()
        if device == "cuda":
            batch = batch.pin_memory().to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach().clone()  # as CUDA graphs write over it

    return step
