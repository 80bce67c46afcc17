import pytest
import torch

from edgewise import ConfigError, Graph, causal, complete
from edgewise.models import Features, Recurrent, RecurrentSettings, Tokens

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
    with pytest.raises(ConfigError, match="cell 'rnn' is unknown"):
        _model("rnn")
    with pytest.raises(ConfigError, match="at least 1"):
        _model("gru", depth=0)
    with pytest.raises(ConfigError, match="no last state"):
        _model("gru", Features(3, 4, whole_graph=True))(causal(0), torch.zeros(1, 0, 3).double())
