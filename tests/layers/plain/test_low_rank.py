from copy import deepcopy

import pytest
import torch
from torch import nn

from edgewise import CheckpointError, ConfigError, complete
from edgewise.layers.plain.low_rank import LowRank, adapt, adapters, load_adapters, merge, settle, unmerge
from edgewise.models import Features, Transformer, TransformerSettings
from layers.parity import each


def _model():
    torch.manual_seed(0)
    settings = TransformerSettings(width=8, depth=2, heads=2, positions="none")
    return Transformer(settings, Features(5, 3)).double()


def _trained(model):
    """The model with additions that are not zero."""
    for addition in (module for module in model.modules() if isinstance(module, LowRank)):
        nn.init.normal_(addition.B, std=0.3)
    return model


X = torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_an_adapted_model_begins_as_it_was():
    model = _model()
    before = model(complete(6), X)
    assert adapt(model, 2, names="blocks.*.attention.*") == [
        f"blocks.{block}.attention.{part}" for block in (0, 1) for part in ("projection", "output")
    ]
    assert torch.equal(model(complete(6), X), before)


@pytest.mark.parametrize("alpha", [None, 8.0])
def test_the_addition_is_its_equation(alpha):
    """W x + b + α/r B (A x), forward and gradient."""
    torch.manual_seed(0)
    linear = nn.Linear(5, 4).double()
    model = nn.Sequential(linear)
    weight, bias = linear.weight.detach().clone(), linear.bias.detach().clone()
    adapt(model, 2, alpha)
    addition = _trained(model)[0].parametrizations.weight[0]
    a, b = (getattr(addition, part).detach().clone().requires_grad_() for part in ("A", "B"))
    expected = X @ weight.T + bias + (1.0 if alpha is None else 4.0) * (X @ a.T @ b.T)
    found = model(X)
    assert torch.allclose(found, expected, atol=1e-12)
    theirs = torch.autograd.grad(expected.square().sum(), [a, b])
    ours = torch.autograd.grad(found.square().sum(), [addition.A, addition.B])
    assert all(torch.allclose(*pair, atol=1e-10) for pair in zip(ours, theirs, strict=True))


def test_only_the_additions_are_trained():
    model = _model()
    adapt(model, 1)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert names == [f"{name}" for name in adapters(model)]
    model(complete(6), X).sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())


def test_merged_is_unmerged():
    model = _model()
    adapt(model, 2)
    bare = {name: value.clone() for name, value in model.state_dict().items()}
    expected = _trained(model)(complete(6), X)
    merge(model)
    merge(model)  # once is enough
    assert (model(complete(6), X) - expected).abs().max() < 1e-12
    unmerge(model)
    assert (model(complete(6), X) - expected).abs().max() < 1e-12
    originals = {name: value for name, value in model.state_dict().items() if name.endswith("original")}
    assert originals and all(torch.allclose(value, bare[name], atol=1e-12) for name, value in originals.items())
    single = _trained(adapted(_model().float()))
    before = single(complete(6), X.float())
    merge(single)
    assert (single(complete(6), X.float()) - before).abs().max() < 1e-6


def adapted(model):
    adapt(model, 2)
    return model


def test_a_settled_model_is_plain_again():
    model, plain = _trained(adapted(_model())), _model()
    expected = model(complete(6), X)
    settle(model)
    assert model.state_dict().keys() == plain.state_dict().keys()
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert (model(complete(6), X) - expected).abs().max() < 1e-12


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.again, self.head = nn.Embedding(7, 5), nn.Linear(5, 7), nn.Linear(5, 7)
        self.again.weight = self.head.weight = self.embed.weight
        self.double()

    def forward(self, tokens):
        h = self.embed(tokens)
        return self.head(h) + self.again(h).tanh()


def test_a_weight_that_others_read_stays_theirs():
    tokens = torch.arange(7)
    model = _trained(adapted(Tied()))
    shared, before = model.embed.weight, model(tokens)
    bare, state = shared.clone(), {name: value.clone() for name, value in model.state_dict().items()}
    for merged in (model, deepcopy(model)):
        merge(merged)
        assert (merged(tokens) - before).abs().max() < 1e-12
        assert torch.equal(merged.embed.weight, bare)
        assert all(torch.equal(value, state[name]) for name, value in merged.state_dict().items())
    unmerge(model)
    assert model.head.parametrizations.weight.original is model.again.parametrizations.weight.original is shared
    settle(model)
    assert (model(tokens) - before).abs().max() < 1e-12
    assert torch.equal(model.embed.weight, bare)
    assert model.state_dict().keys() == Tied().state_dict().keys()


@pytest.mark.parametrize(("loaded", "saved"), each([False, True], [False, True]))
def test_a_state_dict_is_the_same_whether_merged_or_not(saved, loaded):
    first, second = _trained(adapted(_model())), _trained(adapted(_model()))
    expected, keys = first(complete(6), X), first.state_dict().keys()
    for model, merged in ((first, saved), (second, loaded)):
        if merged:
            merge(model)
    assert first.state_dict().keys() == keys
    second.load_state_dict(first.state_dict())
    assert (first(complete(6), X) - expected).abs().max() < 1e-12
    for move in (merge, unmerge, merge):
        assert (second(complete(6), X) - expected).abs().max() < 1e-12
        move(second)


def test_adapters_carry_over():
    first, second = _trained(adapted(_model())), adapted(_model())
    merge(second)
    load_adapters(second, adapters(first))
    assert torch.equal(first(complete(6), X), second(complete(6), X))
    missing = dict(list(adapters(first).items())[1:])
    with pytest.raises(CheckpointError, match=r"is absent, and \[2, 5\] in the model"):
        load_adapters(second, missing)


def test_what_cannot_be_adapted_is_refused():
    with pytest.raises(ConfigError, match="rank of at least 1"):
        adapt(_model(), 0)
    with pytest.raises(ConfigError, match=r"like 'encoder\.\*'; they are embed"):
        adapt(_model(), 1, names="encoder.*")
    with pytest.raises(ConfigError, match="adapted already"):
        adapt(adapted(_model()), 1)


@pytest.mark.parametrize(
    "norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm]
)
def test_a_norm_of_weights_stays_and_is_not_adapted(norm):
    model, x = nn.Sequential(norm(nn.Linear(3, 3)), nn.Linear(3, 3)).eval(), torch.randn(2, 3)
    names, expected = {name for name, _ in model.named_parameters()}, model(x)
    with pytest.raises(ConfigError, match="'0' has a weight that follows from others"):
        adapt(model, rank=1)
    adapt(model, rank=1, names="1")
    merge(model)
    settle(model)
    assert {name for name, _ in model.named_parameters()} == names and torch.equal(model(x), expected)
