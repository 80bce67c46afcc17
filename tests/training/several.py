"""What the ranks of a world do, one scenario after the other: `several.py FOLDER`.

The ranks of several worlds at once are forks of one process: `several.py FOLDER SIZE FOLDER SIZE ...`.
"""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pymetis
import torch

from edgewise import fit
from edgewise.errors import ConfigError, NonFiniteError
from edgewise.tasks import TASKS
from edgewise.tasks.core.task import PatternChoice
from edgewise.training import (
    Choice,
    EvaluationSettings,
    LogSettings,
    MachineSettings,
    RunConfig,
    TrainSettings,
    resume,
    train,
)
from edgewise.training.settings import Sharing
from forked import ended, imported_once, ranks
from training.tiny import Tiny, TwoMaps, TwoMapsSettings, configured, register


def configs(own: Path) -> dict[str, RunConfig]:
    """The runs, by the name of their folder; `own` has data of one's own."""
    steady = {"model": {"dropout": 0.0}, "log_every": 1, "batch": 15, "clip": 0.5}  # 15 is cut into 8 and 7
    still = Choice("sgd", {"learning_rate": 1e-30})
    return {
        "curve": configured(**steady),
        "cut": configured(**steady, accumulate=2),
        "patient": configured({}, {"dropout": 0.0}, still, steps=500, evaluate_every=4, patience=3),
        "dropped": configured(steps=30, checkpoint_every=10),
        "sampled": on_graphs(Choice("planted", {"nodes": 600, "fanouts": (4, 3)}), "sage-mean", batch=50),
        "members": on_graphs(Choice("skip-links", {"copies": 5}), "gin", batch=15, readout="sum"),
        "nodes": on_graphs(Choice("planted", {"nodes": 300, "fanouts": ()}), "gat", batch=1, partition="blocks"),
        "arranged": on_graphs(Choice("planted", {"nodes": 300, "fanouts": ()}), "gat", batch=1, partition="metis"),
        "agreeing": agreeing(),
        "people": on_graphs(
            Choice("node-folder", {"folder": str(own / "people"), "label": "age,party"}), "gat", 1, "metis"
        ),
        "shapes": on_graphs(
            Choice("graph-folder", {"folder": str(own / "shapes"), "label": "mass,shape"}),
            "gin",
            15,
            "blocks",
            readout="mean",
            depth=1,
        ),
        "texts": on_tokens(),
        "graphs": on_graphs(
            Choice("skip-links", {"copies": 5}), "gin", batch=15, partition="blocks", shard=True, readout="sum"
        ),
        "weights": on_tokens(accumulate=2, clip=0.3, shard=True),
        "orthogonal": replace(on_tokens(shard=True), optimizer=Choice("muon")),
        "pairs": on_pairs(own / "pairs.csv"),
        "poisoned": configured({"poison": "rank", "at": 13}, {"dropout": 0.0}, steps=30, batch=15),
    }


SHARED = (
    "sampled",
    "members",
    "nodes",
    "arranged",
    "agreeing",
    "people",
    "shapes",
    "texts",
    "graphs",
    "weights",
    "orthogonal",
)  # by three and four ranks, too


def on_graphs(
    task: Choice, layer: str, batch: int, partition: Sharing = "none", shard: bool = False, **model: object
) -> RunConfig:
    """A graph network without dropout, whose loss is on record at every step."""
    gnn = Choice("gnn", {"layer": layer, "width": 8, "depth": 2, "dropout": 0.0, **model})
    steps = TrainSettings(steps=8, batch=batch, log=LogSettings(every=1), partition=partition, shard=shard)
    evaluation = EvaluationSettings(every=4, batch=7)
    return RunConfig(task, gnn, train=steps, evaluation=evaluation, machine=MachineSettings(device="cpu", threads=1))


def on_tokens(**options: Any) -> RunConfig:
    """A language model on windows of a text, each of which the ranks share unless they share something else."""
    text = Path(__file__).parents[2] / "LICENSE"
    task, graph = (
        Choice("text", {"file": str(text), "context": 512}),
        PatternChoice("window", {"radius": 9, "sides": "past"}),
    )
    model = Choice("transformer", {"width": 16, "depth": 2, "heads": 2, "positions": "rotary"})
    config = on_graphs(task, "gcn", batch=6, partition="none" if options else "blocks")
    machine = replace(config.machine, recompute=True)
    return replace(config, model=model, graph=graph, train=replace(config.train, **options), machine=machine)


def on_pairs(file: Path) -> RunConfig:
    """An encoder-decoder, whose blocks all read one memory, and whose translations are searched for."""
    task = Choice("parallel-text", {"file": str(file), "level": "character", "length": 12, "beam": 1})
    config = on_graphs(task, "gcn", batch=6, shard=True)
    model = Choice("encoder-decoder", {"width": 8, "encoder_depth": 1, "decoder_depth": 2, "heads": 2, "dropout": 0.0})
    return replace(config, model=model, machine=replace(config.machine, recompute=True))


def agreeing() -> RunConfig:
    """A model with a loss of its own, on a graph whose ranks may have no targets."""
    network = Choice("gnn", {"layer": "gcn", "width": 8, "dropout": 0.0})
    config = on_graphs(Choice("karate"), "gcn", batch=1, partition="blocks")
    return replace(config, model=Choice("consistent", {"network": network, "passes": 1}))


def write_own(place: Path) -> None:
    """A ring of people, and small rings and stars, with two targets each, of which some are unknown; pairs of texts."""
    for name in ("people", "shapes"):
        (place / name).mkdir(parents=True)
    people = [f"p{n},{n % 3},{'' if n % 4 == 0 else n + 0.5},{'' if n % 5 < 3 else 'ab'[n % 2]}" for n in range(60)]
    (place / "people" / "nodes.csv").write_text("\n".join(["who,height,age,party", *people]) + "\n")
    (place / "people" / "edges.csv").write_text("from,to\n" + "".join(f"p{n},p{(n + 7) % 60}\n" for n in range(60)))
    shapes = [f"g{n},{'' if n % 3 else n + 0.5},{'' if n % 4 == 0 else 'ab'[n % 2]}" for n in range(60)]
    nodes = [(f"g{n}", a) for n in range(60) for a in range(3 + n % 3)]
    edges = [f"{graph},{a if int(graph[1:]) % 2 else 1},{a - 1}" for graph, a in nodes if a]
    (place / "shapes" / "graphs.csv").write_text("\n".join(["graph,mass,shape", *shapes]) + "\n")
    (place / "shapes" / "nodes.csv").write_text("graph,node,size\n" + "".join(f"{g},{a},{a * a}\n" for g, a in nodes))
    (place / "shapes" / "edges.csv").write_text("\n".join(["graph,source,target", *edges]) + "\n")
    pairs = [f"{'abc'[n % 3] * (n % 4 + 1)}{n},{n}{'xyz'[n % 3] * (n % 5 + 1)}" for n in range(30)]
    (place / "pairs.csv").write_text("\n".join(["source,target", *pairs]) + "\n")


def any_parts(parts: int, adjacency: pymetis.CSRAdjacency) -> tuple[int, list[int]]:
    """In place of METIS: parts without any sense, of different sizes."""
    assert len(adjacency.adjacent) == adjacency.adj_starts[-1]
    return 0, [min(node * node % 7, parts - 1) for node in range(len(adjacency.adj_starts) - 1)]


def interrupted(**_: object) -> Tiny:
    return Tiny("stop", 17, double=False, metric="accuracy")


def main(folder: Path) -> None:
    register()
    pymetis.part_graph = any_parts
    rank = os.environ["RANK"]
    own = folder / f"own-{rank}"
    write_own(own)
    config = configs(own)
    results = [train(config[name], folder / name) for name in ("curve", *SHARED)]
    if int(os.environ["WORLD_SIZE"]) > 2:
        return
    results += [train(config[name], folder / name) for name in ("cut", "patient", "dropped", "pairs")]
    healthy = TASKS["tiny"]
    task, machine = healthy(), {"device": "cpu", "threads": 1}
    torch.manual_seed(0)
    model = TwoMaps(TwoMapsSettings(dropout=0.0), task.signature)
    results.append(fit(task, model, steps=8, batch=16, shard=True, machine=machine))
    TASKS["tiny"] = interrupted
    try:
        train(config["dropped"], folder / "resumed")
    except KeyboardInterrupt:
        TASKS["tiny"] = healthy
        results.append(resume(folder / "resumed"))
    (folder / f"results-{rank}").write_text("\n".join(f"{r.test} {r.valid} {r.steps} {r.best_step}" for r in results))
    try:
        train(config["poisoned"], folder / "poisoned")
    except NonFiniteError as error:
        (folder / f"poisoned-{rank}").write_text(str(error))
    try:
        train(config["curve"], folder / "curve")
    except ConfigError as error:
        (folder / f"refused-{rank}").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    imported_once()
    if len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        worlds = zip(sys.argv[1::2], sys.argv[2::2], strict=True)
        ended([child for folder, size in worlds for child in ranks(int(size), partial(main, Path(folder)))])
