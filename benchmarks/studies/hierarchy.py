"""What networks tell apart, beside the Weisfeiler-Lehman tests: families of graphs × models.

python -m benchmarks.studies.hierarchy

Each network has random weights, three draws, and reads every family of `edgewise check expressiveness` with two
relabellings of each graph.
"""

import time

from edgewise.apps.command.expressiveness import SEEDS, Verdict, build, judge
from edgewise.tasks.graphs.isomorphism import FAMILIES

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


def main() -> None:
    measure()


if __name__ == "__main__":
    main()
