import pytest
import torch

from edgewise import ConfigError, Graph, complete
from edgewise.models import DeepSets, DeepSetsSettings, Features

BAGS = Features(3, 2, whole_graph=True)


def test_a_set_is_read_as_its_equation_says():
    """Set by set, with the Hopfield readout written out: a learned query, one step, β = 1."""
    torch.manual_seed(0)
    model = DeepSets(DeepSetsSettings((6, 4)), BAGS).double()
    sizes = [4, 1, 2]
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    first, second = model.mlp.linears
    pooling, rows = model.readout, []
    for instances in x.split(sizes):
        h = second(first(instances).relu()).relu()
        h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        k, v = pooling.projection(h * model.norm.weight + model.norm.bias).chunk(2, -1)
        weights = (k @ pooling.query[0]).softmax(0)
        rows.append(model.head(pooling.output(weights @ v)))
    expected, found = torch.stack(rows), model(Graph.batch([complete(n) for n in sizes]), x)
    assert (found - expected).abs().max() < 1e-12
    leaves, projection = [x, *model.parameters()], torch.randn(3, 2, dtype=torch.float64)
    ours = torch.autograd.grad((found * projection).sum(), leaves)
    theirs = torch.autograd.grad((expected * projection).sum(), leaves)
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).abs().max() < 1e-10


def test_with_memories_each_node_adds_what_it_retrieves():
    """HopfieldLookup written out: β = 1/√4, one step."""
    torch.manual_seed(0)
    model = DeepSets(DeepSetsSettings((4,), readout="mean", memories=3), BAGS).double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    h = model.norm(model.mlp.linears[0](x).relu())
    keys, values = model.lookup.keys[:, 0], model.lookup.values[:, 0]
    h = h + (h @ model.lookup.query.weight.T @ keys.T / 2).softmax(-1) @ values
    expected, found = model.head(h.mean(0, keepdim=True)), model(complete(5), x)
    assert torch.allclose(found, expected, atol=1e-12)
    leaves = [x, *model.parameters()]
    ours, theirs = (torch.autograd.grad(y.square().sum(), leaves, retain_graph=True) for y in (found, expected))
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(ours, theirs, strict=True))


def test_a_set_needs_a_hidden_layer():
    with pytest.raises(ConfigError, match="at least one hidden layer"):
        DeepSets(DeepSetsSettings(()), BAGS)
