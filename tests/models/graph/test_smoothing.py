import torch

from edgewise import Graph
from edgewise.layers import dirichlet_energy
from edgewise.models import GNN, Features, GNNSettings, GraphTransformer, GraphTransformerSettings, energy_by_depth

NODES = Features(6, 4)
i = torch.arange(20)
RING = Graph.from_edge_index(
    torch.stack([torch.cat([i, i]), torch.cat([(i + 1) % 20, (i + 7) % 20])]), 20
).symmetrise()  # with chords


def test_energy_is_that_of_what_the_next_layer_reads():
    """Layer by layer, by hand: normalised, activated and with the residual."""
    model, x = GNN(GNNSettings("gcn", depth=4, connection="residual", norm="layer"), NODES).eval(), torch.randn(20, 6)
    states = [torch.relu(model.norms[0](model.hidden[0](RING, x)))]
    for layer, norm in zip(model.hidden[1:], model.norms[1:], strict=True):
        states.append(states[-1] + torch.relu(norm(layer(RING, states[-1]))))
    expected = [dirichlet_energy(RING, state, relative=True).item() for state in states]
    assert torch.allclose(torch.tensor(energy_by_depth(model, RING, x)), torch.tensor(expected))


def test_energy_of_a_graph_transformer_is_that_of_its_blocks():
    model, x = GraphTransformer(GraphTransformerSettings(width=8, depth=2), NODES).eval(), torch.randn(20, 6)
    loops = RING.add_self_loops()
    first = model.blocks[0](loops, model.embed(x))
    expected = [dirichlet_energy(RING, h, relative=True).item() for h in (first, model.blocks[1](loops, first))]
    assert torch.allclose(torch.tensor(energy_by_depth(model, RING, x)), torch.tensor(expected))
