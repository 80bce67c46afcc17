import pytest
import torch

from edgewise import ConfigError, ShapeError
from edgewise.layers import ClassicalHopfield, DenseHopfield
from edgewise.models import Features, Memory, MemorySettings


def _patterns(count: int, units: int) -> torch.Tensor:
    return torch.randint(2, (count, units)).double() * 2 - 1


def _memory(energy: str, patterns: torch.Tensor) -> Memory:
    units = patterns.shape[1]
    settings = MemorySettings(energy, patterns=len(patterns))
    return Memory(settings, Features(units, units, length=1, whole_graph=True)).double()


def _store(model: Memory, patterns: torch.Tensor, rate: float) -> Memory:
    model(None, patterns[:, None]).penalty.backward()
    model.weight.data.sub_(rate * model.weight.grad)
    return model.eval()


def test_a_step_down_the_classical_energy_is_hebbs_rule() -> None:
    patterns = _patterns(5, 12)
    model = _store(_memory("classical", patterns), patterns, rate=10.0)
    hebb = sum(torch.outer(x, x) for x in patterns)
    network = ClassicalHopfield(patterns)
    written = torch.zeros(12, 12, dtype=torch.float64)
    written[network.graph.receivers, network.graph.senders] = model.weight.detach()
    assert torch.allclose(written, hebb - hebb.diag().diag(), atol=1e-12)


def test_the_classical_penalty_is_the_mean_energy_and_its_gradient_that_of_the_equation() -> None:
    patterns, model = _patterns(3, 7), _memory("classical", _patterns(3, 7))
    torch.nn.init.normal_(model.weight)
    found = model(None, patterns[:, None])
    network = model.classical(patterns)
    W = torch.zeros(7, 7, dtype=torch.float64)
    W[network.graph.receivers, network.graph.senders] = model.weight.detach()
    W.requires_grad_(True)
    expected = torch.stack([-0.5 * x @ W @ x for x in patterns]).mean()
    assert torch.equal(found.outputs, patterns[:, None])
    assert abs(float((found.penalty - expected).detach())) <= 1e-12
    (mine,), (theirs,) = torch.autograd.grad(found.penalty, model.weight), torch.autograd.grad(expected, W)
    assert torch.allclose(mine, theirs[network.graph.receivers, network.graph.senders], atol=1e-12)


@pytest.mark.parametrize(("energy", "network"), [("classical", ClassicalHopfield), ("modern", DenseHopfield)])
@pytest.mark.parametrize("rate", [0.1, 7.0])
def test_it_recalls_as_the_network_that_is_given_the_patterns(energy, network, rate) -> None:
    """Whatever the rate: only the signs of sums count."""
    patterns = _patterns(4, 40)
    model = _store(_memory(energy, patterns), patterns, rate)
    damaged = torch.where(torch.rand(20, 40) < 0.2, -1.0, 1.0).double() * patterns.repeat(5, 1)
    found = model(None, damaged[:, None])[:, 0]
    assert torch.equal(found, network(patterns).recall(damaged))
    assert (found == patterns.repeat(5, 1)).all(1).double().mean() > 0.9


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"3 patterns for 2 places: set model\.patterns"):
        _memory("modern", _patterns(2, 5))(None, _patterns(3, 5)[:, None])
    with pytest.raises(ConfigError, match="gives back what it reads"):
        Memory(MemorySettings(), Features(4, 10, length=1, whole_graph=True))


@pytest.mark.parametrize(("energy", "units"), [("classical", 50), ("modern", 300)])
def test_mixed_precision_recalls_what_was_stored(energy, units) -> None:
    """The sums of 300 units are no numbers of bfloat16."""
    patterns = _patterns(3, units)
    model = _store(_memory(energy, patterns), patterns, rate=10.0).float()
    damaged = torch.where(torch.rand(3, units) < 0.2, -1.0, 1.0) * patterns.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(None, damaged[:, None])[:, 0], patterns.float())
    assert torch.equal(model.bfloat16()(None, damaged[:, None].bfloat16())[:, 0], patterns.bfloat16())
