import itertools

import pytest
import torch
from torch import nn

from edgewise import ConfigError
from edgewise.graphs import EncoderDecoderGraph
from edgewise.models import EncoderDecoder, EncoderDecoderSettings, TokenPairs, translate
from edgewise.models.text.transformer import POSITIONS
from layers.parity import each

BEGIN, END = 0, 1
SOURCES = [torch.tensor([3, 2, 4]), torch.tensor([2]), torch.tensor([3, 3, 2, 4, 3])]


def _model(seed=0, spread=0.7, **options):
    settings = {"width": 8, "encoder_depth": 1, "decoder_depth": 2, "heads": 2, "tied": False} | options
    signature = TokenPairs(5, 5, length=40)
    model = EncoderDecoder(EncoderDecoderSettings(**settings), signature).double().eval()
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=spread)  # far from uniform, so that a wrong position changes the text
    return model


@torch.no_grad()
def _log_p(model, source, target, longest):
    """log p of a target: the sum over its tokens; at `longest` tokens it must end, which then costs nothing."""
    graph = EncoderDecoderGraph.of([len(source)], [len(target) + 1])
    scores = model(graph, torch.cat([source, torch.tensor([BEGIN, *target])])).log_softmax(-1)
    steps = zip(scores, [*target, END], strict=True)
    return sum(float(step[token]) for n, (step, token) in enumerate(steps, 1) if n < longest)


def test_a_beam_as_wide_as_there_are_targets_is_brute_force():
    """The best of all 85 targets of up to 4 tokens, for three penalties that choose differently."""
    model, longest = _model(seed=2, spread=0.25), 4
    targets = [t for n in range(longest) for t in itertools.product((0, 2, 3, 4), repeat=n)]
    lengths = torch.tensor([len(target) + 1 for target in targets])
    log_p = [torch.tensor([_log_p(model, source, target, longest) for target in targets]) for source in SOURCES]
    chosen = set()
    for penalty in (0.0, 0.6, 3.0):
        found = translate(model, SOURCES, (BEGIN, END), beam=4**3, penalty=penalty, longest=longest)
        for one, of_source in zip(found, log_p, strict=True):
            score, best = (of_source / ((5 + lengths) / 6) ** penalty).max(-1)
            assert tuple(one.tokens.tolist()) == targets[best]
            assert one.score == pytest.approx(float(score), rel=1e-6)
            chosen.add(targets[best])
    assert len(chosen) > 1


def _greedy(model, source, longest):
    """Written out: read all tokens anew, take the likeliest."""
    target = []
    while len(target) < longest - 1:
        graph = EncoderDecoderGraph.of([len(source)], [len(target) + 1])
        token = int(model(graph, torch.cat([source, torch.tensor([BEGIN, *target])]))[-1].argmax())
        if token == END:
            break
        target.append(token)
    return target


@pytest.mark.parametrize(("seed", "cache"), each(range(2), [True, False]))
def test_a_beam_of_one_without_penalty_is_greedy(cache, seed):
    model = _model(seed)
    found = translate(model, SOURCES, (BEGIN, END), beam=1, penalty=0.0, longest=12, cache=cache)
    expected = [_greedy(model, source, 12) for source in SOURCES]
    assert [one.tokens.tolist() for one in found] == expected
    assert [one.score for one in found] == pytest.approx(
        [_log_p(model, source, target, 12) for source, target in zip(SOURCES, expected, strict=True)]
    )


@pytest.mark.parametrize(("beam", "order", "positions"), each([1, 3], ["pre", "post"], POSITIONS))
def test_the_cache_never_changes_the_text(positions, order, beam):
    model = _model(2, positions=positions, block=f"{order}-norm")
    ways = [translate(model, SOURCES, (BEGIN, END), beam, 0.6, longest=15, cache=cache) for cache in (True, False)]
    assert [one.tokens.tolist() for one in ways[0]] == [one.tokens.tolist() for one in ways[1]]
    assert [one.score for one in ways[0]] == pytest.approx([one.score for one in ways[1]])


@pytest.mark.parametrize("beam", [1, 4])
def test_sources_do_not_disturb_each_other(beam):
    """Some are done before others, and leave the batch."""
    model = _model(3)
    limits = {3: 9, 1: 3, 5: 14}
    together = translate(model, SOURCES, (BEGIN, END), beam, longest=limits.__getitem__)
    alone = [translate(model, [source], (BEGIN, END), beam, longest=limits.__getitem__)[0] for source in SOURCES]
    assert [one.tokens.tolist() for one in together] == [one.tokens.tolist() for one in alone]
    assert all(len(one.tokens) < limits[len(source)] for one, source in zip(together, SOURCES, strict=True))


def test_it_leaves_the_model_in_training_and_needs_no_source():
    model = _model().train()
    assert translate(model, [], (BEGIN, END)) == []
    translate(model, SOURCES, (BEGIN, END), longest=3)
    assert model.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam=0"),
        ({"penalty": -0.1}, "penalty=-0.1"),
        ({"longest": 0}, "longest=0"),
        ({"sources": [torch.zeros(0, dtype=torch.int64)]}, "empty source"),
    ],
)
def test_impossible_searches_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        translate(**({"model": _model(), "sources": SOURCES, "ends": (BEGIN, END)} | options))
