"""Features and weights of edges in another number than the edges: as PyTorch Geometric takes or refuses them."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgewise.interop import conversion, convert

pyg = pytest.importorskip("torch_geometric.nn")

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 0]])
DEGREES = {"aggregators": ["mean"], "scalers": ["identity"], "deg": torch.tensor([1, 2, 1])}
READ_FEATURES = {
    "GAT": pyg.GATConv(5, 3, edge_dim=2, add_self_loops=False),
    "GAT with self-loops": pyg.GATConv(5, 3, edge_dim=2),
    "GATv2": pyg.GATv2Conv(5, 3, edge_dim=2, add_self_loops=False),
    "transformer": pyg.TransformerConv(5, 3, edge_dim=2),
    "GINE": pyg.GINEConv(nn.Linear(5, 3), edge_dim=2),
    "PNA": pyg.PNAConv(5, 3, edge_dim=2, **DEGREES),
}
READ_WEIGHTS = {
    "GCN": pyg.GCNConv(5, 3, normalize=False),
    "gated": pyg.GatedGraphConv(5, 2),
    "light": pyg.LGConv(normalize=False),
    "topology-adaptive": pyg.TAGConv(5, 1, K=1, normalize=False),
}


def results(layer: Any, e: Tensor) -> tuple[Any, Any]:
    """Of a layer and of its twin: what they give, or the kind of what they raise."""
    ours = convert(deepcopy(layer))
    assert conversion(ours).twins
    seen, x = [], torch.randn(4, 5)
    for module in (layer, ours):
        try:
            seen.append(module(x, EDGES, e))
        except (RuntimeError, IndexError, AssertionError) as error:
            seen.append(type(error))
    return seen[0], seen[1]


@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("name", READ_FEATURES)
def test_features_of_another_number_of_edges(name: str, rows: int) -> None:
    theirs, ours = results(READ_FEATURES[name], torch.randn(rows, 2))
    assert (theirs is ours) if isinstance(theirs, type) else torch.allclose(theirs, ours)
    assert isinstance(theirs, type) or rows == 1


@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("name", READ_WEIGHTS)
def test_weights_of_another_number_of_edges(name: str, rows: int) -> None:
    theirs, ours = results(READ_WEIGHTS[name], torch.rand(rows))
    assert (theirs is ours) if isinstance(theirs, type) else torch.allclose(theirs, ours)
    assert isinstance(theirs, type) or rows == 1


def test_gatv2_refuses_features_that_it_does_not_read() -> None:
    assert results(pyg.GATv2Conv(5, 3), torch.randn(4, 2)) == (AssertionError, AssertionError)


PATCHED = {
    "message": lambda layer: setattr(layer, "message", lambda x_j, **_: 2 * x_j),
    "update": lambda layer: setattr(layer, "update", lambda rows, *_: 2 * rows),
    "another aggregation": lambda layer: setattr(layer, "aggr_module", pyg.MinAggregation()),
    "a hook of the aggregation": lambda layer: layer.aggr_module.register_forward_hook(lambda *call: 2 * call[-1]),
}


@pytest.mark.parametrize("patch", PATCHED.values(), ids=PATCHED)
@pytest.mark.parametrize("kind", [pyg.GCNConv, pyg.SAGEConv, pyg.GraphConv, pyg.TAGConv])
def test_what_is_put_into_a_layer_s_message_passing_is_called(kind: Any, patch: Any) -> None:
    theirs, x = kind(5, 3), torch.randn(4, 5)
    ours, before = convert(deepcopy(theirs)), theirs(x, EDGES)
    for layer in (theirs, ours):
        patch(layer)
    assert not torch.allclose(theirs(x, EDGES), before)
    torch.testing.assert_close(ours(x, EDGES), theirs(x, EDGES), atol=1e-5, rtol=1e-5)
