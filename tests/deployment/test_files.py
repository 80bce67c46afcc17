"""What the files of an exported model compute and say."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

from deployment.families import gnn, on_nodes
from edgewise.configuration import Choice
from edgewise.deployment import export
from edgewise.graphs import Graph
from edgewise.layers import GCN


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


def test_a_file_whose_name_is_no_text_has_its_description(tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"caf\xe9.pt2")
    export(GCN(5, 3), on_nodes(0), "pt2", out)
    assert "# caf?.pt2" in out.with_name(f"{out.name}.md").read_text(encoding="utf-8")
