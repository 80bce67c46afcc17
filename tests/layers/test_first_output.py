"""What each layer's example is and computes, in training and after."""

import re
from collections.abc import Iterator

import pytest
import torch

from edgewise import LAYERS
from edgewise.testing import joined
from recorded import FOLDER, check_recorded, shown, summary

# The layers on record, by family: a new one needs no record.
FAMILIES = {
    path.stem: re.findall(r"^(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    for path in sorted((FOLDER / "layers").glob("*.txt"))
}


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
