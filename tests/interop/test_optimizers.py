"""Converted optimizers take PyTorch's fused steps: the same numbers, options, hooks, schedules and states."""

import pickle
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

import edgewise
from edgewise.interop import optimizers

OPTIONS: dict[str, Any] = {
    "adam": lambda p: Adam(p, lr=0.1),
    "adam with decay": lambda p: Adam(p, lr=0.1, weight_decay=0.1, betas=(0.7, 0.9), eps=1e-3),
    "amsgrad": lambda p: Adam(p, lr=0.1, amsgrad=True, maximize=True),
    "adamw": lambda p: AdamW(p, lr=0.1, weight_decay=0.2),
    "sgd": lambda p: SGD(p, lr=0.1),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "dampened": lambda p: SGD(p, lr=0.1, momentum=0.5, dampening=0.1, maximize=True),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}


def weights(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=draw).to(dtype)) for shape in ((4, 3), (3,), (), (0, 2))]


def steps(optimizer: Optimizer, count: int, seed: int = 1, scheduler: Any = None) -> None:
    draw = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = torch.randn(p.shape, generator=draw).to(p.dtype)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def assert_close(own: list[nn.Parameter], theirs: list[nn.Parameter]) -> None:
    for one, other in zip(own, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=CLOSE[one.dtype], atol=CLOSE[one.dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("before", [0, 3])
def test_steps_go_on_as_they_would(name: str, dtype: torch.dtype, before: int) -> None:
    own, theirs = weights(dtype), weights(dtype)
    converted, plain = OPTIONS[name](own), OPTIONS[name](theirs)
    steps(converted, before)
    steps(plain, before)
    assert edgewise.convert(converted) is converted
    assert all(group["fused"] for group in converted.param_groups)
    steps(converted, 3, 2)
    steps(plain, 3, 2)
    assert_close(own, theirs)


def test_steps_counted_in_float64_go_on() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        own, theirs = weights(torch.float64), weights(torch.float64)
        converted, plain = Adam(own, lr=0.1), Adam(theirs, lr=0.1)
        for optimizer in (converted, plain):
            steps(optimizer, 2)
        edgewise.convert(converted)
        for optimizer in (converted, plain):
            steps(optimizer, 2, 2)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_close(own, theirs)


@pytest.mark.parametrize("name", OPTIONS)
def test_states_are_read_in_both_directions(name: str) -> None:
    own, theirs = weights(), weights()
    converted, plain = edgewise.convert(OPTIONS[name](own)), OPTIONS[name](theirs)
    steps(plain, 2)
    steps(converted, 1)
    for mine, right in zip(own, theirs, strict=True):
        mine.data.copy_(right)
    converted.load_state_dict(deepcopy(plain.state_dict()))  # of steps that were not fused
    assert all(group["fused"] for group in converted.param_groups)
    steps(converted, 2, 3)
    steps(plain, 2, 3)
    assert_close(own, theirs)
    plain.load_state_dict(deepcopy(converted.state_dict()))
    steps(converted, 2, 4)
    steps(plain, 2, 4)
    assert_close(own, theirs)


@pytest.mark.parametrize("early", [False, True])
def test_schedules_groups_and_hooks_work_on(early: bool) -> None:
    def trained(convert: bool) -> tuple[list[nn.Parameter], list[str]]:
        parameters, seen = weights(), list[str]()
        optimizer = Adam([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.3}], lr=0.1)
        if convert and early:
            edgewise.convert(optimizer)
        scheduler = StepLR(optimizer, 2, gamma=0.5)
        optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
        optimizer.register_step_post_hook(lambda *_: seen.append("after"))
        if convert and not early:
            edgewise.convert(optimizer)
        steps(optimizer, 3, 1, scheduler)
        optimizer.param_groups[0]["lr"] = 0.7
        parameters.append(nn.Parameter(torch.ones(3)))
        optimizer.add_param_group({"params": parameters[-1:], "weight_decay": 0.1})
        steps(optimizer, 3, 2, CosineAnnealingLR(optimizer, 4))
        return parameters, seen

    own, theirs = trained(True), trained(False)
    assert_close(own[0], theirs[0])
    assert own[1] == theirs[1] == ["before", "after"] * 6


@pytest.mark.parametrize("closure", [False, True])
def test_sparse_gradients_are_left_to_plain_steps(closure: bool) -> None:
    def trained(convert: bool) -> Tensor:
        table = nn.Embedding(5, 3, sparse=True, _weight=torch.ones(5, 3))
        optimizer = SGD(table.parameters(), lr=0.1)
        if convert:
            optimizer = deepcopy(edgewise.convert(optimizer))
            optimizer.param_groups[0]["params"] = list(table.parameters())
        for words in ([0, 2, 2], [4]):

            def loss(words: list[int] = words) -> float:
                optimizer.zero_grad()
                value = table(torch.tensor(words)).sum()
                value.backward()
                return float(value.detach())

            if not closure:
                loss()
            optimizer.step(loss if closure else None)
        return table.weight.detach()

    assert torch.equal(trained(True), trained(False))


LYING: dict[str, tuple[Any, Any]] = {  # how a parameter and its gradient lie in memory
    "a transposed gradient": (lambda t: t[:5, :5].clone(), lambda g: g.t()),
    "an expanded gradient": (lambda t: t[:5, :5].clone(), lambda g: g[:1, :1].expand(5, 5)),
    "a parameter of some columns": (lambda t: t[:, :5], lambda g: torch.cat([g, g[:1]])),
    "both alike with gaps": (
        lambda t: t[:, :5],
        lambda g: torch.cat([torch.cat([g, g[:1]]), g.new_ones(6, 3)], 1)[:, :5],
    ),
    "both transposed": (lambda t: t[:5, :5].t().clone(), lambda g: g.t()),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("lying", LYING)
def test_tensors_that_lie_otherwise_in_memory_are_left_to_plain_steps(name: str, lying: str) -> None:
    part, moved = LYING[lying]

    def trained(convert: bool) -> Tensor:
        draw = torch.Generator().manual_seed(0)
        whole = torch.randn(6, 8, generator=draw)
        p = nn.Parameter(part(whole))
        optimizer = OPTIONS[name]([p])
        if convert:
            edgewise.convert(optimizer)
        for step in range(4):
            g = torch.randn(5, 5, generator=draw)
            p.grad = moved(g) if step else moved(g).contiguous()
            optimizer.step()
        return torch.cat([p.detach().flatten(), whole.flatten()])

    torch.testing.assert_close(trained(True), trained(False))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_first_gradient_may_come_later_than_others(name: str) -> None:
    own, theirs = weights(), weights()
    for parameters, optimizer in ((own, edgewise.convert(OPTIONS[name](own))), (theirs, OPTIONS[name](theirs))):
        draw = torch.Generator().manual_seed(3)
        for step in range(4):
            for p in parameters[: 1 + step]:
                p.grad = torch.randn(p.shape, generator=draw)
            optimizer.step()
    assert_close(own, theirs)


def test_parameters_without_a_gradient_and_closures() -> None:
    own, theirs = weights(), weights()
    for parameters, optimizer in ((own, edgewise.convert(Adam(own, lr=0.1))), (theirs, Adam(theirs, lr=0.1))):

        def loss(optimizer: Any = optimizer, parameters: Any = parameters) -> Tensor:
            optimizer.zero_grad()
            value = (parameters[0] ** 2).sum()
            value.backward()
            return value.detach()

        assert float(optimizer.step(loss)) == float((weights()[0].detach() ** 2).sum())
    assert_close(own, theirs)


STAY: dict[str, tuple[Any, str]] = {
    "another": (Adadelta, "Adadelta has no fused step on the CPU"),
    "one by one": (lambda p: Adam(p, foreach=False), "it was made with foreach=False"),
    "not fused": (lambda p: Adam(p, fused=False), "it was made with fused=False"),
    "differentiable": (lambda p: Adam(p, differentiable=True), "it was made with differentiable=True"),
    "a tensor": (lambda p: Adam(p, lr=torch.tensor(0.1)), "its learning rate is a tensor"),
    "complex": (
        lambda p: Adam([*p, nn.Parameter(torch.zeros(2, dtype=torch.complex64))]),
        "parameter of torch.complex64",
    ),
    "elsewhere": (lambda p: Adam([*p, nn.Parameter(torch.zeros(2, device="meta"))]), "torch.float32 on meta"),
}


@pytest.mark.parametrize("kind", STAY)
def test_other_optimizers_stay_and_are_named(kind: str) -> None:
    make, why = STAY[kind]
    optimizer = make(weights())
    before = [group.get("fused") for group in optimizer.param_groups]
    with pytest.warns(UserWarning, match=f"the optimizer's steps stay as they are: .*{why}"):
        assert edgewise.convert(optimizer) is optimizer
    assert [group.get("fused") for group in optimizer.param_groups] == before


def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parameters each fused step had that was called at once."""
    seen, own = list[int](), optimizers._take
    monkeypatch.setattr(optimizers, "_take", lambda group, moments: seen.append(len(moments[0])) or own(group, moments))
    return seen


@pytest.mark.parametrize("name", ["adam", "adam with decay", "adamw", "amsgrad"])
def test_all_but_the_first_step_are_one_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, own = taken(monkeypatch), weights()
    optimizer = edgewise.convert(OPTIONS[name](own))
    steps(optimizer, 3)
    assert seen == ([] if name == "amsgrad" else [4, 4])
    optimizer.register_step_post_hook(lambda *_: None)
    steps(optimizer, 1)
    with torch.autograd.profiler.profile():
        steps(optimizer, 1)
    assert len(seen) == (0 if name == "amsgrad" else 2)
    assert {float(optimizer.state[p]["step"]) for p in own} == {5}


def test_some_parameters_have_no_gradient_now_and_then() -> None:
    own, theirs = weights(), weights()
    for parameters, optimizer in ((own, edgewise.convert(Adam(own, lr=0.1))), (theirs, Adam(theirs, lr=0.1))):
        draw = torch.Generator().manual_seed(3)
        for step in range(7):
            optimizer.zero_grad()
            assert all(p.grad is None for p in parameters)
            for number, p in enumerate(parameters):
                if step < 2 or number != step % 3:
                    p.grad = torch.randn(p.shape, generator=draw)
            optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        assert all(p.grad is None or not p.grad.any() for p in parameters)
        assert [float(optimizer.state[p]["step"]) for p in parameters] == [5, 6, 5, 7]
    assert_close(own, theirs)


def test_copies_and_pickles_go_on() -> None:
    own, theirs = weights(), weights()
    converted, plain = edgewise.convert(Adam(own, lr=0.1)), Adam(theirs, lr=0.1)
    steps(plain, 5)
    steps(converted, 2)
    for copied in (deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))):  # noqa: S301
        other = copied(converted)
        assert type(other) is type(converted)
        assert isinstance(other, Adam)
        steps(other, 3)  # of its own parameters
        assert [float(state["step"]) for state in other.state.values()] == [5] * 4
        assert [float(state["step"]) for state in converted.state.values()] == [2] * 4
        seen: list[str] = []
        other.register_step_pre_hook(lambda *_, seen=seen: seen.append("before"))
        steps(other, 1)
        assert seen == ["before"]
    converted.state.clear()
    steps(converted, 1)
    assert [float(state["step"]) for state in converted.state.values()] == [1] * 4


def test_one_that_is_fused_already_stays_so() -> None:
    own, theirs = weights(), weights()
    optimizer = edgewise.convert(edgewise.convert(Adam(own, lr=0.1, fused=True)))
    steps(optimizer, 3)
    steps(Adam(theirs, lr=0.1), 3)
    assert_close(own, theirs)
    assert type(optimizer).twin_of is Adam
