"""Every layer of the table passes every check: a new line in LAYERS is tested here without another word."""

import inspect
import re

import pytest
import torch

from edgewise import LAYERS, plans, use_backend
from edgewise.errors import EdgewiseError
from edgewise.testing import PROPERTIES, check_layer, joined


@pytest.mark.parametrize("name", LAYERS)
def test_layer_conforms(name):
    layer, graph, inputs = LAYERS[name].example()
    assert type(layer) is LAYERS[name] is type(layer.example()[0])
    check_layer(layer, graph, *inputs, skip=["compile"])


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_size_of_nothing_makes_a_layer_or_an_error_that_says_so():
    refused = []
    for name, layer in LAYERS.items():
        sizes = inspect.signature(layer).parameters.values()
        required = {one.name: 8 for one in sizes if one.default is one.empty and one.annotation in (int, "int")}
        if len(required) < sum(one.default is one.empty for one in sizes):
            continue  # needs other parts too
        for size in sizes:
            if size.annotation in (int, "int"):
                try:
                    layer(**required | {size.name: 0})
                except EdgewiseError as error:
                    refused.append((f"{name}({size.name}=0)", str(error)))
    assert all(re.search(r"(\b|=)0\b", message) for _, message in refused)
    assert {"MultiHeadAttention(width=0)", "SchNet(filters=0)", "SAGELSTM(inputs=0)"} <= {*dict(refused)}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_runs_on_the_reference(name):
    layer, graph, inputs = LAYERS[name].example()
    layer.eval()
    expected = joined(layer(graph, *inputs))
    with use_backend("reference"), plans() as made:
        found = joined(layer(graph, *inputs))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert all(one.seconds is not None for plan in made for one in plan.candidates if one.backend == "reference")


@pytest.mark.parametrize("name", LAYERS)
def test_layer_has_several_gradients_at_once(name):
    layer, graph, inputs = LAYERS[name].example()
    layer.eval()
    leaves = [x.requires_grad_() for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
    y = joined(layer(graph, *inputs))
    leaves += [p for p in layer.parameters() if p.requires_grad]
    dy = torch.randn(2, *y.shape)

    def gradients(dy, batched=False):
        return torch.autograd.grad(y, leaves, dy, retain_graph=True, allow_unused=True, is_grads_batched=batched)

    one_by_one = list(zip(*map(gradients, dy), strict=True))
    reached = [leaf for leaf, (first, *_) in zip(leaves, one_by_one, strict=True) if first is not None]
    mapped = iter(torch.func.vmap(lambda d: torch.autograd.grad(y, reached, d, retain_graph=True))(dy))
    for found, expected in zip(gradients(dy, True), one_by_one, strict=True):
        if found is not None:
            for several in (found, next(mapped)):
                torch.testing.assert_close(several, torch.stack(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_compiles(name):
    layer, graph, inputs = LAYERS[name].example()
    check_layer(layer, graph, *inputs, skip=[other for other in PROPERTIES if other != "compile"])


def test_only_layers_of_positions_and_of_an_order_depend_on_the_numbering():
    stated = {name for name, layer in LAYERS.items() if not getattr(layer, "equivariant", True)}
    relative = {"ALiBiAttention", "T5Attention", "ShawAttention", "TransformerXLAttention"}
    others = {
        "Sinusoidal",
        "Learned",
        "Rotary",
        "FactorisedAttention",
        "WindowAttention",
        "SAGELSTM",
        "FirstReadout",
        "LaplacianEncoding",
    }
    of_content = {"LSHAttention", "RoutingAttention", "SinkhornAttention"}
    assert stated == others | relative | of_content | {"LaplacianEncoding"}


def test_only_layers_with_a_graph_of_their_own_hear_beyond_the_given_one():
    stated = {name for name, layer in LAYERS.items() if not getattr(layer, "local", True)}
    assert stated == {
        "DynamicEdgeConv",
        "PPGN",
        "Marked",
        "GraphormerAttention",
        "HadamardAttention",
        "GPS",
        "PairNorm",
        "VirtualNode",
    }


def test_a_layer_with_dropout_is_checked_with_some():
    takes = {name for name, layer in LAYERS.items() if "dropout" in inspect.signature(layer).parameters}
    without = {name for name in takes if not LAYERS[name].example()[0].dropout}
    assert len(takes) > 15 and without == set()


def test_only_layers_with_something_nonlinear_behind_dropout_have_another_mean_in_training():
    stated = {name for name, layer in LAYERS.items() if not getattr(layer, "unbiased", True)}
    blocks = {"PreNormBlock", "PostNormBlock", "OneResidualBlock", "PreNormDecoderBlock", "PostNormDecoderBlock"}
    assert stated == blocks | {"GPS"}


@pytest.mark.parametrize("name", LAYERS)
def test_docstring_has_every_section(name):
    text = LAYERS[name].__doc__
    missing = [s for s in ("Equation", "Shapes", "Edge cases", "Cost", "Example") if f"    {s}" not in text]
    assert not missing


@pytest.mark.parametrize("name", LAYERS)
def test_example_is_small_and_runs(name):
    layer, graph, inputs = LAYERS[name].example()
    assert graph.num_receivers <= 8
    assert isinstance(joined(layer(graph, *inputs)), torch.Tensor)
