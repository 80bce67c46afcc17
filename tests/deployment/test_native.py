"""Programs with native operators give the model's numbers as fast as the model; compiled, without Edgewise too."""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from deployment.families import FAMILIES, on_nodes, random_graph
from deployment.test_exporting import OTHERS, RUN, save_call
from deployment.test_in_cpp import CMAKE, build, differs, ran
from edgewise import native
from edgewise.deployment import export
from edgewise.deployment.native import KERNELS, OPERATORS
from edgewise.errors import ExportError
from edgewise.graphs import Graph
from edgewise.layers import GAT

pytestmark = pytest.mark.skipif(native.library is None, reason="the native kernels were not built")
LISTED = ("gcn", "sage-mean", "gat", "gatv2", "gin, many graphs", "graph transformer", "graph transformer, edges")


class Attention(nn.Module):
    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        q, k, v = x.unflatten(-1, (3, 4, 16)).unbind(-3)
        return edgewise.attend(graph, q, k, v).flatten(-2)


def operators_of(program) -> set[str]:
    return {str(node.target) for node in program.graph.nodes if str(node.target).startswith("edgewise.")}


def same_numbers(name: str, file: Path) -> set[str]:
    """A family's pt2 file, loaded anew, is compared on calls of other sizes; its native operators."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    made = export(family.model().eval(), family.call(0), "pt2", file, names=family.names, native=True)
    program = torch.export.load(file).module()
    for number in OTHERS:
        given, expected = made.call(*family.call(number))
        if "edge_index" in given and "edge_attr" not in given:  # in any order
            order = torch.randperm(given["edge_index"].shape[1])
            given["edge_index"] = given["edge_index"][:, order]
        y = program(**given)["y"]
        torch.testing.assert_close(y, expected["y"], rtol=1e-5, atol=1e-5)
    return operators_of(made.program)


def test_a_pt2_file_gives_the_models_numbers(tmp_path: Path) -> None:
    used = same_numbers("gat", tmp_path / "gat.pt2")
    assert used == {"edgewise.edges_by_receiver.default", "edgewise.attend_by_receiver.default"}
    script = (tmp_path / "gat.pt2.py").read_text()
    assert (
        "import edgewise.kernels" in script
        and "after `import edgewise.kernels`" in (tmp_path / "gat.pt2.md").read_text()
    )
    command = [sys.executable, "gat.pt2.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.startswith("y (7, 3)")


@pytest.mark.exports
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LISTED)
def test_families_on_edges_give_their_numbers_by_native_operators(name: str, tmp_path: Path) -> None:
    assert same_numbers(name, tmp_path / "model.pt2")


@pytest.mark.compiled
@torch.inference_mode()
def test_a_pt2_file_runs_in_inference_mode() -> None:
    graph, x = random_graph(4), torch.randn(30, 192)
    program = export(Attention(), (random_graph(0), torch.randn(7, 192)), "pt2", native=True).program.module()
    y = program(x=x, edge_index=graph.edge_index())["y"]
    torch.testing.assert_close(y, Attention()(graph, x), rtol=0, atol=1e-5)


@pytest.mark.compiled
def test_edges_are_sorted_once_for_all_layers() -> None:
    family = FAMILIES["gat"]
    program = export(family.model().eval(), family.call(0), "pt2", native=True).program
    sorts = [node for node in program.graph.nodes if "edges_by_receiver" in str(node.target)]
    layers = [node for node in program.graph.nodes if "attend_by_receiver" in str(node.target)]
    assert len(sorts) == 1 and len(layers) == 2


@pytest.mark.parametrize(
    ("name", "to", "why"),
    [
        ("gat", "onnx", "an onnx file has standard operators alone: native ones are for pt2 and aoti"),
        ("gpt", "pt2", "nothing of it is attention on edges or a sum of neighbours: leave --native out"),
        ("schnet", "pt2", "its outputs are gradients, which native operators do not have: leave --native out"),
    ],
)
def test_what_has_no_native_operators_is_refused(name: str, to: str, why: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    with pytest.raises(ExportError, match=why):
        export(family.model().eval(), family.call(0), to, tmp_path / "m", names=family.names, native=True)
    assert not list(tmp_path.iterdir())


def test_without_kernels_there_are_no_native_operators(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "library", None)
    with pytest.raises(ExportError, match=r"no native operators: .*reinstall"):
        export(GAT(5, 3), on_nodes(0), "pt2", tmp_path / "m.pt2", native=True)
    assert not list(tmp_path.iterdir())


def test_an_edge_out_of_bounds_is_an_error_and_no_wrong_number() -> None:
    program = export(Attention(), (random_graph(0), torch.randn(7, 192)), "pt2", native=True).program.module()
    with pytest.raises(edgewise.EdgewiseError, match=r"receivers must lie in 0, \.\.\., 3: 0 to 4"):
        program(x=torch.randn(4, 192), edge_index=torch.tensor([[0, 1], [0, 4]]))


@pytest.mark.exports
@torch.inference_mode()
def test_a_pt2_file_takes_little_longer_than_the_model_on_a_graph_built_before() -> None:
    draw = torch.Generator().manual_seed(0)
    graph = Graph.from_edge_index(torch.randint(20_000, (2, 600_000), generator=draw), 20_000)
    x, edges, layer = torch.randn(20_000, 192), graph.edge_index(), Attention()
    program = export(layer, (random_graph(0), torch.randn(7, 192)), "pt2", native=True).program.module()
    runs = {"program": lambda: program(x=x, edge_index=edges)["y"], "model": lambda: layer(graph, x)}
    torch.testing.assert_close(runs["program"](), runs["model"](), rtol=0, atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(15):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    fastest = {name: min(seconds) for name, seconds in times.items()}
    assert fastest["program"] <= 1.25 * fastest["model"]


@pytest.mark.exports
@pytest.mark.timeout(900)
@pytest.mark.skipif(CMAKE is None, reason="needs cmake")
def test_a_compiled_file_runs_without_edgewise_in_cpp_and_in_python(tmp_path: Path) -> None:
    program = build(tmp_path / "build")
    for name in ("gat", "gin, many graphs", "graph transformer, edges"):
        family, file = FAMILIES[name], tmp_path / "model.aoti.pt2"
        torch.manual_seed(0)
        made = export(family.model().eval(), family.call(0), "aoti", file, names=family.names, native=True)
        assert (tmp_path / OPERATORS).exists() and (tmp_path / KERNELS).exists()
        assert differs(program, file, tmp_path / "model.aoti.pt2.npz") <= 1e-5
        for number in OTHERS:
            call = save_call(tmp_path / "call.npz", made, family.call(number))
            assert differs(program, file, call) <= 1e-5
    alone = RUN[: RUN.index("import numpy")] + "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    command = [sys.executable, "-c", alone, "model.aoti.pt2.py"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.startswith("y (")
    arrays = dict(np.load(tmp_path / "model.aoti.pt2.npz"))
    arrays["edge_index"] = arrays["edge_index"] + 100
    np.savez(tmp_path / "bad.npz", **arrays)
    said = ran(program, file, tmp_path / "bad.npz")
    assert said.returncode == 1 and re.search("edges must lead from 0, ..., ", said.stderr)
    (tmp_path / OPERATORS).unlink()
    assert ran(program, file, tmp_path / "model.aoti.pt2.npz").returncode == 1
