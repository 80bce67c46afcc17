"""The checks must fail: for each property, a layer that has all of them but this one."""

import pytest
import torch
from torch import nn

from edgewise import ConfigError, Graph, aggregate, causal, collect, ends
from edgewise.kernels import dropout
from edgewise.layers import GCN, MeanReadout
from edgewise.testing import PROPERTIES, check_layer
from testing.sound import GRAPH, Sound


class ReadsTheNumbering(Sound):
    def forward(self, graph, x):
        return super().forward(graph, x) + torch.arange(x.shape[-2])[:, None]


class DeniesItsSymmetry(Sound):
    equivariant = False


class MixesTheBatch(Sound):
    def forward(self, graph, x):
        return super().forward(graph, x) * (x.shape[0] if x.ndim == 3 else 1)


class DividesByTheDegree(Sound):
    def forward(self, graph, x):
        return self.linear(aggregate(graph, x) / graph.in_degrees()[:, None] + x)


class TellsEverybody(Sound):
    def forward(self, graph, x):
        return super().forward(graph, x) + self.linear(x.sum(-2, keepdim=True))


class NeedsANode(Sound):
    def forward(self, graph, x):
        return super().forward(graph, x) + 0 * x[..., :1, :].amax()


class AddsARow(Sound):
    def forward(self, graph, x):
        y = super().forward(graph, x)
        return y if x.shape[-2] else self.linear(x.new_zeros(1, 3))


class HidesAGradient(Sound):
    def forward(self, graph, x):
        return super().forward(graph, x * x.detach())


class Dropping(Sound):
    """Drops messages, in the way that the derived classes say."""

    dropout = 0.5

    def drop(self, x):
        return dropout(x, self.dropout, self.training)

    def forward(self, graph, x):
        return self.linear(collect(graph, self.drop(ends(graph, x)[1])) + x)


class DropsNothing(Dropping):
    """As the dropout of weights that a softmax returns, but that nobody multiplies with."""

    def drop(self, x):
        dropout(x, self.dropout, self.training)
        return x


class ForgetsToScale(Dropping):
    def drop(self, x):
        return dropout(x, self.dropout, self.training) * (1 - self.dropout * self.training)


class DropsFromASeedOfItsOwn(Dropping):
    calls = 0

    def drop(self, x):
        type(self).calls += 1
        kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(self.calls)) >= self.dropout
        return x * kept / (1 - self.dropout) if self.training else x


class DropsOthersInTheBackwardPass(Dropping):
    def drop(self, x):
        if not self.training:
            return x
        forward, backward = (dropout(torch.ones_like(x), self.dropout, True) for _ in range(2))
        return x * backward + (x * (forward - backward)).detach()


class SquaresWhatItDropped(Dropping):
    def forward(self, graph, x):
        return super().forward(graph, x) ** 2


class ReturnsSinglePrecision(Sound):
    def forward(self, graph, x):
        y = super().forward(graph, x)
        return y.float() if x.dtype == torch.bfloat16 else y


class LosesPrecision(Sound):
    def forward(self, graph, x):
        y = super().forward(graph, x)
        return y.round(decimals=1) if y.dtype == torch.float32 else y


class MixesDtypes(Sound):
    def forward(self, graph, x):
        y = super().forward(graph, x)
        return x.new_zeros(y.shape).index_add(-2, torch.arange(x.shape[-2]), y)


class HoldsALooseTensor(Sound):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(2)


class SharesItsWeight(Sound):
    def __init__(self):
        super().__init__()
        self.again = nn.Linear(3, 2)
        self.again.weight = self.linear.weight


class ForgetsItsBias(Sound):
    def state_dict(self, **options):
        return super().state_dict(**options) | {"linear.bias": torch.zeros(2, dtype=self.linear.bias.dtype)}


class ComputesAnotherThingCompiled(Sound):
    def forward(self, graph, x):
        y = super().forward(graph, x)
        return 2 * y if torch.compiler.is_compiling() else y


BROKEN = [
    (ReadsTheNumbering, "permutation", "in another order changes the result"),
    (DeniesItsSymmetry, "permutation", "says equivariant = False"),
    (MixesTheBatch, "leading batch", "one after the other"),
    (DividesByTheDegree, "isolated nodes", "infinite or NaN"),
    (TellsEverybody, "isolated nodes", "other nodes depend on"),
    (NeedsANode, "empty graph", "raised"),
    (AddsARow, "empty graph", "1 rows, expected 0"),
    (HidesAGradient, "gradients", "finite differences disagree"),
    (DropsNothing, "training", "dropout changes nothing"),
    (ForgetsToScale, "training", "dropout moves the mean of 128 results by [0-9]+ standard errors"),
    (DropsFromASeedOfItsOwn, "training", "the same seed gives another output"),
    (DropsOthersInTheBackwardPass, "training", "finite differences disagree"),
    (SquaresWhatItDropped, "training", "dropout moves the mean"),
    (ReturnsSinglePrecision, "dtypes", "is torch.float32 for torch.bfloat16"),
    (LosesPrecision, "dtypes", "in torch.float32 the output is off"),
    (MixesDtypes, "mixed precision", "raised RuntimeError"),
    (HoldsALooseTensor, "state dict", "scale is a tensor that state_dict"),
    (SharesItsWeight, "state dict", "raised RuntimeError"),
    (ForgetsItsBias, "state dict", "another result"),
    (ComputesAnotherThingCompiled, "compile", "torch.compile changes the output"),
]


@pytest.mark.parametrize(("layer", "name", "message"), BROKEN, ids=[layer.__name__ for layer, _, _ in BROKEN])
def test_a_broken_layer_fails_its_check_and_no_other(layer, name, message):
    broken, x = layer(), torch.randn(5, 3)
    with pytest.raises(AssertionError, match=f"^{layer.__name__}: {name}: .*{message}"):
        check_layer(broken, GRAPH, x, skip=[other for other in PROPERTIES if other != name])
    others = {other for one, other, _ in BROKEN if one is layer} | {"compile"}
    if layer not in (MixesTheBatch, DividesByTheDegree, HidesAGradient, HoldsALooseTensor):  # these break more than one
        check_layer(broken, GRAPH, x, skip=others)


def test_every_property_has_a_layer_that_breaks_it():
    assert {name for _, name, _ in BROKEN} | {"backends"} == set(PROPERTIES)


def test_a_sound_layer_passes_and_is_left_as_it_was():
    layer, x = Sound(), torch.randn(5, 3)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    check_layer(layer, GRAPH, x)
    assert layer.training
    assert not x.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_dropout_that_is_right_passes_and_before_a_nonlinear_map_if_the_layer_says_so():
    class SaysSo(SquaresWhatItDropped):
        unbiased = False

    for layer in (Dropping(), SaysSo()):
        check_layer(layer, GRAPH, torch.randn(5, 3), skip=set(PROPERTIES) - {"training"})


def test_the_random_numbers_of_the_caller_go_on_as_if_nothing_had_been_checked():
    layer = Dropping()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    check_layer(layer, GRAPH, torch.ones(5, 3), skip=set(PROPERTIES) - {"training"})
    assert torch.equal(torch.rand(3), expected)


def test_a_readout_may_hear_every_node_but_not_their_order():
    class FirstNode(nn.Module):
        def forward(self, graph, x):
            return MeanReadout()(graph, x) + x[..., :1, :]

    two = Graph.batch([causal(3), causal(2)])
    check_layer(MeanReadout(), two, torch.randn(5, 3), skip=["compile"])
    with pytest.raises(AssertionError, match="permutation"):
        check_layer(FirstNode(), causal(5), torch.randn(5, 3), skip=["compile"])


def test_an_unknown_property_is_refused():
    with pytest.raises(ConfigError, match="no properties"):
        check_layer(GCN(3, 2), GRAPH, torch.randn(5, 3), skip=["permutations"])


def test_a_buffer_of_truth_values_survives_the_round_trip():
    layer = Sound()
    layer.register_buffer("kept", torch.tensor([True, False]))
    check_layer(layer, GRAPH, torch.randn(GRAPH.num_receivers, 3))
