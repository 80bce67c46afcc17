"""Draws content.svg: who listens to whom on graphs made from content, for 16 tokens of three kinds in random order.

python docs/images/content.py docs/images/content.svg
"""

import sys
from pathlib import Path

import torch
from patterns import CELL, FILL, SIDE, TOP, panel
from torch import Tensor

from edgewise import Graph, blocks, causal, complete
from edgewise.graphs import alike, clusters
from edgewise.layers import AngularHash, sinkhorn

N, BLOCK = 16, 4


def tokens(generator: torch.Generator) -> Tensor:
    """Noisy copies of three directions [1, N, 8]."""
    kinds = torch.randn(3, 8, generator=generator)
    return (kinds[torch.randint(3, (N,), generator=generator)] + 0.4 * torch.randn(N, 8, generator=generator))[None]


def panels() -> dict[str, tuple[Graph, Tensor | None]]:
    """By title: a graph, and for sorted blocks how much of each block is mixed into another."""
    generator = torch.Generator().manual_seed(4)
    x = tokens(generator)
    torch.manual_seed(1)
    hashing = AngularHash(8, buckets=4, rounds=2)
    labels = hashing(x)
    centres = x[0, torch.randperm(N, generator=generator)[:3]]
    near = (centres @ x[0].T)[None]
    scores = 3 * torch.randn(N // BLOCK, N // BLOCK, generator=generator)
    everybody = torch.ones(N // BLOCK, N // BLOCK, dtype=torch.bool)

    def rounds(graph: Graph, chunk: int) -> Graph:
        parts = (labels[:, r : r + 1] for r in range(labels.shape[1]))
        first, second = (alike(graph, part, part, chunk, loops=False).among_nodes(N, N) for part in parts)
        return first.union(second)

    once = alike(complete(N), labels[:, :1], labels[:, :1], chunk=N, loops=False).among_nodes(N, N)
    earlier = causal(N).intersection(blocks(N, BLOCK))
    return {
        "hashing, one round": (once, None),
        "two rounds": (rounds(complete(N), N), None),
        "causal, chunks of 2": (rounds(causal(N), 2), None),
        "clusters of 6": (clusters(complete(N), near, near, 6).among_nodes(N, N), None),
        "sorted blocks": (blocks(N, BLOCK), sinkhorn(scores, everybody, 8)),
        "causal sorted blocks": (earlier, sinkhorn(scores, everybody.tril(-1), 4, past=True)),
    }


def mixed(S: Tensor, left: float, top: float) -> list[str]:
    """The blocks [A, A], the darker the more."""
    side = SIDE / len(S)
    return [
        f'<rect x="{left + b * side:.2f}" y="{top + a * side:.2f}" width="{side - 1:.2f}" height="{side - 1:.2f}" '
        f'fill="#d1495b" fill-opacity="{S[a, b]:.2f}"/>'
        for a, b in (S > 0.02).nonzero().tolist()
    ]


def picture() -> str:
    drawn = panels()
    width, height = len(drawn) * CELL[0] + 16, CELL[1] + TOP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Graphs made from content as matrices: a row for each receiver, a column for each sender</title>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="14" fill="#fff" stroke="#e3e8ee"/>',
    ]
    for column, (title, (graph, S)) in enumerate(drawn.items()):
        left, top = 8 + column * CELL[0] + (CELL[0] - SIDE) / 2, TOP + 8
        frame, *rest = panel(title, graph, left, top)
        out += [frame, *([] if S is None else mixed(S, left, top)), *rest]
    return "\n".join([*out, "</svg>", ""]).replace(f'fill="{FILL}"', f'fill="{FILL}" fill-opacity=".9"')


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
