from pathlib import Path

import pytest
import torch

from benchmarks import inputs
from benchmarks.exact import solve
from benchmarks.worker import Contestant, Order, reason, refuse_wrong
from edgewise.kernels import Dot, attend


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order("csr-4x16", "", "edgewise", 2, 0.01, str(tmp_path / "exact.safetensors"), 16, by_clock=True)


def contestant(order: Order, wrong: float) -> Contestant:
    from safetensors.torch import save_file

    case = inputs.attention(inputs.power_law(20, 60), 2, 4, Dot())
    save_file({name: t.contiguous() for name, t in solve(case).items()}, order.exact)
    return Contestant(
        order, case, lambda: attend(case.graph, case.q, case.k, case.v, Dot()) * (1 + wrong), forward_only=False
    )


def test_a_right_contender_says_its_errors(order: Order) -> None:
    answer = contestant(order, 0.0).check()
    assert set(answer["errors"]) == {"y", "q", "k", "v"}
    assert max(answer["errors"].values()) < 1e-5
    assert answer["kinds"] == ["forward", "step"]


def test_a_wrong_contender_is_refused(order: Order) -> None:
    with pytest.raises(ValueError, match="differs from the float64 oracle by"):
        contestant(order, 0.01).check()


def test_nan_is_wrong() -> None:
    with pytest.raises(ValueError, match="gradient of q differs"):
        refuse_wrong({"y": 0.0, "q": float("nan")})


def test_it_answers_with_seconds_steps_and_megabytes(order: Order) -> None:
    one = contestant(order, 0.0)
    assert one.answer("calibrate", "step", 1) >= 1
    assert 0 < one.answer("time", "forward", 3) < 1
    assert set(one.answer("memory", "step", 1)) == {"megabytes", "seconds"}


def test_running_out_of_memory_is_said_in_plain_words() -> None:
    assert reason(MemoryError()) == "runs out of memory"
    assert reason(RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried")) == (
        "runs out of memory"
    )
    assert reason(ValueError("no\n  way")) == "ValueError: no way"


def test_the_gradients_are_those_of_the_case(order: Order) -> None:
    one = contestant(order, 0.0)
    _, grads = one.step()
    assert [tuple(grad.shape) for grad in grads] == [tuple(leaf.shape) for leaf in one.leaves]
    assert all(bool(torch.isfinite(grad).all()) for grad in grads)
