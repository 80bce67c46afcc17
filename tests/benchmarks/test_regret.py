from collections.abc import Callable

import pytest
import torch

from benchmarks import inputs
from benchmarks import regret as regrets
from benchmarks.regret import break_even, measure, random, summary
from edgewise.kernels import Dot


def row(density: float, dense: float, segment: float) -> dict[str, object]:
    return {"density": density, "milliseconds": {"dense": dense, "segment": segment}}


def test_the_break_even_lies_between_the_densities_by_logarithms() -> None:
    assert break_even([row(0.01, 10, 1), row(1.0, 10, 100)]) == pytest.approx(0.1)


def test_without_a_crossing_there_is_no_break_even() -> None:
    assert break_even([row(0.01, 1, 2), row(1.0, 1, 3)]) is None


def test_a_configuration_measures_every_backend_and_the_regret_of_the_choice() -> None:
    found = measure(
        {"graph": "random", "n": 64, "density": 0.1, "heads": 2, "channels": 4},
        inputs.attention(random(64, 0.1), 2, 4, Dot()),
    )
    assert {"dense", "segment"} <= set(found["milliseconds"])
    times = found["milliseconds"]
    assert found["regret"] == pytest.approx(times[found["choice"]] / min(times.values()) - 1)
    assert summary([found])["worst_at"]["graph"] == "random"


def test_those_that_are_close_take_turns_and_a_slow_one_is_left_at_its_first_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, order = [0.0], []
    monkeypatch.setattr(regrets.time, "perf_counter", lambda: clock[0])

    def step(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            order.append(name)
            # The first one's second call is disturbed, and so is one of its rounds.
            clock[0] += seconds * (20 if name == "near" and order.count(name) in (2, 7) else 1)

        return run

    steps = {"near": step("near", 0.010), "best": step("best", 0.008), "slow": step("slow", 0.1)}
    found = regrets._seconds(steps, "best")
    assert found == pytest.approx({"near": 0.010, "best": 0.008, "slow": 0.1})
    assert order.count("slow") == 1 + regrets.TRIES and order[-4:] == ["near", "best", "near", "best"]
    order.clear()
    regrets._seconds(steps, "slow")
    assert order[-3:] == ["near", "best", "slow"]  # a choice is never judged by its first calls alone


def test_a_choice_that_seems_worse_is_measured_again_and_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], {"choice": 0, "other": 0}
    monkeypatch.setattr(regrets.time, "perf_counter", lambda: clock[0])

    def step(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            calls[name] += 1
            disturbed = name == "choice" and calls[name] <= 1 + regrets.TRIES + regrets.ROUNDS
            clock[0] += seconds * (1.5 if disturbed else 1)

        return run

    steps = {"choice": step("choice", 0.004), "other": step("other", 0.004)}
    assert regrets._seconds(steps, "choice") == pytest.approx({"choice": 0.004, "other": 0.004})
    assert calls["choice"] == 1 + regrets.TRIES + (1 + regrets.AGAIN) * regrets.ROUNDS


def test_the_grid_is_measured_in_the_dtype_and_on_the_device_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(regrets, "configurations", lambda quick: [({"graph": "random"}, lambda: small())] * 3)
    monkeypatch.setattr(regrets, "summary", lambda rows: {})

    def measured(name: dict[str, object], case: inputs.Attention) -> dict[str, object]:
        seen.append((case.graph.device.type, case.q.dtype, case.gradient.dtype, case.q.requires_grad, case.q.is_leaf))
        return name

    monkeypatch.setattr(regrets, "measure", measured)
    found = regrets.regret(threads=1, dtype=torch.bfloat16)
    assert seen == [("cpu", torch.bfloat16, torch.bfloat16, True, True)] * 3
    assert (found["device"], found["dtype"], found["left_out"]) == ("cpu", "bfloat16", 0)


def small() -> inputs.Attention:
    return inputs.attention(random(8, 0.5), 1, 4, Dot())
