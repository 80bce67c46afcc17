"""A recurrent encoder-decoder with attention and without: sequences written backwards, over their length.

python -m benchmarks.studies.claims.alignment

Two GRUs of width 48 read a sequence of letters of 16 kinds in both directions and write it backwards; with Bahdanau's
attention, or with the encoder's last states alone (then with width 50, so that both have as many parameters). Each is
trained for 30 seconds of the processor at each length (seed 0). The share of right letters on 256 new sequences, each
after the true ones before it, where a guess is 1/16.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.studies.training import learn, parameters
from edgewise.graphs import EncoderDecoderGraph
from edgewise.models import RecurrentEncoderDecoder, RecurrentEncoderDecoderSettings, TokenPairs

LENGTHS, SECONDS, BATCH, LETTERS = (8, 16, 32), 30.0, 16, 16
WIDTHS = {"attention": 48, "last states": 50}


def drawn(length: int, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sources, then targets behind a first token, as flat pairs; and the letters that are due, backwards."""
    letters = torch.randint(LETTERS, (batch, length), generator=generator)
    due = letters.flip(-1)
    first = torch.full((batch, 1), LETTERS)
    return torch.cat([letters.flatten(), torch.cat([first, due[:, :-1]], -1).flatten()]), due.flatten()


def network(kind: str) -> nn.Module:
    settings = RecurrentEncoderDecoderSettings(WIDTHS[kind], dropout=0.0, attention=kind == "attention")
    return RecurrentEncoderDecoder(settings, TokenPairs(LETTERS + 1, LETTERS))


def one(kind: str, length: int, seconds: float = SECONDS) -> dict[str, float]:
    torch.manual_seed(0)
    model, graph = network(kind), EncoderDecoderGraph.of([length] * BATCH, [length] * BATCH)

    def loss(generator: torch.Generator) -> Tensor:
        x, due = drawn(length, BATCH, generator)
        return functional.cross_entropy(model(graph, x), due)

    steps = learn(model, loss, seconds)
    generator, right = torch.Generator().manual_seed(10_000), []
    with torch.no_grad():
        for _ in range(256 // BATCH):
            x, due = drawn(length, BATCH, generator)
            right.append(model(graph, x).argmax(-1) == due)
    accuracy = torch.cat(right).double().mean().item()
    return {"accuracy": accuracy, "steps": steps, "parameters": parameters(model)}


Table = dict[str, list[dict[str, float]]]


def measure(lengths: tuple[int, ...] = LENGTHS, seconds: float = SECONDS) -> Table:
    print(f"| decoder reads | parameters | {' | '.join(f'{n} letters' for n in lengths)} |")
    print(f"|---{'|---' * (len(lengths) + 1)}|", flush=True)
    table: Table = {}
    for kind in WIDTHS:
        table[kind] = [one(kind, n, seconds) for n in lengths]
        cells = " | ".join(f"{100 * own['accuracy']:.1f} % ({own['steps']:.0f} steps)" for own in table[kind])
        print(f"| {kind} | {table[kind][0]['parameters']:,.0f} | {cells} |", flush=True)
    return table


def main() -> None:
    torch.set_num_threads(1)
    measure()


if __name__ == "__main__":
    main()
