"""PyTorch Geometric's own example scripts with one line added, beside themselves as they come and under torch.compile.

    python -m benchmarks.whole.examples /path/to/pytorch_geometric [EXAMPLE ...]

The scripts are read where a clone of its repository has them, and run up to their training loop; then their own
`train()` is timed. Cora and MUTAG are read from `EDGEWISE_DATA`, and data of other names are drawn at random, of the
sizes that `DRAWN` says. One process and one thread; the contenders take turns, and the outputs of their models in
evaluation are compared first: CPU time of `train()`, the median of the rounds, and the most memory of one more call.
None of the scripts has a GATv2: `ppi-gatv2` and `gatv2` are `ppi` and `gat` with GATv2Conv in place of GATConv.
"""

import ast
import contextlib
import io
import os
import sys
import tempfile
import time
import types
import warnings
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import edgewise
from benchmarks.inputs import power_law
from benchmarks.memory import peak_above
from edgewise.interop import GraphLoader, conversion

ROUNDS = 7
DRAWN = {"nodes": 20_000, "edges": 140_000, "reddit's edges": 200_000, "proteins": 2_400, "their edges": 60_000}


@dataclass(frozen=True)
class Example:
    """A script, the line that is added to it, what torch.compile does instead, and what is compared.

    Symbols     train = one call of what the script does again and again; compiled = "" where that takes too long;
                script = its name where it is another one's;
                replaced = a name in it, and what is read instead
    """

    about: str
    line: str = "edgewise.convert(model)"
    compiled: str = "model = torch.compile(model)"
    output: str = "model(data.x, data.edge_index)"
    train: str = "train()"
    script: str = ""
    replaced: tuple[str, str] = ("", "")

    def source(self, name: str, clone: Path) -> tuple[Path, str]:
        """Where the script lies, and what it says."""
        place = clone / "examples" / f"{self.script or name}.py"
        old, new = self.replaced
        text = place.read_text(encoding="utf-8")
        return place, text.replace(old, new) if old else text


EXAMPLES = {
    "gcn": Example("GCN, Cora"),
    "gat": Example("GAT, Cora"),
    "link_pred": Example(
        "GCN, links of Cora",
        compiled="model.encode = torch.compile(model.encode)",
        output="model.encode(train_data.x, train_data.edge_index)",
    ),
    "mutag_gin": Example(
        "GIN, molecules of MUTAG",
        output="[model(b.x, b.edge_index, b.batch) for b in test_loader][0]",
    ),
    "ppi": Example("GAT, protein graphs", output="model(train_dataset[0].x, train_dataset[0].edge_index)"),
    "gatv2": Example("GATv2, Cora", script="gat", replaced=("GATConv", "GATv2Conv")),
    "unimp_arxiv": Example("TransformerConv", output="model(data.x, data.y, data.edge_index, train_mask)"),
    "reddit": Example(
        "SAGE, batches",
        output="model(data.x[:99], data.edge_index[:, (data.edge_index < 99).all(0)])",
        train="train(1)",
    ),
    "rgcn": Example("RGCN, 90 relations", output="model(data.edge_index, data.edge_type)"),
}


def _nodes(count: int, edges: int, features: int, classes: int) -> Any:
    from torch_geometric.data import Data

    masks = {f"{name}_mask": torch.arange(count) % 4 == place for place, name in enumerate(("train", "val", "test"))}
    return Data(
        x=torch.randn(count, features),
        y=torch.randint(classes, (count,)),
        edge_index=power_law(count, edges).edge_index(),
        **masks,
    )


class Drawn(list[Any]):
    """Data sets by the names that scripts import, drawn at random."""

    num_classes, num_features, num_relations = 41, 50, 90

    def get_idx_split(self) -> dict[str, Tensor]:
        return dict(zip(("train", "valid", "test"), torch.arange(self[0].num_nodes).chunk(3), strict=True))


def reddit(*_: Any, **__: Any) -> Drawn:
    """602 features, 41 classes."""
    made = Drawn([_nodes(DRAWN["nodes"], DRAWN["reddit's edges"], 602, 41)])
    made.num_features = 602
    return made


def arxiv(*_: Any, **__: Any) -> Drawn:
    """128 features, 40 classes."""
    made = Drawn([_nodes(DRAWN["nodes"], DRAWN["edges"], 128, 40)])
    made.num_features, made.num_classes = 128, 40
    made[0].y = made[0].y.view(-1, 1)
    return made


def proteins(*_: Any, **__: Any) -> Drawn:
    """Two graphs with 50 features and 121 labels."""
    made = Drawn(_nodes(DRAWN["proteins"], DRAWN["their edges"], 50, 2) for _ in range(2))
    for graph in made:
        graph.y = torch.randint(2, (graph.num_nodes, 121)).float()
    made.num_classes = 121
    return made


def entities(*_: Any, **__: Any) -> Drawn:
    """AIFB's 8,285 nodes, 58,086 edges, 90 relations and 4 classes."""
    from torch_geometric.data import Data

    index, kinds = torch.randint(8285, (2, 58086)), torch.randint(90, (58086,))
    parts = {name: torch.randperm(8285)[:size] for name, size in (("train_idx", 140), ("test_idx", 36))}
    labels = {"train_y": torch.randint(4, (140,)), "test_y": torch.randint(4, (36,))}
    made = Drawn([Data(edge_index=index, edge_type=kinds, num_nodes=8285, **parts, **labels)])
    made.num_classes = 4
    return made


def in_process(
    *args: Any, num_workers: int = 0, persistent_workers: bool = False, disjoint: bool = False, **named: Any
) -> GraphLoader:
    """Our loader in place of theirs, which needs pyg-lib, without processes of its own."""
    assert not disjoint
    return GraphLoader(*args, **named)


STAND_INS = {
    "torch_geometric.datasets.Reddit": reddit,
    "torch_geometric.datasets.PPI": proteins,
    "torch_geometric.datasets.Entities": entities,
    "torch_geometric.loader.NeighborLoader": in_process,
}


def linked(folder: Path) -> None:
    """Cora and MUTAG where the scripts look for them."""
    source = Path(os.environ["EDGEWISE_DATA"])
    for name, files in (
        ("Planetoid/Cora", source / "planetoid"),
        ("Cora/Cora", source / "planetoid"),
        ("TU/MUTAG", source / "tudataset" / "MUTAG"),
    ):
        raw = folder / "data" / name / "raw"
        raw.mkdir(parents=True)
        for file in files.iterdir():
            (raw / file.name).symlink_to(file)


def until_its_loop(source: str) -> ast.Module:
    """A script without its loop over epochs, and what follows that."""
    body = ast.parse(source).body
    stop = [n for n, part in enumerate(body) if isinstance(part, ast.For) and ast.unparse(part.target) == "epoch"]
    return ast.Module(body[: stop[0]], [])


def prepared(script: Path, source: str, folder: Path) -> dict[str, Any]:
    """What the names of a script stand for, when it is about to train."""
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(folder / "examples" / script.name)}
    ogb = types.ModuleType("ogb.nodeproppred")
    ogb.PygNodePropPredDataset = arxiv  # type: ignore[attr-defined]
    sys.modules |= {"ogb": types.ModuleType("ogb"), "ogb.nodeproppred": ogb}
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(mock.patch.object(sys, "argv", [script.name]))
        for place, stand_in in STAND_INS.items():
            stack.enter_context(mock.patch(place, stand_in))
        exec(compile(until_its_loop(source), str(script), "exec"), names)  # noqa: S102
    names |= {"torch": torch, "edgewise": edgewise, "deepcopy": deepcopy}
    return names


def output(example: Example, names: dict[str, Any]) -> Tensor:
    """What the model computes in evaluation."""
    torch.manual_seed(1)
    module = names["gnn"] if "gnn" in names else names["model"]
    names["inputs"] = torch.randn(50, 100), torch.randint(50, (2, 300)), torch.randn(300, 272)
    module.eval()
    with torch.no_grad():
        y: Tensor = eval(example.output, names)  # noqa: S307
    module.train()
    return y


def study(name: str, clone: Path, folder: Path) -> None:
    """One line of the table."""
    example = EXAMPLES[name]
    script, source = example.source(name, clone)
    everyone = ("edgewise", "pyg", "compiled") if example.compiled else ("edgewise", "pyg")
    contenders = {who: prepared(script, source, folder) for who in everyone}
    exact = output(example, contenders["pyg"])
    exec(example.line, contenders["edgewise"])  # noqa: S102
    made = conversion(contenders["edgewise"]["gnn" if "gnn" in contenders["edgewise"] else "model"])
    assert not made.others, made
    apart = float((output(example, contenders["edgewise"]) - exact).abs().max() / exact.abs().max())
    assert apart <= 1e-5, (name, apart)
    if example.compiled:
        exec(example.compiled, contenders["compiled"])  # noqa: S102
    seconds: dict[str, list[float]] = {who: [] for who in contenders}
    for turn in range(ROUNDS + 2):  # two to warm up
        for who, names in contenders.items():
            start = time.process_time()
            with contextlib.redirect_stderr(io.StringIO()):
                eval(example.train, names)  # noqa: S307
            if turn >= 2:
                seconds[who].append(time.process_time() - start)
    took = {who: 1e3 * median(own) for who, own in seconds.items()}
    times = " | ".join(f"{took[who]:.3g} ms" for who in everyone)
    ratios = " | ".join(f"{took[who] / took['edgewise']:.1f} ×" for who in everyone[1:])
    memory = " | ".join(f"{peak(example, names):.0f} MB" for names in contenders.values())
    print(f"| {name} | {example.about} | {times} | {ratios} | {memory} | {apart:.0e} |", flush=True)


def peak(example: Example, names: dict[str, Any]) -> float:
    """The most memory of one call, above what is held before it."""
    with contextlib.redirect_stderr(io.StringIO()):
        return peak_above(lambda: eval(example.train, names))  # noqa: S307


def main() -> None:
    clone, *names = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in names or EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            linked(Path(folder))
            study(name, Path(clone), Path(folder))


if __name__ == "__main__":
    main()
