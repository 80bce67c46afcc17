import inspect

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from edgewise.training.optimizers.eager import eager


def walked(kind: type[Optimizer]) -> tuple[Tensor, dict, list[str]]:
    """Two steps on a loss, the second after a checkpoint; the weights, the memory, and what the hook saw."""
    w = torch.tensor([3.0, -2.0], requires_grad=True)
    optimizer, seen = kind([{"params": [w]}], lr=0.1), []
    optimizer.register_step_post_hook(lambda *_: seen.append("step"))
    for _ in range(2):
        optimizer.zero_grad()
        (w**4).sum().backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    return w, optimizer.state_dict()["state"], seen


@pytest.mark.parametrize("kind", [SGD, Adagrad, Adam, AdamW, RMSprop])
def test_it_takes_the_same_steps(kind: type[Optimizer]) -> None:
    (w, memory, seen), (expected, remembered, hooked) = walked(eager(kind)), walked(kind)
    assert torch.equal(w, expected) and w.requires_grad
    assert seen == hooked == ["step", "step"]
    assert [list(one) for one in memory.values()] == [list(one) for one in remembered.values()]
    assert all(
        torch.equal(memory[0][name], value) for name, value in remembered.get(0, {}).items() if value is not None
    )


def test_it_is_still_that_optimiser_and_pytorchs_own_is_left_alone() -> None:
    wrapped = inspect.getattr_static(Adam, "zero_grad"), inspect.getattr_static(Adam, "add_param_group")
    made = eager(Adam)
    assert issubclass(made, Adam) and (made.__name__, made.__module__) == (Adam.__name__, Adam.__module__)
    assert (inspect.getattr_static(Adam, "zero_grad"), inspect.getattr_static(Adam, "add_param_group")) == wrapped


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_the_short_step_has_the_bits_of_the_long_one(kind: type[Optimizer]) -> None:
    """Two groups, rates that change, a gradient that is missing once, a memory that is loaded."""

    def walk(make: type[Optimizer]) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(size, generator=generator)) for size in ((3, 4), (4,), (7, 2))]
        groups = [{"params": weights[:2], "weight_decay": 0.1}, {"params": weights[2:], "weight_decay": 0.0}]
        optimizer = make(groups, lr=0.1, fused=True)
        for step in range(8):
            for weight in weights:
                weight.grad = torch.randn(weight.shape, generator=generator)
            if step == 5:
                weights[1].grad = None
            if step == 3:
                optimizer.load_state_dict(optimizer.state_dict())
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (step + 1)
            optimizer.step()
        return [*weights, *(value for memory in optimizer.state.values() for value in memory.values())]

    assert all(torch.equal(a, b) for a, b in zip(walk(eager(kind)), walk(kind), strict=True))


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_an_empty_group_and_a_weight_put_in_anothers_place_are_stepped_as_they_were(kind: type[Optimizer]) -> None:
    def walk(make: type[Optimizer]) -> list[Tensor]:
        weights = [torch.nn.Parameter(torch.full((3,), float(n))) for n in range(3)]
        optimizer = make([{"params": weights[:2]}, {"params": []}], lr=0.1, fused=True)
        for step in range(6):
            if step == 3:
                optimizer.param_groups[0]["params"][1] = weights[2]
            for weight in weights:
                weight.grad = torch.ones(3) / (step + 1)
            optimizer.step()
        return weights

    assert all(torch.equal(a, b) for a, b in zip(walk(eager(kind)), walk(kind), strict=True))


@pytest.mark.parametrize("unscaled", [True, False])
@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_a_step_whose_scaled_gradient_overflows_is_skipped(kind: type[Optimizer], unscaled: bool) -> None:
    def walk(make: type[Optimizer]) -> Tensor:
        w = torch.nn.Parameter(torch.ones(2))
        optimizer, scaler = make([w], lr=0.1, fused=True), torch.amp.GradScaler("cpu")
        for step in range(5):
            w.grad = torch.full((2,), torch.inf) if step == 3 else scaler.scale(torch.full((2,), 1.0 + step))
            if unscaled:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return w.detach()

    assert torch.equal(walk(eager(kind)), walk(kind)) and walk(kind).isfinite().all()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_momentum_begins_with_each_weight_at_its_first_gradient(decay: float) -> None:
    def walk(make: type[Optimizer], fused: bool) -> list[Tensor]:
        weights = [torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(3)]
        optimizer = make(weights, lr=0.1, momentum=0.9, weight_decay=decay, fused=fused)
        for step in range(1, 6):
            for w, first in zip(weights, (1, 3, 9), strict=True):
                w.grad = w.detach() * step if step >= first else None
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        return weights

    for w, expected in zip(walk(eager(SGD), True), walk(SGD, False), strict=True):
        torch.testing.assert_close(w, expected)
