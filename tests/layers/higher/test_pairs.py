import pytest
import torch

from edgewise import ConfigError, Graph
from edgewise.layers import PPGN, PairProduct
from edgewise.layers.graph.higher import products
from layers.parity import assert_parity, leaf, messy_graph

BATCH = Graph.batch([messy_graph(), messy_graph().subgraph(torch.tensor([0, 1, 2]))])


def network(weights, name, h):
    """W₂ sin(W₁ h + b₁) + b₂."""
    first, second = (f"{name}.linears.{number}" for number in range(2))
    hidden = torch.sin(h @ weights[f"{first}.weight"].T + weights[f"{first}.bias"])
    return hidden @ weights[f"{second}.weight"].T + weights[f"{second}.bias"]


def dense_product(weights, name, h):
    """The block on one graph's pairs as a tensor [n, n, C]."""
    a, b = network(weights, f"{name}left", h), network(weights, f"{name}right", h)
    mean_a, mean_b = a.mean(1, keepdim=True), b.mean(0, keepdim=True)
    together = torch.einsum("iwc,wjc->ijc", a - mean_a, b - mean_b) / len(h) ** 0.5
    y = network(weights, f"{name}both", torch.cat([h, together, mean_a * mean_b], -1))
    scaled = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    return scaled * weights[f"{name}norm.weight"] + weights[f"{name}norm.bias"]


def drawn(layer):
    return {name: p.detach().clone().requires_grad_() for name, p in layer.double().named_parameters()}


def test_a_pair_product_is_the_equation_on_members_of_different_sizes():
    layer, h = PairProduct(3, 4), leaf(7 * 7 + 3 * 3, 3)
    weights = drawn(layer)
    parts = [dense_product(weights, "", part.view(n, n, 3)) for part, n in zip(h.split([49, 9]), (7, 3), strict=True)]
    expected = torch.cat([part.reshape(-1, 4) for part in parts])
    assert_parity(layer, weights, (BATCH, h), expected, [h, *weights.values()])


def test_the_two_parts_are_the_papers_product():
    a, b = leaf(49, 2), leaf(49, 2, seed=1)
    together, apart = products(messy_graph(), a, b)
    product = torch.einsum("iwc,wjc->ijc", a.view(7, 7, 2), b.view(7, 7, 2)).reshape(49, 2)
    assert torch.allclose(7**0.5 * together + 7 * apart, product)


def test_ppgn_is_the_equation():
    layer, x = PPGN(5, 4, hidden=3, depth=2), leaf(10, 5)
    weights = drawn(layer)
    count, expected = BATCH.multiplicity().double(), []
    for start, n in ((0, 7), (7, 3)):
        own, links = x[start : start + n], count[start : start + n, start : start + n]
        known = torch.stack([links, links.T, torch.eye(n, dtype=torch.float64)], -1)
        x_i = own @ weights["receiver.weight"].T + weights["receiver.bias"]
        h = known @ weights["pair.weight"].T + x_i[:, None] + own @ weights["sender.weight"].T
        for block in range(2):
            h = dense_product(weights, f"blocks.{block}.", h)
        read = torch.cat([h[range(n), range(n)], h.mean(1)], -1)
        expected.append(read @ weights["out.weight"].T + weights["out.bias"])
    assert_parity(layer, weights, (BATCH, x), torch.cat(expected), [x, *weights.values()], tolerance=1e-8)


@pytest.mark.parametrize("depth", [-1, 1.5, True])
def test_the_number_of_blocks_is_a_whole_number_from_0(depth):
    with pytest.raises(ConfigError, match="depth must be"):
        PPGN(3, 4, depth=depth)
