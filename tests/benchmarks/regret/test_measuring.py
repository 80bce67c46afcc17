from collections.abc import Callable

import pytest

from benchmarks import inputs
from benchmarks.regret import measuring as regrets
from benchmarks.regret.grid import random, summary
from benchmarks.regret.measuring import Problem, measure
from edgewise.kernels import Dot


def test_a_configuration_measures_every_backend_and_the_regret_of_the_choice() -> None:
    found = measure(
        {"graph": "random", "n": 64, "density": 0.1, "heads": 2, "channels": 4},
        Problem.of(inputs.attention(random(64, 0.1), 2, 4, Dot())),
    )
    assert {"native", "segment"} <= set(found["milliseconds"])
    times = found["milliseconds"]
    assert found["regret"] == pytest.approx(times[found["choice"]] / min(times.values()) - 1)
    assert summary([found])["worst_at"]["graph"] == "random"


def test_those_that_are_close_take_turns_and_a_slow_one_is_left_at_its_first_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, order = [0.0], []
    for name in ("perf_counter", "process_time"):  # what is read on several threads, and on one
        monkeypatch.setattr(regrets.time, name, lambda: clock[0])

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
    for name in ("perf_counter", "process_time"):  # what is read on several threads, and on one
        monkeypatch.setattr(regrets.time, name, lambda: clock[0])

    def step(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            calls[name] += 1
            disturbed = name == "choice" and calls[name] <= 1 + regrets.TRIES + regrets.ROUNDS
            clock[0] += seconds * (1.5 if disturbed else 1)

        return run

    steps = {"choice": step("choice", 0.004), "other": step("other", 0.004)}
    assert regrets._seconds(steps, "choice") == pytest.approx({"choice": 0.004, "other": 0.004})
    assert calls["choice"] == 1 + regrets.TRIES + (1 + regrets.AGAIN) * regrets.ROUNDS
