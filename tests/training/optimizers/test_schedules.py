"""Schedules: values written out by hand, and the published implementations' forms."""

import math

import pytest

from edgewise.training.optimizers.schedules import SCHEDULES, Constant, Cosine, Linear


def test_constant_rises_and_stays():
    assert [Constant(warmup=3)(t, 9) for t in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert [Constant()(t, 9) for t in range(3)] == [1, 1, 1]


def test_linear_falls_by_the_same_amount_every_step_to_zero():
    values = [Linear(warmup=2)(t, 12) for t in range(2, 13)]
    assert values == pytest.approx([1 - k / 10 for k in range(11)], abs=1e-15)
    assert values[-1] == 0


def test_cosine_is_nanogpts():
    rate, lowest, warmup, steps = 6e-4, 6e-5, 20, 200

    def nanogpt(it: int) -> float:
        if it < warmup:
            return rate * (it + 1) / (warmup + 1)
        decay_ratio = (it - warmup) / (steps - warmup)
        return lowest + 0.5 * (1.0 + math.cos(math.pi * decay_ratio)) * (rate - lowest)

    for t in range(steps + 1):
        assert rate * Cosine(warmup, lowest / rate)(t, steps) == pytest.approx(nanogpt(t), rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 10, 11])
def test_every_step_has_a_rate_above_zero_that_never_leaves_its_bounds(name, warmup):
    values = [SCHEDULES[name](warmup)(t, 10) for t in range(10)]
    assert all(0 < value <= 1 for value in values)
    if name != "plateau":  # which ends at 0
        flat = Constant(warmup) if name == "constant" else SCHEDULES[name](warmup, minimum=1.0)
        assert all(flat(t, 10) == 1 for t in range(warmup, 30))


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_the_decay_ends_at_the_minimum_and_stays(name):
    assert [SCHEDULES[name](2, 0.25)(t, 10) for t in (10, 11, 100)] == pytest.approx([0.25] * 3, abs=1e-15)
