"""Every model with settings, features or tokens wrong: a sentence of Edgewise's, never an error of Python's."""

import math
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgewise import Graph, complete
from edgewise.configuration import Option, options_of
from edgewise.errors import ConfigError, EdgewiseError
from edgewise.graphs import EncoderDecoderGraph
from edgewise.models import MODELS
from edgewise.models.signature import Atoms, Features, MovingParticles, TokenPairs, Tokens
from layers.test_wrong_inputs import refusal

SIGNATURES = {
    "features": Features(4, 4),
    "one feature": Features(1, 3, length=16, whole_graph=True),
    "positions and values": Features(4, 3),
    "edges": Features(4, 3, edges=2),
    "particles": MovingParticles(7, 3, space=3),
    "atoms": Atoms(7, 4, space=3, radius=4.0),
    "tokens": Tokens(5, 5, length=6),
    "texts": Tokens(5, 3, length=6, whole_graph=True),
    "pairs": TokenPairs(10, 10),
}


def inputs_of(signature: Any) -> tuple[Any, ...]:
    """A graph, and what a model of that signature reads beside it."""
    if isinstance(signature, TokenPairs):
        return EncoderDecoderGraph.of([3, 2], [2, 4]), torch.arange(11) % 10
    if isinstance(signature, Tokens):
        return complete(6), torch.arange(6) % 5
    length = signature.length or 6
    graph, x = complete(length), torch.randn(length, signature.inputs)
    if isinstance(signature, Atoms):
        x[:, 3:] = 8.0
    return (graph, x, torch.randn(graph.num_edges, 2)) if signature.edges else (graph, x)


def models() -> Iterator[Any]:
    for name, (settings, module) in MODELS.items():
        for kind, signature in SIGNATURES.items():
            try:
                model: nn.Module = module(settings(), signature)
            except EdgewiseError:
                continue
            yield pytest.param(model.eval(), *inputs_of(signature), id=f"{name}-{kind}")


def wrong(x: Tensor) -> Iterator[Any]:
    yield from (x.tolist(), x.numpy(), "x", None, complete(6), x[:-1], x.new_zeros(()), x.to(torch.complex64))
    if x.is_floating_point():
        yield from (x[..., :-1], torch.cat([x, x], -1), x.flatten()[:5], x.double(), x.long(), x.bool(), x.to_sparse())
        yield x[None, None]
    else:
        yield from (x - 1, x + 10, x.float(), x + 2**40)


@pytest.mark.parametrize(
    ("model", "graph", "inputs"), [pytest.param(p.values[0], p.values[1], p.values[2:], id=p.id) for p in models()]
)
def test_each_wrong_input_is_named(model: nn.Module, graph: Graph, inputs: tuple[Tensor, ...]) -> None:
    if (other := refusal(model, graph, *inputs)) is not None:  # this model reads other graphs
        assert len(other) > 20
        return
    for number, x in enumerate(inputs):
        for value in wrong(x):
            said = refusal(model, graph, *inputs[:number], value, *inputs[number + 1 :])
            assert said is None or len(said) > 20
            assert said is not None or isinstance(value, Tensor), type(value)


def settings_of(settings: type[Any]) -> Iterator[type[Any]]:
    """The settings of a model, and those inside."""
    yield settings
    for option in options_of(settings).values():
        yield from settings_of(option.hint) if isinstance(option.hint, type) and is_dataclass(option.hint) else ()


def wrong_values(name: str, option: Option) -> tuple[Any, ...]:
    if option.table is None and "int" in str(option.hint):
        return -1, 2.5, "three", math.nan
    if option.table is None and "float" in str(option.hint):
        return -1.0, "half", math.nan, math.inf, *([1.5] if "dropout" in name else [])
    return "?", 3


@pytest.mark.parametrize("settings", [inner for outer, _ in MODELS.values() for inner in settings_of(outer)])
def test_each_wrong_setting_is_named_where_it_is_made(settings: type[Any]) -> None:
    for name, option in options_of(settings).items():
        for value in wrong_values(name, option):
            given = (value,) if str(option.hint).startswith("tuple") else value
            with pytest.raises(ConfigError, match=rf"^{settings.__name__}\.{name} .*{re.escape(repr(value))}"):
                settings(**{name: given})
