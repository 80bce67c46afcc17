from functools import partial

import pytest
import torch

from edgewise import ConfigError, Graph, GraphError, causal, complete, strided, window
from edgewise.configuration import Choice, OneOf
from edgewise.models import Tokens, Transformer, TransformerSettings
from edgewise.models.text.transformer import ATTENTIONS, POSITIONS
from layers.parity import each

PATTERNS = {
    "causal": causal,
    "window": partial(window, radius=3, sides="past"),
    "strided": partial(strided, stride=3),
}


def _model(length=12, **options):
    settings = {"width": 16, "depth": 2, "heads": 4, "positions": "rotary"} | options
    model = Transformer(TransformerSettings(**settings), Tokens(7, 7, length=length)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # far from uniform, so that a wrong position changes the text
    return model


@pytest.mark.parametrize(
    ("options", "pattern", "positions"),
    each(
        [{}, {"attention": Choice("softmax", {"key_value_heads": 2})}, {"block": "post-norm"}, {"local": 3}],
        PATTERNS,
        POSITIONS,
    ),
)
def test_the_cache_never_changes_the_text(positions, pattern, options):
    model, prompt = _model(positions=positions, **options), torch.randint(7, (3, 5))
    texts = [model.generate(prompt, 30, PATTERNS[pattern], temperature=0.0, cache=cache) for cache in (True, False)]
    assert texts[0].shape == (3, 35)
    assert torch.equal(texts[0], texts[1])
    assert torch.equal(texts[0][:, :5], prompt)


@pytest.mark.parametrize(
    ("positions", "pattern", "attention"),
    each(["learned", "rotary"], PATTERNS, [name for name in ATTENTIONS if name != "softmax"]),
)
def test_what_each_attention_remembers_never_changes_the_text(attention, pattern, positions):
    positions = "sinusoidal" if (attention, positions) == ("hopfield", "rotary") else positions  # it takes no rotations
    options = [name for name in OneOf(ATTENTIONS).options(attention) if name in ("stride", "block", "chunk", "size")]
    model = _model(positions=positions, attention=Choice(attention, dict.fromkeys(options, 3)))
    prompt = torch.randint(7, (3, 5))
    if attention == "sinkhorn" and pattern != "causal":
        with pytest.raises(GraphError, match="rows of a causal one"):
            model.generate(prompt, 30, PATTERNS[pattern])
        return
    texts = [model.generate(prompt, 30, PATTERNS[pattern], temperature=0.0, cache=cache) for cache in (True, False)]
    assert torch.equal(*texts)


def test_greedy_text_is_the_most_probable_token_each_time():
    """Written out: read the context, take the best, forget the older half once 12 positions are full."""
    model, text = _model(), [3, 1, 4]
    context = list(text)
    for _ in range(25):
        context = context[-6:] if len(context) > 12 else context
        scores = model(causal(len(context)), torch.tensor(context))
        text.append(int(scores[-1].argmax()))
        context.append(text[-1])
    assert model.generate(torch.tensor([3, 1, 4]), 25, causal, temperature=0.0).tolist() == text


@pytest.mark.parametrize("cache", [True, False])
def test_every_call_of_the_model_reads_as_little_as_it_can(cache):
    model, seen = _model(), []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[1].shape)))
    model.generate(torch.zeros(1, 10, dtype=torch.int64), 6, causal, temperature=0.0, cache=cache)
    expected = [10, 1, 1, 6, 1, 1] if cache else [10, 11, 12, 6, 7, 8]
    assert [shape[1] for shape in seen] == expected


def test_sampling_is_repeatable_and_leaves_the_model_in_training():
    model = _model(dropout=0.5)
    texts = [
        model.generate(torch.tensor([[1]]), 20, causal, top_k=5, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    ]
    assert torch.equal(*texts)
    assert model.training


@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"top_k": 2}, {"cache": False}])
def test_only_allowed_tokens_are_drawn_and_in_proportion(options):
    """A token may only be followed by one of another parity."""

    def allowed(tokens):
        return torch.arange(7) % 2 != tokens[..., -1:] % 2

    model = _model(length=20)
    text = model.generate(torch.tensor([[1], [2]]), 15, causal, allowed=allowed, **options)
    assert ((text[:, 1:] - text[:, :-1]) % 2 == 1).all()
    everything = [
        model.generate(
            torch.tensor([[1]]), 9, causal, allowed=mask, generator=torch.Generator().manual_seed(0), **options
        )
        for mask in (None, lambda tokens: torch.ones(*tokens.shape[:-1], 7, dtype=torch.bool))
    ]
    assert torch.equal(*everything)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": torch.zeros(1, 0, dtype=torch.int64)}, "at least one token"),
        ({"temperature": -1.0}, "temperature must be"),
        ({"top_k": 0}, "top_k must be"),
        ({"top_p": 2.0}, "top_p must be above 0 and at most 1"),
        ({"pattern": complete}, "attends to a later one"),
        ({"pattern": lambda n: Graph.from_edge_index([[1], [0]], num_nodes=n)}, "attends to a later one"),
    ],
)
def test_impossible_requests_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        _model().generate(**({"tokens": torch.tensor([[1]]), "steps": 3, "pattern": causal} | options))
