import pytest

from benchmarks.harness import Budget
from benchmarks.roofline import FORMULAS, machine, traffic, work


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_step_moves_and_computes_more_than_its_forward_pass(formula: str) -> None:
    forward, step = (traffic(formula, kind, 100, 10, 2, 4) for kind in ("forward", "step"))
    assert all(more > less for more, less in zip(step, forward, strict=True))


def test_a_batch_counts_every_copy() -> None:
    (moved, operations) = work("small-causal", "", 1.0)["forward"]
    assert moved == 4 * 12 * 64 * 4 * 4 * 32
    assert operations == 4 * 12 * (64 * 65 // 2) * 4 * 32


def test_the_machine_is_measured() -> None:
    found = machine((1,), Budget(quick=True))
    assert found["1"]["bytes"] > 1e8
    assert found["1"]["flops"] > 1e8
