import pytest
import torch
from torch import nn

from edgewise.errors import ConfigError
from edgewise.training.optimizers.averaging import WeightAverage, update_batch_norm
from edgewise.training.optimizers.descent import OPTIMIZERS, optimizer_for, optimizer_tensors, restore_optimizer


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def trained(start, every, steps=10, momentum=0.9, decay=0.0):
    """A model, its average, and the weights after every step."""
    model, passed = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    average = WeightAverage(optimizer, start, every, decay)
    x, y = torch.randn(20, 3), torch.randn(20, 2)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
        passed.append([w.detach().clone() for w in model.parameters()])
    return model, average, passed, x


@pytest.mark.parametrize(("start", "every", "momentum"), [(1, 1, 0.9), (4, 3, 0.0)])
def test_the_average_is_that_of_the_weights_passed(start, every, momentum):
    model, average, passed, _ = trained(start, every, momentum=momentum)
    expected = [torch.stack(ws).mean(0) for ws in zip(*passed[start - 1 :: every], strict=True)]
    own = {name: value.clone() for name, value in model.state_dict().items()}
    with average.applied(model):
        for w, mean in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(w, mean, atol=1e-6)
    for name, value in model.state_dict().items():
        assert torch.equal(value, own[name])


def test_with_a_decay_it_is_torchs_moving_average_once_that_is_longer_than_the_plain_mean():
    from torch.optim.swa_utils import get_ema_multi_avg_fn

    model, average, passed, _ = trained(start=1, every=1, decay=0.75)
    expected = [torch.stack(ws).mean(0) for ws in zip(*passed[:4], strict=True)]
    for weights in passed[4:]:
        get_ema_multi_avg_fn(0.75)(expected, weights, None)
    with average.applied(model):
        for w, mean in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(w, mean, atol=1e-6)


def test_it_agrees_with_torchs_averaged_model_and_batch_norm_update():
    from torch.optim.swa_utils import AveragedModel, update_bn

    model, average, passed, x = trained(start=6, every=1)
    peer = AveragedModel(network())
    for weights in passed[5:]:
        step = network()
        with torch.no_grad():
            for w, value in zip(step.parameters(), weights, strict=True):
                w.copy_(value)
        peer.update_parameters(step)
    batches = [x[:10], x[10:]]
    update_bn(batches, peer)
    with average.applied(model, lambda: ((batch,) for batch in batches)):
        assert torch.allclose(model.eval()(x), peer.eval()(x), atol=1e-5)
        assert torch.allclose(model[1].running_var, peer.module[1].running_var, atol=1e-6)
    assert model[1].momentum == 0.1


def test_the_models_own_weights_come_back_after_an_error():
    model, average, passed, _ = trained(start=1, every=1)
    with pytest.raises(RuntimeError), average.applied(model):
        raise RuntimeError
    assert all(torch.equal(w, last) for w, last in zip(model.parameters(), passed[-1], strict=True))


@pytest.mark.parametrize("options", [{"start": 0}, {"start": 1, "every": 0}])
def test_impossible_averages_are_refused(options):
    with pytest.raises(ConfigError):
        WeightAverage(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1), **options)


@pytest.mark.parametrize("name", ["momentum", "adamw", "sgld"])
def test_a_weight_may_get_its_first_gradient_late_or_none(name):
    def walked(averaged):
        weights = nn.ParameterList(nn.Parameter(torch.full((2,), value)) for value in (1.0, 2.0, 3.0))
        optimizer, passed = optimizer_for(weights, OPTIMIZERS[name](learning_rate=0.1)), []
        average = WeightAverage(optimizer, start=1) if averaged else None
        for step in range(1, 5):
            for w, first in zip(weights, (1, 3, 9), strict=True):
                w.grad = torch.full((2,), step / 2) if step >= first else None
            optimizer.step()
            restore_optimizer(optimizer, weights, optimizer_tensors(optimizer, weights))
            passed.append([w.detach().clone() for w in weights])
        return weights, average, passed

    weights, average, passed = walked(averaged=True)
    for seen, expected in zip(passed, walked(averaged=False)[2], strict=True):
        assert all(torch.equal(w, other) for w, other in zip(seen, expected, strict=True))
    with average.applied(weights):
        for w, path in zip(weights, zip(*passed, strict=True), strict=True):
            assert torch.allclose(w, torch.stack(path).mean(0), atol=1e-6)


def test_a_resumed_average_goes_on_counting_whatever_the_type_of_weights():
    """bfloat16 has no 301."""
    weights = nn.ParameterList([nn.Parameter(torch.ones(2, dtype=torch.bfloat16))])
    weights[0].grad = torch.ones(2, dtype=torch.bfloat16)
    optimizers = [torch.optim.SGD(weights, lr=0.1) for _ in range(2)]
    first, second = (WeightAverage(optimizer, start=300) for optimizer in optimizers)
    for _ in range(301):
        optimizers[0].step()
    saved = {name: tensor.clone() for name, tensor in first.tensors(weights).items()}
    second.restore(weights, saved, step=0)
    assert (second.steps, second.count) == (301, 2)
    optimizers[1].step()  # of which the first takes no notice
    assert (second.steps, second.count) == (302, 3)
    assert second.means[weights[0]].dtype is torch.bfloat16


def test_a_step_that_ends_in_an_error_leaves_the_mean():
    w = nn.Parameter(torch.zeros(1))
    model, optimizer = nn.ParameterList([w]), torch.optim.SGD([w], lr=1.0)
    average = WeightAverage(optimizer, start=1)
    for expected in (1.0, 1.5, 2.0):  # means of 1, of 1 and 2, of 1 to 3
        w.grad = torch.tensor([-1.0])
        optimizer.step()
        with pytest.raises(ZeroDivisionError):
            optimizer.step(lambda: 1 / 0)
        with average.applied(model):
            assert w.item() == expected


def test_batch_norms_have_their_momentum_back_after_an_error():
    model = network().eval()
    with pytest.raises(RuntimeError):
        update_batch_norm(model, [(torch.randn(5, 3),), (torch.randn(5, 4),)])
    assert (model[1].momentum, model.training) == (0.1, False)
