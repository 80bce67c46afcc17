"""What an exported model reads and returns: of which graphs a program can be made."""

import numpy as np
import pytest
import torch
from torch import nn

from deployment.families import FAMILIES
from edgewise.deployment import export
from edgewise.errors import ExportError
from edgewise.graphs import EncoderDecoderGraph, Graph, causal, complete
from edgewise.layers import GAT, GCN, GatedGCN, Marked

SOME = torch.tensor([[0, 1, 2], [1, 0, 1]])


@pytest.mark.parametrize(
    "graph",
    [
        EncoderDecoderGraph(complete(3), complete(2), complete(2, 3)),
        EncoderDecoderGraph(complete(3), causal(2), Graph.from_edge_index(SOME, num_nodes=3, num_receivers=2)),
        EncoderDecoderGraph(Graph.from_edge_index(SOME, num_nodes=3), causal(2), complete(2, 3)),
    ],
)
def test_a_pair_whose_graphs_no_program_builds_is_refused(graph: EncoderDecoderGraph) -> None:
    with pytest.raises(ExportError, match="a causal decoder and a complete cross graph"):
        export(FAMILIES["encoder-decoder"].model(), (graph, torch.ones(1, 5, dtype=torch.int64)), "pt2")


@pytest.mark.parametrize(
    ("x", "preprocessing", "why"),
    [
        ((torch.ones(3, 5), torch.ones(3, 5)), None, "after its graph the example has tensors, not a tuple"),
        (np.ones((3, 5), "float32"), None, "after its graph the example has tensors, not an ndarray"),
        (torch.ones(3, 5), {"mean": torch.ones(5)}, "what JSON can hold, .*: Object of type Tensor"),
        (torch.ones(3, 5), {"scale": np.float32(2)}, "what JSON can hold, .*: Object of type float32"),
    ],
)
def test_what_is_no_tensor_and_no_json_is_refused(x: object, preprocessing: dict | None, why: str) -> None:
    with pytest.raises(ExportError, match=why):
        export(GCN(5, 3), (Graph.from_edge_index(SOME, 3), x), "pt2", preprocessing=preprocessing)


class _Logarithm(nn.Module):
    def __init__(self, apart: float = 0.0) -> None:
        super().__init__()
        self.apart = apart

    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return x.log() if torch.compiler.is_compiling() else x.log() + self.apart


class _Positive(nn.Module):
    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return x > 0


@pytest.mark.parametrize("model", [_Logarithm, _Positive])
def test_infinities_nans_and_truth_values_are_outputs_like_others(model: type[nn.Module]) -> None:
    x = torch.tensor([[1.0, 0.0], [-1.0, torch.inf]])
    program = export(model(), (Graph.from_edge_index([[0], [1]], num_nodes=2), x), "pt2").program
    found = program.module()(x=x, edge_index=torch.zeros(2, 0).long())["y"]
    torch.testing.assert_close(found, model()(None, x), equal_nan=True)


def test_other_numbers_beside_infinities_are_refused() -> None:
    x = torch.tensor([[1.0, 0.0], [-1.0, torch.inf]])
    with pytest.raises(ExportError, match=r"y of the exported program differs from the model's by 0\.1"):
        export(_Logarithm(apart=0.1), (Graph.from_edge_index([[0], [1]], num_nodes=2), x), "pt2")


@pytest.mark.parametrize("kind", [GAT, GatedGCN])
def test_a_model_in_half_precision_may_round_otherwise(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    layer, graph, inputs = kind.example()
    made = export(layer.half().eval(), (graph, *(8 * t.half() for t in inputs)), "pt2")
    assert made.example[1]["y"].dtype == torch.float16


def test_a_refused_export_writes_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    layer, graph, inputs = Marked.example()
    with pytest.raises(ExportError, match="Marked cannot be exported: what it computes next"):
        export(layer, (graph, *inputs), "pt2")
    assert capsys.readouterr() == ("", "")
