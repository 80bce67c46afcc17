import pytest
import torch

from edgewise import ConfigError, Graph, complete
from edgewise.models import GraphNetworkModel, GraphNetworkSettings, Signature

GRAPH = Graph.from_edge_index([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]], num_nodes=5)
BATCH = Graph.batch([GRAPH, complete(2)])


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("whole", [True, False])
def test_every_choice_trains(whole, depth, reduce):
    model = GraphNetworkModel(GraphNetworkSettings(8, depth, reduce), Signature(6, 3, whole_graph=whole))
    y = model(BATCH, torch.randn(7, 6))
    assert y.shape == ((2, 3) if whole else (7, 3))
    y.square().sum().backward()
    reached = [p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters()]
    assert all(reached) if whole else sum(reached) > len(reached) // 2  # the last whole answers nobody


@pytest.mark.parametrize("whole", [True, False])
def test_members_of_a_batch_do_not_mix_and_their_order_does_not_matter(whole):
    model = GraphNetworkModel(GraphNetworkSettings(8, 2), Signature(6, 3, whole_graph=whole)).double()
    x = torch.randn(7, 6, dtype=torch.float64)
    alone = torch.cat([model(GRAPH, x[:5]), model(complete(2), x[5:])])
    assert torch.allclose(model(BATCH, x), alone, atol=1e-12)
    perm = torch.randperm(5)
    again = model(GRAPH.permute(perm), x[perm])
    assert torch.allclose(again, alone[:1] if whole else alone[:5][perm], atol=1e-12)


def test_a_node_hears_nodes_that_no_path_leads_to():
    """Through the whole: from the second block on."""
    apart = Graph.from_edge_index([[], []], num_nodes=2)
    for depth, heard in ((0, False), (1, True)):
        model = GraphNetworkModel(GraphNetworkSettings(8, depth, norm="none"), Signature(6, 3)).double()
        x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(model(apart, x)[0].sum(), x)
        assert bool(gradient[1].any()) == heard


@pytest.mark.parametrize(
    ("signature", "options", "message"),
    [
        (Signature(6, 3), {"width": 0}, "at least 1"),
        (Signature(6, 3), {"reduce": "max"}, "choose sum or mean"),
        (Signature(6, 3), {"norm": "group"}, "choose one of layer"),
        (Signature(6, 3, tokens=True), {}, "not tokens"),
    ],
)
def test_impossible_settings_are_refused(signature, options, message):
    with pytest.raises(ConfigError, match=message):
        GraphNetworkModel(GraphNetworkSettings(**options), signature)


def test_dropout_acts_while_training_only():
    model = GraphNetworkModel(GraphNetworkSettings(8, 1, dropout=0.5), Signature(6, 3))
    x = torch.randn(7, 6)
    assert not torch.equal(model(BATCH, x), model(BATCH, x))
    assert torch.equal(model.eval()(BATCH, x), model(BATCH, x))
