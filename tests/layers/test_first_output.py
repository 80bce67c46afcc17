"""What each layer's example is and computes, in training and after, and what it makes of inputs that do not fit."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from edgewise import LAYERS
from edgewise.testing import joined
from recorded import check_recorded, shown, summary
from variations import misfits, outcome, outcomes

FAMILIES: dict[str, list[str]] = {}
for layer_name in LAYERS:
    FAMILIES.setdefault(LAYERS[layer_name].__module__.split(".")[2], []).append(layer_name)


def lines(name: str) -> Iterator[str]:
    torch.manual_seed(0)
    layer, graph, inputs = LAYERS[name].example()
    yield f"{name} {summary([graph, *inputs])}"
    for part, value in layer.state_dict().items():
        yield f"    {part} {summary(value)}"
    for mode in ("training", "evaluation"):
        layer.train(mode == "training")
        torch.manual_seed(0)
        y = joined(layer(graph, *inputs))
        yield f"    {mode} {summary(y)}"
    if y.requires_grad:
        (y.flatten() * torch.arange(y.numel()).cos()).sum().backward()
        for part, weight in layer.named_parameters():
            if weight.grad is not None:
                yield f"    gradient to {part} {shown(weight.grad.double().norm().item())}"


@pytest.mark.parametrize("family", FAMILIES)
def test_first_outputs_are_those_on_record(family: str) -> None:
    check_recorded(f"layers/{family}", (line for name in FAMILIES[family] for line in lines(name)))


def made_of_misfits(name: str) -> Iterator[str]:
    torch.manual_seed(0)
    layer, graph, inputs = LAYERS[name].example()
    layer.eval()
    for number, given in enumerate(inputs):
        for what, misfit in misfits(given):
            arguments = [*inputs[:number], misfit, *inputs[number + 1 :]]
            result = outcome(lambda arguments=arguments: joined(layer(graph, *arguments)))
            yield f"{name}, input {number} {what}: {result}"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_made_of_misfits_is_on_record(family: str) -> None:
    check_recorded(f"layers/misfits-{family}", (line for name in FAMILIES[family] for line in made_of_misfits(name)))


def given_to(layer: type[torch.nn.Module], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the example's constructor is given, by name, and its defaults."""
    seen: list[dict[str, Any]] = []
    original, signature = layer.__init__, inspect.signature(layer.__init__)

    def noting(self: Any, *arguments: Any, **options: Any) -> None:
        bound = signature.bind(self, *arguments, **options)
        bound.apply_defaults()
        seen.append({name: value for name, value in bound.arguments.items() if name != "self"})
        original(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(layer, "__init__", noting)
        layer.example()
    return seen[0]


def made_of_others(name: str, given: dict[str, Any]) -> Iterator[str]:
    def made(**options: Any) -> list[Any]:
        torch.manual_seed(0)
        _, graph, inputs = LAYERS[name].example()
        layer = LAYERS[name](**options).eval()
        return [sum(weight.numel() for weight in layer.parameters()), joined(layer(graph, *inputs))]

    return outcomes(name, made, given)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("family", FAMILIES)
def test_what_other_options_make_is_on_record(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (line for name in FAMILIES[family] for line in made_of_others(name, given_to(LAYERS[name], monkeypatch)))
    check_recorded(f"layers/options-{family}", lines)
