import pytest
import torch

from edgewise import Graph
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
