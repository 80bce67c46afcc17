"""How many patterns a continuous Hopfield network gives back: the share it does not, over their number and dimension.

python -m benchmarks.studies.hopfield [PICTURE.svg]

Patterns lie at random on a sphere of radius √(C − 1), β = 1. Up to 200 are asked for with Gaussian noise of 0.3 a
channel; one step must bring each back to within a tenth of its length.
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from edgewise.apps.report import figures
from edgewise.layers import ContinuousHopfield

CHANNELS, PATTERNS, ASKED = (8, 12, 16, 24, 32, 64), (10, 100, 1_000, 10_000, 100_000), 200


def error(channels: int, patterns: int) -> float:
    """The share of patterns that are not given back."""
    generator = torch.Generator().manual_seed(0)
    stored = torch.randn(patterns, channels, generator=generator)
    stored *= (channels - 1) ** 0.5 / stored.norm(dim=-1, keepdim=True)
    asked = stored[:ASKED]
    noisy = asked + 0.3 * torch.randn(asked.shape, generator=generator)
    found = ContinuousHopfield(stored, 1.0).recall(noisy, steps=1)
    return ((found - asked).norm(dim=-1) > 0.1 * asked.norm(dim=-1)).double().mean().item()


def picture(errors: dict[int, list[float]]) -> Figure:
    """The error over the number of patterns, a curve for each dimension."""
    with figures.drawing(2.8, width=5.4) as (figure, grid):
        axes = grid[0, 0]
        for colour, (channels, shares) in zip(figures.CLASSES, errors.items(), strict=False):
            axes.plot(PATTERNS, shares, color=colour, marker="o", markersize=3, label=f"{channels} channels")
        axes.set_xscale("log")
        axes.set(xlabel="stored patterns", title="not brought back by one step")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(axis="y", color=figures.RULE, linewidth=0.6)
        axes.tick_params(length=0, which="both")
        figure.legend(loc="outside right center", frameon=False, labelcolor=figures.MUTED)
    return figure


def main(out: str | None = None) -> None:
    errors = {channels: [error(channels, count) for count in PATTERNS] for channels in CHANNELS}
    print(f"| channels | {' | '.join(f'{count:,}' for count in PATTERNS)} |\n|---|{'---|' * len(PATTERNS)}")
    for channels, shares in errors.items():
        print(f"| {channels} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    if out is not None:
        Path(out).write_text(figures.standalone(figures.svg(picture(errors), "hopfield")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
