"""Which layers of the table read receivers and senders of two kinds, and that all others say that they do not."""

import pytest
import torch

from edgewise import LAYERS, Graph
from edgewise.errors import EdgewiseError
from edgewise.layers import MultiHeadAttention

HOP = Graph.from_edge_index([[4, 0, 3, 1, 3], [0, 0, 1, 2, 2]], num_nodes=5, num_receivers=3)
OF_TWO_SIDES = {
    *("GCN", "FastGCN", "GAT", "GATv2", "GIN", "GINE", "PNA", "GatedGCN", "MoNet", "EdgeConv"),
    *("SAGEMean", "SAGEPool", "SAGELSTM", "SAGEUnion", "ACM", "RGCN", "RGAT", "HGT", "MultiHeadAttention"),
}
WITHOUT_RECEIVERS = {"GCN", "FastGCN", "SAGEUnion"}  # read the senders alone
SIBLINGS = {name for name, layer in LAYERS.items() if layer.forward is MultiHeadAttention.forward}
SIBLINGS |= {"LinearAttention", "PerformerAttention"}


@pytest.mark.parametrize("name", sorted(OF_TWO_SIDES))
def test_both_sides_are_read(name: str) -> None:
    torch.manual_seed(0)
    layer, _, (x, *_) = LAYERS[name].example()
    layer.eval()
    receivers, senders = x[:3].clone().requires_grad_(), (x + 0.1).requires_grad_()
    y = layer(HOP, (receivers, senders))
    assert y.shape[0] == 3
    of_receivers, of_senders = torch.autograd.grad(
        (y * torch.randn_like(y)).sum(), (receivers, senders), allow_unused=True, materialize_grads=True
    )
    assert of_senders.any() and not of_senders[2].any()  # whom nobody attends to
    assert bool(of_receivers.any()) is (name not in WITHOUT_RECEIVERS)


@pytest.mark.parametrize("name", sorted(SIBLINGS))
def test_attention_takes_a_pair_as_it_takes_receivers_and_senders(name: str) -> None:
    layer, graph, (x, *_) = LAYERS[name].example()
    layer.eval()

    def made(*inputs: object) -> torch.Tensor | str:
        torch.manual_seed(0)
        try:
            return layer(graph, *inputs)
        except EdgewiseError as error:
            return str(error)

    pair, apart = made((x, x + 0.1)), made(x, x + 0.1)
    assert torch.equal(pair, apart) if isinstance(pair, torch.Tensor) else pair == apart


@pytest.mark.parametrize("name", sorted({*LAYERS} - OF_TWO_SIDES - SIBLINGS))
def test_all_other_layers_read_a_pair_too_or_refuse_it_in_words(name: str) -> None:
    layer, graph, (x, *others) = LAYERS[name].example()
    layer.eval()
    try:
        pair = layer(graph, (x, x), *others)
    except EdgewiseError:
        return
    torch.testing.assert_close(pair, layer(graph, x, *others))


def test_the_refusal_says_what_is_read_instead() -> None:
    layer, graph, (x,) = LAYERS["GPS"].example()
    with pytest.raises(EdgewiseError, match=r"nodes of one kind, x \[\*, N, C\], and not a pair"):
        layer(graph, (x, x))
