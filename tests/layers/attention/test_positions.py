import math
import pickle
from functools import partial

import pytest
import torch

from edgewise import Graph, ShapeError, causal, complete
from edgewise.graphs.patterns import strided_parts
from edgewise.layers import (
    ALiBiAttention,
    Buckets,
    FactorisedAttention,
    Learned,
    LinearAttention,
    MultiHeadAttention,
    Rotary,
    ShawAttention,
    Sinusoidal,
    T5Attention,
    TransformerXLAttention,
    positions,
)
from edgewise.layers.attention.positions import sender_positions
from layers.parity import leaf


def test_positions_follow_rows_and_restart_in_every_member_of_a_batch():
    assert positions(causal(6).rows(4, 6)).tolist() == [4, 5]
    assert positions(Graph.batch([complete(2), complete(0), complete(3)])).tolist() == [0, 1, 0, 1, 2]


BATCHES = {
    "ranges": Graph.batch([causal(3), causal(0), causal(4)]),
    "a rule": Graph.from_cu_seqlens([0, 3, 3, 7], causal=True),
    "edges": Graph.batch([Graph.from_edge_index([[0], [2]], 3), Graph.from_edge_index([[3, 1], [0, 2]], 4)]),
    "two sides": Graph.batch([complete(3, 2), complete(4, 5)]),
}


@pytest.mark.parametrize("name", BATCHES)
def test_rows_of_a_batch_keep_their_positions_in_its_members(name):
    """They counted over the whole batch."""
    batch = BATCHES[name]
    for first, last in ((0, 7), (3, 7), (2, 5), (4, 4), (1, 2)):
        for rows in (batch.rows(first, last), batch.rows(1, 7).rows(max(first, 1) - 1, last - 1) if first else batch):
            assert torch.equal(positions(rows), positions(batch)[first:last])
            assert torch.equal(sender_positions(rows), sender_positions(batch))
            assert torch.equal(positions(pickle.loads(pickle.dumps(rows))), positions(rows))  # noqa: S301 - our own


@pytest.mark.parametrize("name", BATCHES)
def test_layers_on_rows_of_a_batch_compute_what_they_compute_on_all_of_it(name):
    batch, x = BATCHES[name], torch.randn(7, 8)
    senders = torch.randn(batch.num_senders, 8)
    for layer in (Sinusoidal(8), Learned(5, 8)):
        assert torch.equal(layer(batch.rows(2, 5), x[2:5]), layer(batch, x)[2:5])
    for layer in (
        MultiHeadAttention(8, 2, rotary=Rotary(4)),
        ALiBiAttention(8, 2),
        T5Attention(8, 2, Buckets(6, 4)),
        FactorisedAttention(8, 2, partial(strided_parts, stride=2)),
    ):
        if isinstance(layer, FactorisedAttention) and not batch.is_square:
            continue  # its patterns are of one side
        assert torch.allclose(layer(batch.rows(2, 5), (x[2:5], senders)), layer(batch, (x, senders))[2:5], atol=1e-6)


def test_sinusoids_are_their_formula():
    table = Sinusoidal(6)(causal(40), torch.zeros(40, 6, dtype=torch.float64))
    for p in (0, 1, 39):
        for c in range(3):
            angle = p / 10000 ** (2 * c / 6)
            assert table[p, 2 * c].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[p, 2 * c + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_a_shift_of_sinusoids_is_a_linear_map():
    """PE_(p + k) = M_k PE_p with one M_k for all p."""
    table = Sinusoidal(8)(causal(50), torch.zeros(50, 8, dtype=torch.float64))
    solution = torch.linalg.lstsq(table[:40], table[5:45]).solution
    assert torch.allclose(table[:40] @ solution, table[5:45], atol=1e-9)


def test_learned_positions_are_rows_of_the_table():
    layer = Learned(6, 3)
    x = torch.zeros(6, 3)
    assert torch.equal(layer(causal(6), x), layer.weight)
    assert torch.equal(layer(causal(6).rows(4, 6), x[:2]), layer.weight[4:])
    members = Graph.batch([complete(2), complete(3)])
    assert torch.equal(layer(members, x[:5]), layer.weight[[0, 1, 0, 1, 2]])


@pytest.mark.parametrize("graph", [causal(7), causal(7).rows(6, 7), Graph.batch([complete(1), complete(7)])])
def test_positions_that_were_not_learned_are_refused(graph):
    with pytest.raises(ShapeError, match="position 6 is outside the 6 positions"):
        Learned(6, 3)(graph, torch.zeros(graph.num_receivers, 3))


def test_rotary_attention_ignores_a_common_shift_and_sees_a_relative_one():
    layer = MultiHeadAttention(8, 2, rotary=Rotary(4)).double()
    x = leaf(4, 8)
    moved = complete(4, 7).rows(0, 4)  # receivers at 0..3, senders at 0..6
    senders = torch.cat([x, torch.zeros(3, 8, dtype=torch.float64)])
    assert layer(complete(4), x).shape == layer(moved, x, senders).shape
    shifted = Graph(complete(1).rule, receivers=4, senders=4, offset=2)
    assert torch.allclose(layer(shifted, x), layer(complete(4), x), atol=1e-12)  # both ends move: nothing changes
    assert not torch.allclose(layer(shifted, x, x), layer(complete(4), x), atol=1e-3)  # only the receivers move


@pytest.mark.parametrize("layer", [LinearAttention, MultiHeadAttention])
def test_rotary_keys_start_anew_in_every_member_of_a_batch(layer):
    layer, x = layer(8, 2, rotary=Rotary(4)).double(), leaf(7, 8)
    graph = Graph.batch([causal(3), causal(4)])
    assert torch.allclose(layer(graph, (x, x)), layer(graph, x), atol=1e-12)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: MultiHeadAttention(8, 2, rotary=Rotary(4)),
        lambda: ALiBiAttention(8, 2),
        lambda: T5Attention(8, 2, Buckets(6, 4)),
        lambda: ShawAttention(8, 2, reach=2),
        lambda: TransformerXLAttention(8, 2),
    ],
)
def test_pairs_of_texts_side_by_side_are_each_as_alone(layer):
    """Receivers and senders of the second member start at 0, on both sides, be they as many altogether or not."""
    layer = layer().double()
    for members in ([complete(2, 3), complete(3, 4)], [complete(6, 8), complete(8, 6)]):
        x, senders = leaf(sum(g.num_receivers for g in members), 8), leaf(sum(g.num_senders for g in members), 8)
        i, j = members[0].num_receivers, members[0].num_senders
        wanted = torch.cat([layer(members[0], (x[:i], senders[:j])), layer(members[1], (x[i:], senders[j:]))])
        as_edges = [Graph.from_edge_index(g.edge_index(), g.num_senders, g.num_receivers) for g in members]
        for batch in (Graph.batch(members), Graph.batch(as_edges)):
            assert torch.allclose(layer(batch, (x, senders)), wanted, atol=1e-12)
