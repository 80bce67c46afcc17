"""GPT on one page: a graph network on the causal graph, trained to write this very page. The model `transformer` is the
same with every choice left open.

python examples/gpt.py
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from edgewise import Dot, Graph, attend, causal


class Block(nn.Module):
    """X ← X + Attention(LN(X)), then X ← X + MLP(LN(X))"""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projection, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)  # [W_Q ‖ W_K ‖ W_V], W_O
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        q, k, v = self.projection(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)  # each [*, N, H, C]
        x = x + self.output(attend(graph, q, k, v, Dot()).flatten(-2))
        return x + self.down(gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """tokens [*, N] -> logits [*, N, tokens]: what may follow each token, given those before it.

    Reference   Radford et al., "Language models are unsupervised multitask learners", 2019
    """

    def __init__(self, tokens: int, length: int, width: int = 64, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        for weight in (self.embed.weight, self.positions.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        graph = causal(tokens.shape[-1])  # token i attends to the tokens j <= i
        x = self.embed(tokens) + self.positions.weight[: tokens.shape[-1]]
        for block in self.blocks:
            x = block(graph, x)
        y: Tensor = self.norm(x) @ self.embed.weight.T
        return y

    @torch.no_grad()
    def generate(self, tokens: Tensor, steps: int) -> Tensor:
        """Draw `steps` more tokens [N] -> [N + steps]."""
        for _ in range(steps):
            p = self(tokens[-len(self.positions.weight) :])[-1].softmax(-1)
            tokens = torch.cat([tokens, p.multinomial(1)])
        return tokens


def main() -> None:
    torch.manual_seed(0)
    text = torch.tensor(list(Path(__file__).read_bytes()))
    model = GPT(tokens=256, length=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(101):
        windows = text[torch.randint(len(text) - 64, (16, 1)) + torch.arange(65)]
        loss = cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.2f} nats a byte")
    print(bytes(model.generate(text[:40], 100).tolist()).decode(errors="replace"))


if __name__ == "__main__":
    main()
