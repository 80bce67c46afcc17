"""Models are counted before they take memory, and built as if they were not."""

import pytest
import torch
from torch import nn

from edgewise.errors import ConfigError
from edgewise.models import BERTSettings, Features, Tokens, Transformer, TransformerSettings
from edgewise.models import size as counting
from edgewise.models.size import build, outline
from edgewise.models.text.bert import BERT
from layers.parity import each


def transformer(**options):
    settings = TransformerSettings(**{"width": 8, "depth": 2, "heads": 2} | options)
    return lambda: Transformer(settings, Tokens(9, 9, length=6))


@pytest.mark.parametrize(
    ("small", "make"),
    each(
        [counting.SMALL, 16],
        [
            transformer(),
            transformer(attention="performer"),
            transformer(attention="lsh"),
            lambda: BERT(BERTSettings(8, 1, 2), Tokens(9, 9, length=6)),
            lambda: nn.LSTM(3, 5, 2),
        ],
    ),
)
def test_a_model_that_fits_is_built_bit_by_bit_as_without_the_count(make, small, monkeypatch):
    monkeypatch.setattr(counting, "SMALL", small)
    torch.manual_seed(1)
    expected, next_number = make().state_dict(), torch.rand(())
    torch.manual_seed(1)
    built = build(make, "the model").state_dict()
    assert all(torch.equal(value, built[name]) for name, value in expected.items())
    assert torch.equal(torch.rand(()), next_number)
    shapes = outline(make, "the model").state_dict()
    assert {name: value.shape for name, value in shapes.items()} == {n: value.shape for n, value in expected.items()}
    assert all(value.is_meta for value in shapes.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (transformer(width=10**6), r"the model has 24,000,[0-9,]+ weights: holding them takes 96\.0 TB"),
        (transformer(width=10**10), "the model has weights of an impossible size"),
        (transformer(depth=10**9), "the model has more than 1,000 tensors, and [0-9,]+ weights"),
        (
            lambda: Transformer(TransformerSettings(width=8, positions="none"), Features(10**12, 3)),
            "8,000,000,[0-9,]+ weights",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_the_number_of_its_weights(make, message, monkeypatch):
    monkeypatch.setattr(counting, "MAX_TENSORS", 1000)
    before = torch.get_rng_state()
    for check in (build, outline):
        with pytest.raises(ConfigError, match=message):
            check(make, "the model")
    assert check is outline
    torch.set_rng_state(before)
