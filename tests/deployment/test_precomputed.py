"""Inputs that follow from the edges: what the library computes, and the same by lines that travel with a file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from deployment.families import FAMILIES, graph_transformer, on_nodes, random_graph, several
from edgewise.deployment import export
from edgewise.deployment.precomputed import PRECOMPUTED
from edgewise.errors import ExportError
from edgewise.graphs import Graph, complete
from edgewise.layers import CliqueEncoding, KernelAttention, LaplacianEncoding, SignInvariantEncoding

GRAPHS = [random_graph(number) for number in range(6)] + [several(number) for number in range(6)]


@pytest.mark.parametrize("name", PRECOMPUTED)
@pytest.mark.parametrize("number", [3, 5, 9])
def test_the_lines_of_numpy_give_what_the_library_computes(name: str, number: int) -> None:
    kind = PRECOMPUTED[name]
    for graph in GRAPHS:
        right = kind.tensors(kind.compute(graph, number))
        alone = kind.alone(graph.edge_index().numpy(), graph.num_receivers, number)
        assert alone.keys() == right.keys()
        for key, value in right.items():
            assert value.dtype == torch.float64 and value.shape == alone[key].shape
            assert np.abs(alone[key] - value.numpy()).max(initial=0) < 1e-12, (graph, key)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("encoding", "inputs"),
    [
        ("laplacian", {"eigenvalues": ["N", 9], "eigenvectors": ["N", 9]}),
        pytest.param("cliques", {"cliques": ["N", 6]}, marks=pytest.mark.compiled),
    ],
)
def test_a_file_comes_with_a_script_that_computes_its_inputs_from_the_edges(
    encoding: str, inputs: dict[str, list[str | int]], tmp_path: Path
) -> None:
    call = FAMILIES[f"graph transformer, {encoding}"].call
    made = export(graph_transformer("neighbors", encoding).eval(), call(0), "pt2", tmp_path / "m.pt2")
    assert made.inputs == {"x": ["N", 5], "edge_index": [2, "E"], **inputs, "sizes": ["G"]}
    assert "computed by `completed` of `m.pt2.py`" in (tmp_path / "m.pt2.md").read_text()
    given, expected = made.call(*call(3))
    arrays = {name: value.numpy() for name, value in given.items() if name not in inputs}
    np.savez(tmp_path / "bare.npz", **arrays)
    ran = subprocess.run(
        [sys.executable, "m.pt2.py", "bare.npz"], cwd=tmp_path, capture_output=True, text=True, check=True, env={}
    )
    y = ran.stdout.split("[")[1].split("]")[0].split(",")
    np.testing.assert_allclose([float(number) for number in y], expected["y"].flatten()[:5].numpy(), atol=1e-5)


@torch.no_grad()
def test_a_wrong_encoding_changes_the_outputs() -> None:
    made = export(graph_transformer("neighbors", "laplacian").eval(), on_nodes(4, make=several), "pt2")
    given, expected = made.call(*on_nodes(0, make=several))
    program = made.program.module()
    torch.testing.assert_close(program(**given)["y"], expected["y"], rtol=0, atol=1e-5)
    given["eigenvectors"] = given["eigenvectors"].flip(0)
    assert float((program(**given)["y"] - expected["y"]).abs().max()) > 1e-3


def test_what_was_computed_of_a_graph_for_another_model_is_no_input() -> None:
    graph, x = on_nodes(0)
    LaplacianEncoding(5, 3)(graph, x)
    assert "eigenvectors" not in export(CliqueEncoding(5), (graph, x), "pt2").inputs


def test_several_numbers_and_graphs_by_rule_are_refused() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.few, self.many = LaplacianEncoding(5, 2), SignInvariantEncoding(5, 4)

        def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
            return self.many(graph, self.few(graph, x))

    with pytest.raises(ExportError, match="of several numbers"):
        export(Two(), on_nodes(0), "pt2")
    with pytest.raises(ExportError, match="the spectrum of a graph by rule has no form"):
        export(LaplacianEncoding(5, 2), (complete(4), torch.randn(4, 5)), "pt2")


@torch.no_grad()
@pytest.mark.parametrize(
    ("kernel", "beta"), [("diffusion", 0.01), ("diffusion", 1.0), ("diffusion", 20.0), ("random-walk", 1.0)]
)
def test_kernels_of_graphs_are_computed_in_the_file(kernel: str, beta: float) -> None:
    torch.manual_seed(0)
    layer = KernelAttention(6, 2, kernel, beta).eval()
    program = export(layer, (several(0), torch.randn(several(0).num_receivers, 6)), "pt2").program.module()
    for number in range(1, 6):
        graph = several(number)
        x = torch.randn(graph.num_receivers, 6)
        y = program(x=x, edge_index=graph.edge_index(), sizes=graph.sizes)["y"]
        torch.testing.assert_close(y, layer(graph, x), rtol=0, atol=1e-6)
