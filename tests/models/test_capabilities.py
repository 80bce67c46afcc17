"""What is computed in evaluation mode leaves every part of a model in the mode in which it was."""

import pytest
import torch
from torch import nn

from edgewise import Graph, causal
from edgewise.models import (
    GNN,
    EncoderDecoder,
    EncoderDecoderSettings,
    Features,
    GNNSettings,
    PooledTransformer,
    PooledTransformerSettings,
    TokenPairs,
    Tokens,
    Transformer,
    TransformerSettings,
    energy_by_depth,
    translate,
)
from edgewise.models.signature import evaluating
from layers.parity import each

PAIR, X = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2), torch.ones(2, 3)
CALLS = {
    "generate": (
        lambda: Transformer(TransformerSettings(8, 2, 2), Tokens(5, 5, length=4)),
        lambda model: model.generate(torch.tensor([1]), 2, causal),
    ),
    "translate": (
        lambda: EncoderDecoder(EncoderDecoderSettings(8, 1, 1, 2), TokenPairs(6, 6)),
        lambda model: translate(model, [torch.tensor([3, 4])], (0, 1), longest=3),
    ),
    "relevance": (
        lambda: PooledTransformer(PooledTransformerSettings(width=8, norm="batch"), Features(3, 2, whole_graph=True)),
        lambda model: model.relevance(PAIR, X, 1),
    ),
    "energies": (
        lambda: GNN(GNNSettings(depth=3, norm="batch"), Features(3, 2)),
        lambda model: energy_by_depth(model, PAIR, X),
    ),
}


@pytest.mark.parametrize(("training", "name"), each([True, False], CALLS))
def test_parts_that_are_frozen_stay_so(name, training):
    made, call = CALLS[name]
    model = made().train(training)
    *_, last = model.modules()
    last.train(not training)
    before = {name: part.training for name, part in model.named_modules()}
    call(model)
    assert {name: part.training for name, part in model.named_modules()} == before


def test_modes_come_back_after_an_error_and_a_part_hears_of_them():
    class Own(nn.Linear):
        def train(self, mode: bool = True) -> nn.Module:
            modes.append(mode)
            return super().train(mode)

    modes: list[bool] = []
    model = nn.Sequential(Own(1, 1), nn.Dropout().eval())
    with pytest.raises(ZeroDivisionError), evaluating(model):
        model(torch.ones(1 // int(model.training)))
    assert [part.training for part in model.modules()] == [True, True, False] and modes == [False, True]
