"""What an exported model reads: of which graphs a program can be made."""

import pytest
import torch

from deployment.families import FAMILIES
from edgewise.deployment import export
from edgewise.errors import ExportError
from edgewise.graphs import EncoderDecoderGraph, Graph, causal, complete

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
