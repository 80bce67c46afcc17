"""Layers on two sides: pairs of features, samples, and what is refused."""

import pytest
import torch

from edgewise import Graph, ShapeError
from edgewise.layers import (
    EGNN,
    GAT,
    GCN,
    GIN,
    GINE,
    MLP,
    PNA,
    SAGELSTM,
    EdgeUpdate,
    GatedGCN,
    GATv2,
    MessageNetwork,
    NodeUpdate,
    RadialField,
    SAGEMean,
    SAGEPool,
    VelocityEGNN,
    WholeUpdate,
    min_cut_pool,
)  # fmt: skip
from edgewise.layers.plain.sides import in_one_batch
from layers.parity import leaf

GRAPH = Graph.from_edge_index([[0, 4, 1, 1, 2, 3], [0, 0, 1, 2, 2, 2]], num_nodes=5, num_receivers=4)  # 3 has no sender
LAYERS = {
    "gcn": lambda: GCN(4, 3), "gat": lambda: GAT(4, 3, heads=2), "gatv2": lambda: GATv2(4, 3, heads=2),
    "gin": lambda: GIN(MLP([4, 3])), "gine": lambda: GINE(MLP([4, 3])), "gated-gcn": lambda: GatedGCN(4, 3),
    "sage-mean": lambda: SAGEMean(4, 3), "sage-pool": lambda: SAGEPool(4, 3), "sage-lstm": lambda: SAGELSTM(4, 3),
    "pna": lambda: PNA(4, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_pair_is_one_graph_of_both_kinds_of_nodes(name):
    """Receivers as senders that nobody attends to, and the senders as receivers that hear nobody."""
    layer, x, y = LAYERS[name]().double(), leaf(4, 4), leaf(5, 4, seed=1)
    found = layer(GRAPH, (x, y))
    assert found.shape[0] == 4
    if name in ("gcn", "gat", "gatv2"):  # which would add self-loops
        with torch.no_grad():
            alone = layer(Graph.from_edge_index([[], []], num_nodes=5, num_receivers=4), (x, y))
        torch.testing.assert_close(found[3], alone[3])
        torch.testing.assert_close(alone, layer.bias.expand(4, -1))
        return
    both = Graph.from_edge_index(GRAPH.edge_index() + torch.tensor([[4], [0]]), num_nodes=9)
    torch.testing.assert_close(found, layer(both, torch.cat([x, y]))[:4])


@pytest.mark.parametrize("name", LAYERS)
def test_sides_that_do_not_fit_are_refused(name):
    layer = LAYERS[name]().double()
    for receivers in (4, 5)[: 1 if name == "gcn" else 2]:  # which reads the senders alone
        with pytest.raises(ShapeError):
            layer(GRAPH, (leaf(receivers, 4), leaf(receivers, 4)))
    with pytest.raises(ShapeError, match=r"a pair, \(x_receivers, x_senders\)"):
        layer(Graph.from_edge_index([[0], [3]], num_nodes=2, num_receivers=4), leaf(2, 4))


RING = Graph.from_edge_index([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]], num_nodes=5)
UPDATED = {"x": (5, 3), "e": (5, 1), "u": (1, 2)}
SHARING = {  # a layer, and what it reads
    "egnn": (lambda: EGNN(3, 4, edges=1), {"h": (5, 3), "x": (5, 2), "a_ij": (5, 1)}),
    "velocity-egnn": (lambda: VelocityEGNN(3, 4, edges=1), {"h": (5, 3), "x": (5, 2), "v": (5, 2), "a_ij": (5, 1)}),
    "radial": (lambda: RadialField(4, edges=1), {"x": (5, 2), "v": (5, 2), "a_ij": (5, 1)}),
    "messages": (lambda: MessageNetwork(3, 4, edges=1), {"h": (5, 3), "a_ij": (5, 1)}),
    "edge": (lambda: EdgeUpdate(MLP([9, 4])), UPDATED), "node": (lambda: NodeUpdate(MLP([6, 4])), UPDATED),
    "whole": (lambda: WholeUpdate(MLP([6, 4])), UPDATED), "min-cut": (lambda: min_cut_pool, {"x": (5, 3), "s": (5, 2)}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "batched"), [(name, part) for name, (_, parts) in SHARING.items() for part in parts])
def test_what_has_no_batch_is_the_same_for_all_of_it(name, batched):
    made, shapes = SHARING[name]
    layer = made()
    read = {part: torch.rand(*((3,) if part == batched else ()), *shape) for part, shape in shapes.items()}
    found = layer(RING, **read)
    for number in range(3):
        alone = layer(RING, **read | {batched: read[batched][number]})
        pairs = zip(found, alone, strict=True) if isinstance(found, tuple) else [(found, alone)]
        for all_of_it, one in pairs:
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(all_of_it[number] if all_of_it.ndim > one.ndim else all_of_it, one)


def test_batches_that_do_not_fit_together_are_refused():
    with pytest.raises(ShapeError, match=r"\[\[3, 5, 1\], \[2, 5, 4\]\]"):
        in_one_batch(torch.zeros(3, 5, 1), torch.zeros(2, 5, 4))
