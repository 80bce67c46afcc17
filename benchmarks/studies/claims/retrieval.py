"""Seven attentions and an LSTM look things up in long texts: what is right, and what a step costs, over the length.

python -m benchmarks.studies.claims.retrieval

Eight pairs of a key and a value lie anywhere in noise; the last 16 tokens ask for keys, and the value of each is due. A
guess is 1/8. One block of width 32 with 2 heads, or an LSTM of one layer, learns it on short texts first, then on
longer ones, up to 8,192 tokens; no positions, three seeds, one thread. Then the right values on 64 new texts of each
length, and the seconds and memory of a step, forward and backward, on one text.
"""

import math
import subprocess
import sys
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.memory import MEGABYTE, peak_above
from benchmarks.studies.training import parameters
from edgewise import causal
from edgewise.configuration import Choice
from edgewise.graphs import Graph
from edgewise.graphs.patterns import window
from edgewise.models import Recurrent, RecurrentSettings, Tokens, Transformer, TransformerSettings

LENGTHS, SEEDS, TEXTS = (256, 1_024, 4_096, 8_192), (20, 21, 22), 64
KEYS, VALUES, NOISE, ASKED = 8, 8, 8, 16
PAIRS = KEYS * VALUES
VOCABULARY = PAIRS + KEYS + NOISE
RADIUS = 256
# Tokens, texts in a batch, steps.
STAGES = ((32, 32, 600), (128, 16, 200), (512, 8, 100), (2_048, 4, 40), (8_192, 2, 40))


@dataclass(frozen=True)
class Way:
    """The attention, or none for the LSTM; the rate of AdamW, chosen on texts of seed 0; the graph."""

    attention: Choice | str
    rate: float
    windowed: bool = False

    def graph(self, length: int) -> Graph:
        return window(length, RADIUS, sides="past") if self.windowed else causal(length)


WAYS = {
    "full": Way("softmax", 0.01),
    "window": Way("softmax", 0.01, windowed=True),
    "LSH": Way(Choice("lsh", {"chunk": 64, "buckets": 32, "rounds": 2}), 0.01),
    "routing": Way(Choice("routing", {"size": 64, "clusters": 32}), 0.005),
    "Sinkhorn": Way(Choice("sinkhorn", {"block": 64}), 0.01),
    "Performer": Way("performer", 0.005),
    "linear": Way("linear", 0.005),
    "LSTM": Way("none", 0.02),
}


def network(way: Way) -> nn.Module:
    tokens = Tokens(VOCABULARY, VALUES, length=LENGTHS[-1])
    if way.attention == "none":
        return Recurrent(RecurrentSettings(cell="lstm", width=39), tokens)
    settings = TransformerSettings(width=32, depth=1, heads=2, positions="none", attention=way.attention)
    return Transformer(settings, tokens)


def texts(length: int, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pairs in noise and questions at the end, [B, N]; the values that are due at these, [B, ASKED]."""
    tokens = PAIRS + KEYS + torch.randint(NOISE, (batch, length), generator=generator)
    values = torch.randint(VALUES, (batch, KEYS), generator=generator)
    places = torch.rand(batch, length - ASKED, generator=generator).topk(KEYS, -1).indices
    tokens.scatter_(1, places, torch.arange(KEYS) * VALUES + values)
    asked = torch.randint(KEYS, (batch, ASKED), generator=generator)
    tokens[:, -ASKED:] = PAIRS + asked
    return tokens, values.gather(1, asked)


def trained(way: Way, seed: int, stages: tuple[tuple[int, int, int], ...]) -> nn.Module:
    """By AdamW, whose rate rises over 20 steps and falls along a cosine."""
    torch.manual_seed(seed)
    model, generator = network(way), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), way.rate)
    lengths = [(length, batch) for length, batch, steps in stages for _ in range(steps)]
    for step, (length, batch) in enumerate(lengths):
        for group in optimizer.param_groups:
            group["lr"] = way.rate * min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / len(lengths)))
        tokens, due = texts(length, batch, generator)
        optimizer.zero_grad()
        outputs = model(way.graph(length), tokens)[:, -ASKED:]
        functional.cross_entropy(outputs.flatten(0, 1), due.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


@torch.no_grad()
def right(model: nn.Module, way: Way, length: int, seed: int, count: int) -> float:
    generator, found = torch.Generator().manual_seed(30_000 + seed), []
    for _ in range(count // 4):
        tokens, due = texts(length, 4, generator)
        found.append(model(way.graph(length), tokens)[:, -ASKED:].argmax(-1) == due)
    return torch.cat(found).double().mean().item()


def learns(
    way: Way, seed: int, lengths: tuple[int, ...], stages: tuple[tuple[int, int, int], ...], count: int
) -> dict[str, float]:
    """The right values by length, the processor's seconds of the training, the number of weights."""
    began = time.process_time()
    model = trained(way, seed, stages)
    own = {"seconds": time.process_time() - began, "parameters": parameters(model)}
    model.eval()
    return own | {str(length): right(model, way, length, seed, count) for length in lengths}


def step(name: str, length: int) -> None:
    """Print the seconds of a step on one text, the least of three, and the most memory above what was resident."""
    torch.set_num_threads(1)
    way, generator = WAYS[name], torch.Generator().manual_seed(0)
    model = network(way)
    model(way.graph(64), texts(64, 1, generator)[0]).sum().backward()
    tokens, due = texts(length, 1, generator)

    def seconds() -> float:
        began = time.process_time()
        outputs = model(way.graph(length), tokens)[:, -ASKED:]
        functional.cross_entropy(outputs.flatten(0, 1), due.flatten()).backward()
        return time.process_time() - began

    memory = MEGABYTE * peak_above(seconds)
    print(min(seconds() for _ in range(3)), memory)


def costs(name: str, length: int) -> dict[str, float]:
    """Those of a process of its own."""
    program = f"from benchmarks.studies.claims import retrieval; retrieval.step({name!r}, {length})"
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)  # noqa: S603
    seconds, memory = map(float, printed.split())
    return {"seconds": seconds, "memory": memory}


@dataclass
class Row:
    """Of one network: what a step costs at each length, and what each seed found."""

    costs: list[dict[str, float]]
    seeds: list[dict[str, float]]

    def right(self, length: int) -> float:
        return sum(own[str(length)] for own in self.seeds) / len(self.seeds)


Table = dict[str, Row]


def measure(
    lengths: tuple[int, ...] = LENGTHS,
    seeds: tuple[int, ...] = SEEDS,
    stages: tuple[tuple[int, int, int], ...] = STAGES,
    count: int = TEXTS,
) -> Table:
    print(f"| network | weights | {' | '.join(f'{n:,} tokens' for n in lengths)} | a step | memory | training |")
    print(f"|---{'|---' * (len(lengths) + 4)}|", flush=True)
    table: Table = {}
    for name, way in WAYS.items():
        row = Row(
            [costs(name, n) for n in lengths],
            [learns(way, seed, lengths, stages, count) for seed in seeds],
        )
        table[name] = row
        found = [f"{100 * row.right(n):.1f} %" for n in lengths]
        low, high = (100 * pick(own[str(lengths[-1])] for own in row.seeds) for pick in (min, max))
        found[-1] += f" ({low:.1f} to {high:.1f})"
        last, seconds = row.costs[-1], sum(own["seconds"] for own in row.seeds)
        cost = f"{1000 * last['seconds']:.0f} ms | {last['memory'] / 1e6:.0f} MB | {seconds:.0f} s"
        print(f"| {name} | {row.seeds[0]['parameters']:,.0f} | {' | '.join(found)} | {cost} |", flush=True)
    return table


def main() -> None:
    torch.set_num_threads(1)
    measure()


if __name__ == "__main__":
    main()
