import pytest
import torch

from benchmarks import inputs
from benchmarks.regret import grid as regrets
from benchmarks.regret.grid import break_even, random
from benchmarks.regret.measuring import Problem
from edgewise.kernels import Dot


def row(density: float, dense: float, segment: float) -> dict[str, object]:
    return {"density": density, "milliseconds": {"dense": dense, "segment": segment}}


def test_the_break_even_lies_between_the_densities_by_logarithms() -> None:
    assert break_even([row(0.01, 10, 1), row(1.0, 10, 100)]) == pytest.approx(0.1)


def test_without_a_crossing_there_is_no_break_even() -> None:
    assert break_even([row(0.01, 1, 2), row(1.0, 1, 3)]) is None


def test_the_grid_is_measured_in_the_dtype_and_on_the_device_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(regrets, "configurations", lambda quick: [({"graph": "random"}, lambda: small())] * 3)
    monkeypatch.setattr(regrets, "summary", lambda rows: {})

    def measured(name: dict[str, object], problem: Problem) -> dict[str, object]:
        q = problem.leaves[0]
        device = problem.call.graph.device.type
        seen.append((device, q.dtype, problem.gradient.dtype, q.requires_grad, q.is_leaf))
        return name

    monkeypatch.setattr(regrets, "measure", measured)
    found = regrets.regret(threads=1, dtype=torch.bfloat16)
    assert seen == [("cpu", torch.bfloat16, torch.bfloat16, True, True)] * 3
    assert (found["device"], found["dtype"], found["left_out"]) == ("cpu", "bfloat16", 0)


def small() -> inputs.Attention:
    return inputs.attention(random(8, 0.5), 1, 4, Dot())
