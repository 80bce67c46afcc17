"""Normalisation in front of a stage or behind it, over depth, with warm-up and without: which transformers learn?

python -m benchmarks.studies.claims.norms

Transformers of 2 to 24 blocks (width 32, 2 heads, rotary positions) guess Shakespeare's next character in texts of 32:
200 steps of Adam at a rate of 0.002, from Xavier's weights, as the first transformer had them; with warm-up the rate
rises over the first 100 steps. Then post-norm blocks without warm-up once more, from the weights that Edgewise draws as
GPT-2 does: a deviation of 0.02, for the last map of each stage divided by √(2 depth). Validation loss in nats per
character on 2,560 texts, the mean of seeds 0 to 2.
"""

from dataclasses import dataclass
from itertools import islice
from typing import cast

import torch
from torch import nn

from edgewise.configuration import Choice
from edgewise.models import Tokens, Transformer, TransformerSettings
from edgewise.tasks import Text, text

DEPTHS, STEPS, WARMUP, SEEDS = (2, 6, 12, 24), 200, 100, 3
RATE, BATCH, WIDTH, HEADS, CONTEXT = 0.002, 16, 32, 2, 32
FREQUENCIES = 3.35  # the loss of the characters' frequencies alone


@dataclass(frozen=True)
class Way:
    """A block, warm-up or none, and how weights are drawn."""

    block: str
    warmup: bool
    xavier: bool = True


WAYS = {
    "post-norm": Way("post-norm", False),
    "post-norm, warm-up": Way("post-norm", True),
    "pre-norm": Way("pre-norm", False),
    "pre-norm, warm-up": Way("pre-norm", True),
    "post-norm, small weights": Way("post-norm", False, xavier=False),
}


def network(way: Way, depth: int, task: Text) -> Transformer:
    block = Choice(way.block, {"norm": "layer"})
    settings = TransformerSettings(width=WIDTH, depth=depth, heads=HEADS, positions="rotary", block=block)
    model = Transformer(settings, cast(Tokens, task.signature))
    if way.xavier:
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
    return model


@torch.no_grad()
def loss(model: Transformer, task: Text) -> float:
    """The mean over the first validation texts."""
    parts = list(islice(task.batches("valid", 128), 20))
    return sum(task.loss(model(*part.inputs), part).item() for part in parts) / len(parts)


def one(way: Way, depth: int, steps: int = STEPS, seeds: int = SEEDS) -> dict[str, float]:
    task, found = text("shakespeare", context=CONTEXT), []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model, generator = network(way, depth, task), torch.Generator().manual_seed(seed)
        optimizer = torch.optim.Adam(model.parameters(), RATE)
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, (step + 1) / (WARMUP + 1)) if way.warmup else RATE
            batch = task.train_batch(BATCH, generator)
            optimizer.zero_grad()
            task.loss(model(*batch.inputs), batch).backward()
            optimizer.step()
        found.append(loss(model.eval(), task))
    return {"loss": sum(found) / seeds, "least": min(found), "most": max(found)}


Table = dict[str, list[dict[str, float]]]


def measure(depths: tuple[int, ...] = DEPTHS, steps: int = STEPS, seeds: int = SEEDS) -> Table:
    print(f"| blocks | {' | '.join(map(str, depths))} |\n|---{'|---' * len(depths)}|", flush=True)
    table: Table = {}
    for name, way in WAYS.items():
        table[name] = [one(way, depth, steps, seeds) for depth in depths]
        cells = " | ".join(f"{own['loss']:.2f} ({own['least']:.2f} to {own['most']:.2f})" for own in table[name])
        print(f"| {name} | {cells} |", flush=True)
    return table


def main() -> None:
    torch.set_num_threads(1)
    measure()


if __name__ == "__main__":
    main()
