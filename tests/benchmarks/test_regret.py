import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import regret
from benchmarks.regret import Problem, again, draw, main, measure, table
from edgewise.kernels import BACKENDS
from edgewise.kernels.call import Aggregate, Attend, Collect
from edgewise.kernels.planning import dispatch


def test_a_seed_draws_the_same_calls_and_another_one_others() -> None:
    first, again, other = ([name for name, _ in draw(12, seed)] for seed in (3, 3, 4))
    assert first == again != other


@pytest.mark.studies
def test_all_verbs_are_drawn_with_batches_biases_and_features() -> None:
    calls = list(draw(60, 5))
    assert {type(problem.call) for _, problem in calls} == {Attend, Aggregate, Collect}
    said = " ".join(name["what"] for name, _ in calls)
    for what in (
        "Dot",
        "Additive",
        "GatedAdditive",
        "features",
        "bias",
        "batch",
        "dropout",
        "network",
        "learned",
        "max",
    ):
        assert what in said
    assert len({name["graph"] for name, _ in calls}) >= 8


@pytest.mark.studies
def test_every_backend_that_takes_a_drawn_call_agrees_with_the_reference() -> None:
    compared = 0
    for name, problem in draw(60, 6):
        call, size = problem.call, problem.call.graph.num_edges * name["heads"] * name["channels"]
        if size > 200_000 or (isinstance(call, Attend) and call.dropout):
            continue
        wanted = dispatch.run(call, "reference")
        for backend, record in BACKENDS.items():
            if record.is_chosen_for(call) and record.refusal(call.lowered()) is None:
                torch.testing.assert_close(dispatch.run(call, backend), wanted, rtol=2e-4, atol=2e-4)
                compared += 1
    assert compared > 30


@pytest.mark.studies
def test_the_command_writes_a_line_for_each_call_and_goes_on_after_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.jsonl"
    before = torch.get_num_threads()
    try:
        assert main(["--count", "3", "--seed", "8", "--threads", "1", "--out", str(out)]) == 0
        assert main(["--count", "4", "--seed", "8", "--threads", "1", "--from", "3", "--out", str(out)]) == 0
    finally:
        torch.set_num_threads(before)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["what"] for row in rows] == [name["what"] for name, _ in draw(4, 8)]
    assert all(
        row["regret"] == row["milliseconds"][row["choice"]] / min(row["milliseconds"].values()) - 1 for row in rows
    )
    assert "| 8 | 1 | 3 |" in capsys.readouterr().out


def test_a_call_beyond_the_bar_is_measured_twice_more_and_the_median_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    names, regrets = [name for name, _ in draw(3, 8)], iter((0.3, 0.0))

    def measured(name: dict[str, Any], problem: Problem) -> dict[str, Any]:
        assert name == names[1]
        return name | {"regret": next(regrets)}

    monkeypatch.setattr(regret, "measure", measured)
    assert again({}, 8) == {}
    assert again({1: names[1] | {"regret": 0.2}}, 8) == {1: names[1] | {"regret": 0.2}}
    assert next(regrets, None) is None


def test_the_table_begins_with_the_worst() -> None:
    row = {"graph": "random", "n": 4, "edges": 9, "heads": 1, "channels": 4, "what": "Dot", "choice": "native"}
    rows = [
        row | {"best": best, "regret": regret, "milliseconds": {}} for best, regret in (("native", 0.0), ("dense", 0.5))
    ]
    lines = table(rows, 8).splitlines()
    assert "dense" in lines[1] and "50.0%" in lines[1]
    assert lines[-1].endswith("| 2 | 0 | 25.0% | 1 | 50.0% | Dot on 9 edges, 1 × 4 channels |")


def test_a_call_measures_every_backend_and_the_regret_of_the_choice() -> None:
    found = measure(*next(iter(draw(1, 3))))
    times = found["milliseconds"]
    assert found["choice"] in times and found["best"] == min(times, key=times.get)
    assert found["regret"] == pytest.approx(times[found["choice"]] / min(times.values()) - 1)


def test_those_that_are_close_take_turns_and_a_slow_one_is_left_at_its_first_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, order = [0.0], []
    for name in ("perf_counter", "process_time"):  # what is read on several threads, and on one
        monkeypatch.setattr(regret.time, name, lambda: clock[0])

    def step(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            order.append(name)
            # The first one's second call is disturbed, and so is one of its rounds.
            clock[0] += seconds * (20 if name == "near" and order.count(name) in (2, 7) else 1)

        return run

    steps = {"near": step("near", 0.010), "best": step("best", 0.008), "slow": step("slow", 0.1)}
    found = regret._seconds(steps, "best")
    assert found == pytest.approx({"near": 0.010, "best": 0.008, "slow": 0.1})
    assert order.count("slow") == 1 + regret.TRIES and order[-4:] == ["near", "best", "near", "best"]
    order.clear()
    regret._seconds(steps, "slow")
    assert order[-3:] == ["near", "best", "slow"]  # a choice is never judged by its first calls alone


@pytest.mark.parametrize(
    ("words", "said"), [("--count none", "--count"), ("--count 3 --from 3", "--from 3 passes over all of --count 3")]
)
def test_what_measures_nothing_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err
