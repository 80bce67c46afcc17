import pytest
import torch

from edgewise import ShapeError, complete
from edgewise.layers import RandomizedLinear
from edgewise.models import (
    Features,
    MLPSettings,
    Perceptron,
    RandomizedMLPSettings,
    RandomizedPerceptron,
)


def test_on_graphs_it_reads_all_nodes_in_a_row():
    model = Perceptron(MLPSettings((16,)), Features(3, 10, length=4, whole_graph=True))
    x = torch.randn(2, 4, 3)
    assert torch.equal(model(complete(4), x), model.mlp(x.reshape(2, 12))[:, None])
    assert torch.equal(model(None, x), model(complete(4), x))


def test_graphs_of_another_length_are_refused():
    model = Perceptron(MLPSettings(), Features(3, 10, length=4, whole_graph=True))
    with pytest.raises(ShapeError, match="graphs of 4 nodes"):
        model(complete(5), torch.zeros(5, 3))


def test_a_randomised_perceptron_answers_like_the_exact_one_with_its_weights():
    signature = Features(2, 3, length=4, whole_graph=True)
    model = RandomizedPerceptron(RandomizedMLPSettings((8, 5), keep=0.5), signature)
    exact = Perceptron(MLPSettings((8, 5)), signature)
    exact.load_state_dict(model.state_dict())
    x = torch.randn(6, 4, 2)
    assert torch.equal(model(None, x), exact(None, x))
    assert {type(linear) for linear in model.mlp.linears} == {RandomizedLinear}
