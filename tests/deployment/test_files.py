"""What the files of an exported model compute and say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from deployment.families import gnn, on_nodes
from edgewise.configuration import Choice
from edgewise.deployment import export
from edgewise.graphs import Graph
from edgewise.layers import GAT, GCN


def test_sums_in_onnx_are_scaled(tmp_path: Path) -> None:
    import onnxruntime

    class Difference(nn.Module):
        def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
            return x.index_add(0, graph.receivers, x.index_select(0, graph.senders), alpha=-0.5)

    exported = export(Difference(), on_nodes(0), "onnx", tmp_path / "difference.onnx")
    given, expected = exported.call(*on_nodes(0))
    session = onnxruntime.InferenceSession(tmp_path / "difference.onnx")
    (y,) = session.run(None, {name: value.numpy() for name, value in given.items()})
    np.testing.assert_allclose(y, expected["y"], atol=1e-5)


@pytest.mark.compiled
def test_a_model_in_float64_is_computed_in_float64_by_onnxruntime(tmp_path: Path) -> None:
    import onnxruntime

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.batch_norm, self.attention = nn.LayerNorm(5), nn.BatchNorm1d(5), GAT(5, 1, heads=3)

        def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
            sums = x.index_add(0, graph.receivers, 0.3 * x.index_select(0, graph.senders), alpha=0.1)
            y = self.batch_norm(self.norm(sums))
            z = functional.softplus(functional.elu(y, 0.7)).unflatten(-1, (1, 5)).transpose(0, 1)
            z = functional.scaled_dot_product_attention(z, z, z).flatten(0, 1)
            return torch.cat([self.attention(graph, y), functional.leaky_relu(z - 1, 0.1) / 3], -1)

    def call(number: int) -> tuple[Graph, torch.Tensor]:
        graph, x = on_nodes(number)
        return graph, x.double()

    torch.manual_seed(0)
    exported = export(Mixed().double(), call(0), "onnx", tmp_path / "mixed.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "mixed.onnx")
    for number in (0, 1, 4):
        given, expected = exported.call(*call(number))
        (y,) = session.run(None, {name: value.numpy() for name, value in given.items()})
        np.testing.assert_allclose(y, expected["y"].detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.compiled
def test_neighbours_that_are_equally_near_are_the_models_in_both_formats(tmp_path: Path) -> None:
    import onnxruntime

    def call(seed: int) -> tuple[Graph, torch.Tensor]:
        graph = Graph.batch([Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), n) for n in (20, 9)])
        return graph, torch.randint(5, (29, 5), generator=torch.Generator().manual_seed(seed)).float()

    torch.manual_seed(0)
    model = gnn(Choice("dynamic-edge-conv", {"neighbors": 4}), readout="max").eval()
    exported = export(model, call(0), "onnx", tmp_path / "near.onnx")
    given, expected = exported.call(*call(1))
    program = exported.program.module()
    torch.testing.assert_close(program(**given)["y"], expected["y"], rtol=0, atol=1e-5)
    session = onnxruntime.InferenceSession(tmp_path / "near.onnx")
    (y,) = session.run(None, {one.name: given[one.name].numpy() for one in session.get_inputs()})
    np.testing.assert_allclose(y, expected["y"], rtol=0, atol=1e-5)


@pytest.mark.exports
@pytest.mark.timeout(600)
def test_a_compiled_file_reads_arrays_in_any_order_and_refuses_those_of_another_type(tmp_path: Path) -> None:
    made = export(GCN(5, 3), on_nodes(0), "aoti", tmp_path / "gcn.aoti.pt2")
    edges, x = np.array([[0, 1], [2, 1], [0, 3]]), np.random.default_rng(0).random((4, 5), dtype="float32")
    _, expected = made.call(Graph.from_edge_index(torch.from_numpy(edges.T), 4), torch.from_numpy(x))

    def run(**arrays: np.ndarray) -> "subprocess.CompletedProcess[str]":
        np.savez(tmp_path / "mine.npz", **arrays)
        command = [sys.executable, "gcn.aoti.pt2.py", "mine.npz"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    said = run(x=x, edge_index=edges.T).stdout  # NumPy keeps the order of the transposed array
    found = json.loads(said[said.index("[") : said.index("]") + 1])
    np.testing.assert_allclose(found, expected["y"].flatten()[:5], rtol=1e-4)
    for nodes in (0, 1):
        assert run(x=x[:nodes], edge_index=np.zeros((2, 0), "int64")).stdout.startswith(f"y ({nodes}, 3)")
    for wrong in ({"x": x.astype("float64")}, {"x": x[:, :4].copy()}, {"edge_index": edges.T.astype("int32")}):
        done = run(**({"x": x, "edge_index": edges.T} | wrong))
        assert done.returncode == 1 and "unmatched d" in done.stderr


def test_a_file_whose_name_is_no_text_has_its_description(tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"caf\xe9.pt2")
    export(GCN(5, 3), on_nodes(0), "pt2", out)
    assert "# caf?.pt2" in out.with_name(f"{out.name}.md").read_text(encoding="utf-8")
