"""How time and memory of one attention layer grow with the length of a text: forward and backward, one thread.

python -m benchmarks.studies.lengths [NAME ...]

NAME begins the name of an attention; without any, all are measured. Each length runs in a process of its own; time is
the processor's, memory the peak above what was resident before.
"""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from edgewise import causal
from edgewise.graphs.patterns import strided_parts
from edgewise.layers import (
    AngularHash,
    Centroids,
    FactorisedAttention,
    LinearAttention,
    LSHAttention,
    MultiHeadAttention,
    PerformerAttention,
    RoutingAttention,
    SinkhornAttention,
)

LENGTHS = [1024, 2048, 4096, 8192, 16384]
LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "softmax": lambda n: MultiHeadAttention(64, 4),
    "strided heads, stride √n": lambda n: FactorisedAttention(64, 4, partial(strided_parts, stride=math.isqrt(n))),
    "lsh, 2 rounds, 32 buckets, chunks of 64": lambda n: LSHAttention(64, 4, AngularHash(16, 32, 2), size=64),
    "routing, 32 clusters of 64": lambda n: RoutingAttention(64, 4, Centroids(4, 16, 32), size=64),
    "sinkhorn, blocks of 64": lambda n: SinkhornAttention(64, 4, size=64),
    "linear": lambda n: LinearAttention(64, 4),
    "performer, 64 features": lambda n: PerformerAttention(64, 4),
}


def measure(name: str, n: int) -> None:
    """Print the seconds and the bytes of one step, the least of three."""
    torch.set_num_threads(1)
    layer = LAYERS[name](n)
    layer(causal(64), torch.randn(64, 64)).sum().backward()
    resident, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, math.inf
    graph, x = causal(n), torch.randn(n, 64)
    for _ in range(3):
        began = time.process_time()
        layer(graph, x).sum().backward()
        seconds = min(seconds, time.process_time() - began)
    print(seconds, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident))


def slope(values: list[float]) -> float:
    """Of log(values) against log(lengths), by least squares."""
    x = torch.tensor(LENGTHS, dtype=torch.float64).log()
    y = torch.tensor(values, dtype=torch.float64).log()
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x @ x))


def main() -> None:
    print(f"| attention | {' | '.join(map(str, LENGTHS))} | slope of time | of memory |")
    print("|---|" + "---|" * (len(LENGTHS) + 2))
    for name in [name for name in LAYERS if name.startswith(tuple(sys.argv[1:]) or "")]:
        command = [sys.executable, "-m", "benchmarks.studies.lengths", name]
        found = [subprocess.check_output([*command, str(n)], text=True).split() for n in LENGTHS]  # noqa: S603
        seconds, memory = ([float(row[column]) for row in found] for column in (0, 1))
        cells = " | ".join(f"{1000 * s:.0f} ms, {b / 1e6:.0f} MB" for s, b in zip(seconds, memory, strict=True))
        print(f"| {name} | {cells} | {slope(seconds):.2f} | {slope(memory):.2f} |", flush=True)


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2])) if sys.argv[-1].isdigit() else main()
