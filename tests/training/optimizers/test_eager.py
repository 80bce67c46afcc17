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
