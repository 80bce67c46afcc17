"""What each layer's example is and computes, in training and after, and what it makes of inputs that do not fit."""

from collections.abc import Iterator

import pytest
import torch

from edgewise import LAYERS
from edgewise.errors import EdgewiseError
from edgewise.testing import joined
from recorded import check_recorded, shown, summary

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


def misfits(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    yield "less an axis", x[0]
    yield "a row more", torch.cat([x, x[-1:]])
    if x.ndim > 1:
        yield "a channel more", torch.cat([x, x[..., -1:]], -1)
        yield "a channel fewer", x[..., :-1]
    yield "in a batch", torch.stack([x, x])


def made_of_misfits(name: str) -> Iterator[str]:
    torch.manual_seed(0)
    layer, graph, inputs = LAYERS[name].example()
    layer.eval()
    for number, given in enumerate(inputs):
        for what, misfit in misfits(given):
            try:
                result = summary(joined(layer(graph, *inputs[:number], misfit, *inputs[number + 1 :])))
            except EdgewiseError as error:
                result = f"{type(error).__name__}: {error}"
            except (RuntimeError, IndexError):
                result = "an error of PyTorch's"
            yield f"{name}, input {number} {what}: {result}"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_made_of_misfits_is_on_record(family: str) -> None:
    check_recorded(f"layers/misfits-{family}", (line for name in FAMILIES[family] for line in made_of_misfits(name)))
