"""Memory of events: PyTorch Geometric's, batch after batch, and times that only whole numbers tell apart."""

import pytest
import torch

from edgewise import Graph
from edgewise.layers import EventMemory

NODES, CHANNELS, EDGES = 8, 5, 3


def events(seed):
    """Senders, receivers, distinct times in any order, and features of some events, each between two nodes."""
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.stack([torch.randperm(NODES - 1, generator=draw)[:2] for _ in range(6)], 1)  # the last meets nobody
    time = 100 * seed + torch.randperm(20, generator=draw)[:6]
    return pairs, time, torch.randn(6, EDGES, generator=draw, dtype=torch.float64)


def test_it_is_that_of_pytorch_geometric_over_batches_of_events():
    pyg = pytest.importorskip("torch_geometric.nn.models.tgn")
    parts = pyg.IdentityMessage(EDGES, CHANNELS, CHANNELS), pyg.LastAggregator()
    theirs = pyg.TGNMemory(NODES, EDGES, CHANNELS, CHANNELS, *parts).double()
    theirs.reset_state()  # whose empty messages become double, too
    ours = EventMemory(CHANNELS, edges=EDGES).double()
    maps = theirs.gru.weight_ih.detach().split([2 * CHANNELS, EDGES, CHANNELS], 1)
    with torch.no_grad():  # theirs reads [s_i ‖ s_j ‖ e ‖ φ], ours [s_i ‖ s_j ‖ φ ‖ W e]
        ours.edges.weight.copy_(torch.eye(CHANNELS)[:, :EDGES])
        ours.gru.weight_ih.copy_(torch.cat([maps[0], maps[2], maps[1], torch.zeros(3 * CHANNELS, 2)], 1))
        ours.encoding.weight.copy_(theirs.time_enc.lin.weight)
        ours.encoding.bias.copy_(theirs.time_enc.lin.bias)
        for name in ("weight_hh", "bias_ih", "bias_hh"):
            getattr(ours.gru, name).copy_(getattr(theirs.gru, name))
    s, written = torch.zeros(NODES, CHANNELS, dtype=torch.float64), torch.zeros(NODES, 1, dtype=torch.int64)
    for batch in range(3):
        pairs, time, e = events(batch)
        both = torch.cat([pairs, pairs.flip(0)], 1)
        graph = Graph.from_edge_index(both, NODES)
        told = graph.sort_edges(time.repeat(2).unsqueeze(-1)), graph.sort_edges(e.repeat(2, 1))
        for (i, j), store in ((pairs, theirs.msg_s_store), (pairs.flip(0), theirs.msg_d_store)):
            theirs._update_msg_store(i, j, time, e, store)
        met = pairs.unique()
        expected, when = theirs(met)
        s, written = ours(graph, s.detach(), written, *told)
        torch.testing.assert_close(s[met], expected, rtol=0, atol=1e-12)
        assert written[met].flatten().equal(when)
        dy = torch.randn(len(met), CHANNELS, dtype=torch.float64)
        found = torch.autograd.grad((s[met] * dy).sum(), [ours.gru.weight_hh, ours.encoding.weight])
        wanted = torch.autograd.grad((expected * dy).sum(), [theirs.gru.weight_hh, theirs.time_enc.lin.weight])
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
        with torch.no_grad():  # `update_state` would also send nodes without an event through the GRU
            theirs.memory[met], theirs.last_update[met] = s[met], written[met].flatten()
            theirs._reset_message_store()
    assert not s[-1].any()  # nobody met the last


def test_seconds_since_1970_are_told_apart_in_float32():
    graph, memory, now = Graph.from_edge_index([[1], [0]], 2), EventMemory(4), 1_700_000_000
    written = torch.tensor([[now], [now]])
    soon, later = (memory(graph, torch.ones(2, 4), written, torch.tensor([[now + after]]))[0] for after in (1, 3))
    assert (soon - later).abs().max() > 1e-3
