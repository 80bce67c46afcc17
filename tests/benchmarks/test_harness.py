import os
from dataclasses import replace

import pytest

from benchmarks import harness
from benchmarks.harness import Budget, Runner, environment, race
from benchmarks.worker import Order

QUICK = Budget(seconds=0.0, rounds=2, size=0.002, quick=True)


def test_contenders_of_a_small_case_from_end_to_end() -> None:
    entrants = [(name, 2) for name in ("edgewise", "segment", "dense", "compiled")]
    found = {one.contender: one for one in race("csr-4x16", "", entrants, QUICK)}
    for name in ("edgewise", "segment"):
        one = found[name]
        assert one.refused is None
        assert set(one.errors) == {"y", "q", "k", "v"}
        assert set(one.seconds) == {"forward", "step"} == set(one.megabytes)
        assert one.seconds["step"].rounds == 2
        assert 0 < one.seconds["forward"].low <= one.seconds["forward"].median <= one.seconds["forward"].high
    assert "parallel edges" in (found["dense"].refused or "")
    assert "compiles" in (found["compiled"].refused or "")


@pytest.mark.studies
def test_a_process_that_runs_out_of_memory_is_refused_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def starving(order: Order, budget: Budget) -> Runner:
        return Runner(replace(order, gigabytes=0.05) if order.contender == "segment" else order, budget)

    monkeypatch.setattr(harness, "Runner", starving)
    segment, edgewise = race("csr-4x16", "", [("segment", 1), ("edgewise", 1)], QUICK)
    assert (segment.refused, segment.seconds) == ("runs out of memory", {})
    assert edgewise.refused is None and edgewise.seconds["step"].rounds == 2


@pytest.mark.studies
def test_one_contender_on_several_numbers_of_threads_takes_turns_with_itself() -> None:
    one, two = race("csr-4x16", "", [("edgewise", 1), ("edgewise", 2)], QUICK)
    assert (one.threads, two.threads) == (1, 2)
    assert one.seconds["step"].rounds == two.seconds["step"].rounds == 2


def test_the_environment_comes_back() -> None:
    os.environ.pop("EDGEWISE_BENCH_A", None)
    os.environ["EDGEWISE_BENCH_B"] = "before"
    with environment({"EDGEWISE_BENCH_A": "1", "EDGEWISE_BENCH_B": "2"}):
        assert (os.environ["EDGEWISE_BENCH_A"], os.environ["EDGEWISE_BENCH_B"]) == ("1", "2")
    assert "EDGEWISE_BENCH_A" not in os.environ
    assert os.environ.pop("EDGEWISE_BENCH_B") == "before"
