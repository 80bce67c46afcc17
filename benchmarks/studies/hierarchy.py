"""What networks tell apart, beside the Weisfeiler-Lehman tests: families of graphs × models.

python -m benchmarks.studies.hierarchy [PICTURE.svg]

Each network has random weights, three draws, and reads every family of `edgewise check expressiveness` with two
relabellings of each graph; the picture shows the share of pairs that it tells apart.
"""

import sys
import time
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from edgewise.apps.command.expressiveness import SEEDS, Verdict, build, judge
from edgewise.apps.report import figures
from edgewise.tasks.isomorphism.families import FAMILIES

MODELS = {
    "max (SAGE)": ("gnn", "layer=sage-pool", "depth=5", "norm=layer"),
    "mean (SAGE)": ("gnn", "layer=sage-mean", "depth=5", "norm=layer"),
    "sum (GIN)": ("gnn", "layer=gin", "depth=5", "norm=layer"),
    "+ eigenspaces": ("graph-transformer", "encoding=eigenspace", "encoding.size=16"),
    "+ cliques": ("graph-transformer", "encoding=cliques", "encoding.size=5"),
    "I²-GNN": ("subgraph-network",),
    "PPGN": ("pair-network",),
    "marked PPGN": ("pair-network", "marked=true"),
}
RELABELLINGS = 2


def measure(relabellings: int = RELABELLINGS) -> dict[str, list[Verdict]]:
    """For each model its verdict on every family, printed as a column is done."""
    measured = {}
    for title, (name, *options) in MODELS.items():
        started = time.process_time()
        models = [build(name, options, seed) for seed in range(SEEDS)]
        verdicts = [judge(made(), models, relabellings=relabellings) for made in FAMILIES.values()]
        measured[title] = verdicts
        told = " ".join(str(verdict.model) for verdict in verdicts)
        false = sum(verdict.false for verdict in verdicts)
        print(f"{title}: {told}; {false} false; {time.process_time() - started:.0f} s", flush=True)
    return measured


def table(measured: dict[str, list[Verdict]]) -> tuple[list[str], list[str], list[list[int]], list[int]]:
    """Columns, rows, pairs told apart, and pairs in all; the tests stand beside what they bound."""
    first = next(iter(measured.values()))
    columns = {"1-WL": [v.wl_1 for v in first], "2-WL": [v.wl_2 for v in first]}
    told = {title: [v.model for v in verdicts] for title, verdicts in measured.items()}
    order = ["max (SAGE)", "mean (SAGE)", "sum (GIN)", "1-WL", "+ eigenspaces", "+ cliques", "I²-GNN", "PPGN", "2-WL"]
    both = columns | told
    chosen = [title for title in [*order, "marked PPGN"] if title in both]
    rows = [list(row) for row in zip(*(both[title] for title in chosen), strict=True)]
    return chosen, [v.family for v in first], rows, [v.pairs for v in first]


def picture(measured: dict[str, list[Verdict]]) -> Figure:
    """Families down, networks and tests across; the darker, the larger the share of pairs that are told apart."""
    columns, names, rows, pairs = table(measured)
    with figures.drawing(5.2) as (figure, grid):
        axes = grid[0, 0]
        for y, row in enumerate(rows):
            for x, told in enumerate(row):
                share = told / pairs[y]
                axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=figures.MATRIX, alpha=0.85 * share))
                color = figures.INK if share else figures.MUTED
                axes.text(x, y, str(told), ha="center", va="center", fontsize=8, color=color)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), columns, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), [f"{name} ({count})" for name, count in zip(names, pairs, strict=True)])
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        figure.suptitle("pairs of graphs told apart, of so many")
    return figure


def main(out: str | None = None) -> None:
    measured = measure()
    if out is not None:
        drawn = figures.svg(picture(measured), "expressiveness")
        Path(out).write_text(figures.standalone(drawn), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
