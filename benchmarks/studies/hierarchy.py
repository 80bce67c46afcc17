"""What networks tell apart, beside the Weisfeiler-Lehman tests: families of graphs × models.

python -m benchmarks.studies.hierarchy

Each network has random weights, three draws, and reads every family of `edgewise check expressiveness` with two
relabellings of each graph.
"""

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
    """For each model its verdict on every family."""
    found = {}
    for title, (name, *options) in MODELS.items():
        models = [build(name, options, seed) for seed in range(SEEDS)]
        found[title] = [judge(made(), models, relabellings=relabellings) for made in FAMILIES.values()]
    return found


def main() -> None:
    found = measure()
    print(f"| family | pairs | 1-WL | 2-WL | {' | '.join(MODELS)} |\n|---{'|---' * (len(MODELS) + 3)}|")
    for n, one in enumerate(next(iter(found.values()))):
        told = [one.pairs, one.wl_1, one.wl_2, *(verdicts[n].model for verdicts in found.values())]
        print(f"| {one.family} | {' | '.join(map(str, told))} |")
    false = sum(verdict.false for verdicts in found.values() for verdict in verdicts)
    print(f"relabelled graphs that a network takes for others: {false}")


if __name__ == "__main__":
    main()
