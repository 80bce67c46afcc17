import pytest
import torch

from edgewise import ConfigError, Graph
from edgewise.models import Features, GraphAutoencoder, GraphAutoencoderSettings
from edgewise.models.graph.autoencoder import ENCODERS, pairs_and_links

PLACES = Features(3, 3)
PATH = Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], num_nodes=4)
TRIANGLE = Graph.from_edge_index([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]], num_nodes=3)


def model(layer: str) -> GraphAutoencoder:
    torch.manual_seed(0)
    made = GraphAutoencoder(GraphAutoencoderSettings(layer, width=8, depth=2), PLACES).double()
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return made


def test_pairs_are_those_of_each_member():
    both = Graph.batch([PATH, TRIANGLE])
    pairs, linked = pairs_and_links(both)
    assert pairs.num_edges == 16 + 9
    a = torch.zeros(7, 7, dtype=torch.bool)
    a[pairs.receivers, pairs.senders] = linked.flatten()
    assert torch.equal(a, both.dense_mask())


@pytest.mark.parametrize("layer", ENCODERS)
def test_graphs_side_by_side_do_not_hear_one_another(layer):
    encoder, x = model(layer), torch.randn(7, 3).double()
    together = encoder(Graph.batch([PATH, TRIANGLE]), x)
    alone = torch.cat([encoder(PATH, x[:4]), encoder(TRIANGLE, x[4:])])
    assert torch.allclose(together, alone, atol=1e-12)


def test_egnn_places_turn_and_move_with_the_noise():
    encoder, x = model("egnn"), torch.randn(4, 3).double()
    turn, _ = torch.linalg.qr(torch.randn(3, 3).double())
    shift = torch.randn(3).double()
    expected = encoder(PATH, x) @ turn + encoder.encoder.log_scale.exp() * shift
    assert torch.allclose(encoder(PATH, x @ turn + shift), expected, atol=1e-10)
    plain = model("message-network")
    assert not torch.allclose(plain(PATH, x @ turn), plain(PATH, x) @ turn, atol=1e-3)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="auto-encoder"):
        GraphAutoencoder(GraphAutoencoderSettings(), Features(3, 4))
