"""The recurrent encoder-decoder: its equation pair by pair; decoding with a cache is the forward pass of training."""

import pytest
import torch

from edgewise import ConfigError, Graph, ShapeError, causal, complete
from edgewise.graphs import EncoderDecoderGraph
from edgewise.models import (
    Features,
    Recurrent,
    RecurrentEncoderDecoder,
    RecurrentEncoderDecoderSettings,
    RecurrentSettings,
    TokenPairs,
    Tokens,
    translate,
)
from layers.parity import each

TOKENS = Tokens(7, 7, length=6)


def _model(cell, signature=TOKENS, **settings):
    torch.manual_seed(0)
    model = Recurrent(RecurrentSettings(cell, width=5, **settings), signature).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def _step(cell, parts, x, state):
    """One step of the cell as its equation writes it: the new state, of which the first part is the output."""
    w, u, b, c = parts
    of_x, of_h = x @ w.T + b, state[0] @ u.T + c
    if cell == "plain":
        return (torch.tanh(of_x + of_h),)
    if cell == "lstm":
        i, f, g, o = (of_x + of_h).chunk(4, -1)
        memory = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory
    (r, z, n), (of_r, of_z, of_n) = of_x.chunk(3, -1), of_h.chunk(3, -1)
    z = torch.sigmoid(z + of_z)
    return ((1 - z) * torch.tanh(n + torch.sigmoid(r + of_r) * of_n) + z * state[0],)


@pytest.mark.parametrize("cell", ["plain", "lstm", "gru"])
def test_a_recurrent_network_is_its_equation(cell):
    """Two layers, position by position: outputs, and gradients to every weight."""
    model, x = _model(cell, depth=2), torch.randint(7, (3, 6), generator=torch.Generator().manual_seed(1))
    h = model.embed(x)
    for layer in range(2):
        parts = [getattr(model.cells, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        state, heard = (torch.zeros(3, 5).double(),) * 2, []
        for t in range(6):
            state = _step(cell, parts, h[:, t], state)
            heard.append(state[0])
        h = torch.stack(heard, 1)
    expected, found = model.head(h), model(causal(6), x)
    assert (found - expected).abs().max() < 1e-12
    weights = list(model.parameters())
    theirs = torch.autograd.grad(expected.square().sum(), weights, retain_graph=True)
    ours = torch.autograd.grad(found.square().sum(), weights)
    assert all((a - b).abs().max() < 1e-9 and b.abs().max() > 0 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("cell", ["plain", "lstm", "gru"])
def test_one_to_many_with_and_without_its_state(cell):
    model = _model(cell, depth=2)
    first = torch.tensor([[3], [5]])
    with_state, anew = (model.generate(first, 9, causal, temperature=0.0, cache=cache) for cache in (True, False))
    assert with_state.shape == (2, 10)
    assert torch.equal(with_state, anew)


def test_other_graphs_and_settings_are_refused():
    model, x = _model("plain"), torch.zeros(1, 4, dtype=torch.int64)
    for graph in (complete(4), Graph.batch([causal(2), causal(2)]), causal(4, senders=3)):
        with pytest.raises(ConfigError, match="reads the whole past and nothing else"):
            model(graph, x)
    with pytest.raises(ConfigError, match="no last state"):
        _model("gru", Features(3, 4, whole_graph=True))(causal(0), torch.zeros(1, 0, 3).double())


SOURCES, TARGETS = [3, 1, 4], [2, 5, 3]


def network(attention: bool = True) -> RecurrentEncoderDecoder:
    torch.manual_seed(0)
    settings = RecurrentEncoderDecoderSettings(width=4, hidden=3, dropout=0.0, attention=attention)
    return RecurrentEncoderDecoder(settings, TokenPairs(9, 9)).double()


def gru(x, h, w, u, b, c):
    """PyTorch's cell, written out."""
    r, z, n = (x @ w.T + b).chunk(3)
    ur, uz, un = (h @ u.T + c).chunk(3)
    r, z = torch.sigmoid(r + ur), torch.sigmoid(z + uz)
    return (1 - z) * torch.tanh(n + r * un) + z * h


def written_out(model, source, target):
    e, cell, width = model.embed.weight, model.encoder, 4
    states = {}
    for suffix, order in (("", range(len(source))), ("_reverse", reversed(range(len(source))))):
        names = [f"{part}_l0{suffix}" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        h = torch.zeros(width, dtype=torch.float64)
        for j in order:
            h = gru(e[source[j]], h, *(getattr(cell, name) for name in names))
            states[j, suffix] = h
    memory = torch.stack([torch.cat([states[j, ""], states[j, "_reverse"]]) for j in range(len(source))])
    s, att, rows = torch.tanh(model.start(states[0, "_reverse"])), model.attention, []
    for token in target:
        if model.settings.attention:
            c = (torch.tanh(att.query(s) + att.key(memory)) @ att.score.weight[0]).softmax(0) @ memory
        else:
            c = torch.cat([states[len(source) - 1, ""], states[0, "_reverse"]])
        d = model.decoder
        s = gru(torch.cat([e[token], c]), s, d.weight_ih, d.weight_hh, d.bias_ih, d.bias_hh)
        rows.append(model.head(torch.tanh(model.mix(torch.cat([s, c, e[token]])))))
    return torch.stack(rows)


@pytest.mark.parametrize("attention", [True, False])
def test_it_is_its_equation_pair_by_pair(attention):
    model, draw = network(attention), torch.Generator().manual_seed(1)
    sources, targets = ([torch.randint(9, (n,), generator=draw) for n in sizes] for sizes in (SOURCES, TARGETS))
    graph = EncoderDecoderGraph.of(SOURCES, TARGETS)
    found = model(graph, torch.cat([*sources, *targets]))
    expected = torch.cat([written_out(model, *pair) for pair in zip(sources, targets, strict=True)])
    assert torch.allclose(found, expected, atol=1e-10)
    gradients = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (found, expected)]
    assert all(torch.allclose(a, b, atol=1e-9) and b.abs().max() > 0 for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("attention", [True, False])
def test_empty_targets_have_no_outputs_and_empty_sources_are_refused(attention):
    model, x = network(attention), torch.randint(9, (8,))
    expected = model(EncoderDecoderGraph.of([2], [3]), x[3:])
    for sizes in (([2, 3], [3, 0]), ([3, 2], [0, 3])):
        order = torch.cat([x[3:5], x[:3], x[5:]]) if sizes[1][1] == 0 else x
        assert torch.allclose(model(EncoderDecoderGraph.of(*sizes), order), expected, atol=1e-12)
    assert model(EncoderDecoderGraph.of([3, 2], [0, 0]), x[:5]).shape == (0, 9)
    with pytest.raises(ShapeError, match="source 1 is empty"):
        model(EncoderDecoderGraph.of([3, 0], [2, 3]), x)


@pytest.mark.parametrize(("beam", "attention"), each([1, 3], [True, False]))
def test_the_search_finds_the_same_with_and_without_a_cache(beam, attention):
    model, sources = network(attention).eval(), [torch.tensor([3, 4, 5]), torch.tensor([6]), torch.tensor([7, 8])]
    found = [translate(model, sources, (0, 1), beam, 0.6, longest=6, cache=cache) for cache in (True, False)]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.tokens, other.tokens) and one.score == pytest.approx(other.score, abs=1e-9)
