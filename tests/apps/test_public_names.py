import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import edgewise


def test_every_public_name_loads_and_is_what_the_type_checker_sees() -> None:
    tree = ast.parse(Path(edgewise.__file__).read_text(encoding="utf-8"))
    blocks = (node for node in tree.body if isinstance(node, ast.If))
    block = next(node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {alias.asname: node.module for node in block.body for alias in node.names}
    assert {"Graph", "attend", "LAYERS", "EdgewiseError"} <= set(seen) <= set(dir(edgewise))
    for name, home in seen.items():
        assert getattr(edgewise, name) is getattr(sys.modules[home], name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        edgewise.atend  # noqa: B018


@pytest.mark.processes
def test_computing_imports_no_optional_package() -> None:
    optional = {"triton", "jsonargparse", "matplotlib", "networkx", "torch_geometric", "numba", "e3nn", "rdkit", "ase"}
    code = f"""
import sys, torch
before = set(sys.modules)
from edgewise import attend, causal, plan
x = torch.ones(4, 1, 2)
attend(causal(4), x, x, x)
plan(causal(4))
found = {optional} & set(sys.modules) - before
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)


FROM_THE_SOURCES = """
import importlib.abc, importlib.metadata, sys, warnings

class Bare(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        optional = "jsonargparse torch_geometric numba e3nn rdkit ase transformers tokenizers sacrebleu openmm pyarrow"
        if name.split(".")[0] in optional.split() or name == "edgewise.native._native":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Bare())
sys.modules["triton"] = None  # not installed

def unknown(name):
    raise importlib.metadata.PackageNotFoundError(name)

importlib.metadata.distribution = unknown
import torch
from edgewise import Graph, attend, complete
from benchmarks import __main__ as benchmarks, report
from edgewise.apps.command.main import main
from edgewise.training import Choice, RunConfig, TrainSettings, train

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    x = torch.ones(64, 1, 2)
    attend(complete(64), x, x, x)  # dense anyway
    assert not told, told[0].message
    graph = Graph.from_edge_index(torch.randint(2000, (2, 9000)), 2000)
    for n in range(2):
        x = torch.ones(2000, 1 + n, 8)
        attend(graph, x, x, x)
    assert len(told) == 1 and "without its C++ kernels" in str(told[0].message)
assert report.surroundings("cpu")["edgewise"]
assert main(["plan", "causal", "n=8"]) == 0 and benchmarks.main([]) == 0
train(RunConfig(Choice("karate"), Choice("gnn", {"layer": "gat"}), train=TrainSettings(steps=2)), sys.argv[1])
"""


@pytest.mark.processes
def test_it_runs_from_its_sources_without_a_build_and_without_what_is_optional(tmp_path: Path) -> None:
    places = [str(Path(edgewise.__file__).parents[1]), str(Path(__file__).parents[2])]
    command = [sys.executable, "-c", FROM_THE_SOURCES, str(tmp_path / "run")]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": os.pathsep.join(places)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
