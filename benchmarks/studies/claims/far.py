"""A transformer against an LSTM of as many parameters and as many seconds: copying over a distance, and characters.

python -m benchmarks.studies.claims.far

Copying: eight letters, then noise, then eight blanks in whose places the letters are due; the longer the text, the
more tokens lie between. The share of right letters on 512 new texts, where a guess is 1/8. Characters: the validation
loss on Shakespeare in windows of 64. Both networks have the rate of their recipes on Shakespeare, 0.004, which rises
over the first twentieth of the time and falls along a cosine; one thread, seed 0; the weights are the last.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.studies.training import learn, parameters
from edgewise import causal
from edgewise.models import Recurrent, RecurrentSettings, Tokens, Transformer, TransformerSettings
from edgewise.tasks import text

LENGTHS, COPY_SECONDS, TEXT_SECONDS, BATCH, SEED = (32, 96, 256), 25.0, 40.0, 16, 0
LETTERS, NOISE, DUE = 8, 8, 8
VOCABULARY = LETTERS + NOISE + 1
Batch = tuple[Tensor, Tensor, Tensor]  # tokens, targets, and how much each position counts


def transformer(width: int) -> Callable[[Tokens], nn.Module]:
    settings = TransformerSettings(width=width, depth=2, heads=4, positions="sinusoidal")
    return lambda tokens: Transformer(settings, tokens)


def lstm(width: int) -> Callable[[Tokens], nn.Module]:
    return lambda tokens: Recurrent(RecurrentSettings(cell="lstm", width=width), tokens)


# As many parameters, within 5 %.
COPIERS = {"transformer": transformer(48), "LSTM": lstm(83)}
WRITERS = {"transformer": transformer(96), "LSTM": lstm(163)}


def copying(length: int, batch: int, generator: torch.Generator) -> Batch:
    """Letters, noise, blanks; the letters are due at the blanks."""
    letters = torch.randint(LETTERS, (batch, DUE), generator=generator)
    noise = LETTERS + torch.randint(NOISE, (batch, length - 2 * DUE), generator=generator)
    blanks = torch.full((batch, DUE), VOCABULARY - 1)
    targets = torch.cat([torch.zeros(batch, length - DUE, dtype=torch.int64), letters], 1)
    counts = torch.arange(length).expand(batch, -1) >= length - DUE
    return torch.cat([letters, noise, blanks], 1), targets, counts


def loss(model: nn.Module, batch: Batch) -> Tensor:
    tokens, targets, counts = batch
    return functional.cross_entropy(model(causal(tokens.shape[1]), tokens)[counts], targets[counts])


@torch.no_grad()
def copied(model: nn.Module, length: int) -> float:
    """The share of letters that are copied right, on texts that were not trained on."""
    generator = torch.Generator().manual_seed(10_000 + SEED)
    right = []
    for _ in range(512 // BATCH):
        tokens, targets, counts = copying(length, BATCH, generator)
        right.append(model(causal(length), tokens)[counts].argmax(-1) == targets[counts])
    return torch.cat(right).double().mean().item()


def copies(kind: str, length: int, seconds: float = COPY_SECONDS) -> dict[str, float]:
    torch.manual_seed(SEED)
    model = COPIERS[kind](Tokens(VOCABULARY, VOCABULARY, length=length))
    steps = learn(model, lambda generator: loss(model, copying(length, BATCH, generator)), seconds)
    return {"accuracy": copied(model, length), "steps": steps, "parameters": parameters(model)}


def writes(kind: str, seconds: float = TEXT_SECONDS) -> dict[str, float]:
    """The validation loss on Shakespeare's characters."""
    torch.manual_seed(SEED)
    task = text("shakespeare", context=64)
    model = WRITERS[kind](cast(Tokens, task.signature))

    def batches(generator: torch.Generator) -> Batch:
        drawn = task.train_batch(BATCH, generator)
        tokens = cast(Tensor, drawn.x)
        return tokens, drawn.target, torch.ones_like(tokens, dtype=torch.bool)

    steps = learn(model, lambda generator: loss(model, batches(generator)), seconds)
    total = 0.0
    with torch.no_grad():
        parts = list(task.batches("valid", 128))
        for part in parts:
            total += functional.cross_entropy(part.read(model(*part.inputs)), part.target.flatten()).item()
    return {"loss": total / len(parts), "steps": steps, "parameters": parameters(model)}


Table = dict[str, list[dict[str, float]]]


def measure(seconds: tuple[float, float] = (COPY_SECONDS, TEXT_SECONDS)) -> tuple[Table, Table]:
    """What each kind copies at each length, and what it reaches on characters."""
    found: tuple[Table, Table] = ({}, {})
    print(f"| network | parameters | {' | '.join(f'{n} tokens' for n in LENGTHS)} | parameters | characters |")
    print(f"|---{'|---' * (len(LENGTHS) + 3)}|", flush=True)
    for kind in COPIERS:
        own = [copies(kind, n, seconds[0]) for n in LENGTHS]
        characters = writes(kind, seconds[1])
        found[0][kind], found[1][kind] = own, [characters]
        cells = " | ".join(f"{100 * one['accuracy']:.1f} % ({one['steps']:.0f} steps)" for one in own)
        first = f"| {kind} | {own[-1]['parameters']:,.0f} | {cells} | {characters['parameters']:,.0f} "
        print(f"{first}| {characters['loss']:.3f} ({characters['steps']:.0f} steps) |", flush=True)
    return found


def main() -> None:
    torch.set_num_threads(1)
    measure()


if __name__ == "__main__":
    main()
