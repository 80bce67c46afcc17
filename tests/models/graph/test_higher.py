import pytest
import torch

from edgewise import ConfigError, Graph
from edgewise.layers import I2GNN, PPGN, Marked
from edgewise.models import Features, PairNetwork, PairNetworkSettings, SubgraphNetwork, SubgraphNetworkSettings
from layers.parity import messy_graph

BATCH = Graph.batch([messy_graph(), messy_graph()])
NETWORKS = [
    (PairNetwork, PairNetworkSettings, {}, PPGN),
    (PairNetwork, PairNetworkSettings, {"marked": True}, Marked),
    (SubgraphNetwork, SubgraphNetworkSettings, {"hops": 1}, I2GNN),
]


@pytest.mark.parametrize(("model", "settings", "options", "layer"), NETWORKS)
def test_outputs_are_the_head_of_the_layer_on_nodes_and_behind_a_readout(model, settings, options, layer):
    x = torch.randn(14, 3)
    for readout, whole, rows in (("none", False, 14), ("mean", True, 2)):
        network = model(
            settings(width=4, depth=2, readout=readout, **options), Features(3, 5, whole_graph=whole)
        ).eval()
        assert isinstance(network.layer, layer)
        h = network.layer(BATCH, x)
        read = torch.stack([part.mean(0) for part in h.split(7)]) if whole else h
        assert torch.allclose(network(BATCH, x), network.head(network.norm(read)), atol=1e-5)
        assert network(BATCH, x).shape == (rows, 5)


def test_gain_scales_the_weights_that_the_network_begins_with():
    sizes = []
    for gain in (1.0, 2.0):
        torch.manual_seed(0)
        network = PairNetwork(PairNetworkSettings(gain=gain), Features(3, 5))
        sizes.append(network.layer.blocks[0].left.linears[0].weight)
    assert torch.equal(2 * sizes[0], sizes[1])


@pytest.mark.parametrize(("model", "settings", "options", "layer"), NETWORKS)
@pytest.mark.parametrize("wrong", [{"width": 0}, {"depth": 0}, {"readout": "mean"}])
def test_settings_that_do_not_fit_are_refused(model, settings, options, layer, wrong):
    with pytest.raises(ConfigError):
        model(settings(**options | wrong), Features(3, 5))


def test_features_of_edges_are_refused():
    with pytest.raises(ConfigError):
        PairNetwork(PairNetworkSettings(), Features(3, 5, edges=2))
