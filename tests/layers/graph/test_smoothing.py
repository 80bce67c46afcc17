import pickle
from itertools import pairwise

import pytest
import torch

from edgewise import ConfigError, Graph, complete
from edgewise.layers import MLP, JumpingKnowledge, PairNorm, VirtualNode, dirichlet_energy, drop_edges, renormalised
from edgewise.tasks import karate
from layers.parity import assert_parity, assert_same, leaf

CLUB = karate().graph()
BATCH = Graph.batch([CLUB, complete(3)])


def test_energy_is_the_sum_over_edges():
    """Definition 3.1, one pair at a time."""
    x, d, total = leaf(34, 3), CLUB.in_degrees().double(), 0
    for j, i in CLUB.edge_index().T.tolist():
        total = total + 0.5 * (x[i] / (1 + d[i]) ** 0.5 - x[j] / (1 + d[j]) ** 0.5).square().sum()
    assert_same(dirichlet_energy(CLUB, x), total, [x])
    assert torch.allclose(dirichlet_energy(CLUB, x, relative=True), total / x.square().sum(), atol=1e-12)


def test_energy_of_repeated_averaging_falls_to_zero():
    """What over-smoothing is: Â^k X tends to √(1 + d) on each component, whose energy is 0."""
    x, (loops, entries) = leaf(34, 3).detach(), renormalised(CLUB, torch.float64)
    dense = torch.zeros(34, 34).double().index_put((loops.receivers, loops.senders), entries)
    energies = [dirichlet_energy(CLUB, torch.linalg.matrix_power(dense, k) @ x, relative=True) for k in (0, 4, 16, 256)]
    assert energies[0] > 0.1
    assert all(a > b for a, b in pairwise(energies))
    assert energies[-1] < 1e-10
    assert dirichlet_energy(CLUB, (1 + CLUB.in_degrees()).double().sqrt()[:, None]).abs() < 1e-12


def test_pair_norm_is_pygs_on_each_graph():
    pyg = pytest.importorskip("torch_geometric.nn")
    x = leaf(37, 3)
    peer = pyg.PairNorm(scale=2.0)
    expected = torch.cat([peer(x[:34]), peer(x[34:])])
    assert_parity(PairNorm(2.0), {}, (BATCH, x), expected, [x])


def test_pair_norm_keeps_the_mean_distance_of_pairs():
    """(9): the sum over all pairs of ‖x_i - x_j‖² is 2 n² s², whatever came in."""
    for scale in (0.01, 100.0):
        y = PairNorm()(CLUB, scale * leaf(34, 3) + 5)
        assert torch.cdist(y, y).square().sum().item() == pytest.approx(2 * 34**2, rel=0.2 if scale < 1 else 1e-6)


def test_pair_norm_in_float16_has_the_lengths_and_gradients_of_float32():
    graph = Graph.batch([CLUB, complete(1)])
    x = (1000 * leaf(35, 3).detach()).half().requires_grad_()
    y, expected = PairNorm()(graph, x), PairNorm()(graph, x.float())
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.float(), expected, rtol=1e-2, atol=1e-2)
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert dx.isfinite().all()


def test_a_virtual_node_is_a_node_joined_to_all():
    mlp, x = MLP([3, 5, 3]).double(), leaf(37, 3)
    expected = torch.cat([x[:34] + mlp(x[:34].sum(0)), x[34:] + mlp(x[34:].sum(0))])
    assert torch.allclose(VirtualNode(mlp)(BATCH, x), expected, atol=1e-12)


def test_jumping_knowledge_is_pygs():
    pyg = pytest.importorskip("torch_geometric.nn")
    states = [leaf(5, 3, seed=seed) for seed in range(4)]
    for ours, theirs in (("concatenate", "cat"), ("max", "max")):
        assert torch.equal(JumpingKnowledge(ours)(states), pyg.JumpingKnowledge(theirs)(states))
        assert pickle.dumps(JumpingKnowledge(ours))
    with pytest.raises(ConfigError, match="concatenate, max"):
        JumpingKnowledge("lstm")


def test_edges_are_dropped_with_their_probability_and_a_batch_stays_one():
    kept = torch.zeros(BATCH.num_receivers, BATCH.num_senders)
    for _ in range(1000):
        part = drop_edges(BATCH, 0.3)
        assert part.sizes.tolist() == [34, 3]
        kept += part.dense_mask()
    share = kept[BATCH.dense_mask()] / 1000
    assert (kept[~BATCH.dense_mask()] == 0).all()
    assert (share - 0.7).abs().max() < 0.07  # 5 standard errors
    assert drop_edges(BATCH, 0.0) == BATCH
    with pytest.raises(ConfigError, match="from 0 to 1"):
        drop_edges(BATCH, 1.5)
