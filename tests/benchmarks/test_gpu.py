"""The benchmark on a GPU from beginning to end, at toy sizes: on the CPU, and on a pretended card."""

import json
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.gpu import problems
from benchmarks.gpu import run as gpu
from edgewise import BackendRefusal, window
from pretend import Card

DRY = ["--device", "cuda", "--dry-run"]


def rows_of(results):
    return {(row["case"], row["contender"]): row for row in results["rows"]}


@pytest.mark.filterwarnings("ignore")
def test_a_short_dry_run_writes_its_files(tmp_path):
    assert main(["causal-4096", "cora-gat", *DRY, "--out", str(tmp_path)]) == 0
    rows = rows_of(json.loads((tmp_path / "results.json").read_text(encoding="utf-8")))
    assert rows["causal-4096", "edgewise"]["milliseconds"].keys() == {"forward", "step"}
    assert rows["cora-gat", "edgewise"]["milliseconds"]["step"] > 0
    assert "| sdpa |" in (tmp_path / "table.md").read_text(encoding="utf-8")


@pytest.mark.endurance  # 45 s
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore")
def test_a_dry_run_checks_and_times_everything(tmp_path, capsys):
    assert main(["all", *DRY, "--out", str(tmp_path)]) == 0
    rows = rows_of(json.loads((tmp_path / "results.json").read_text(encoding="utf-8")))
    assert {case for case, _ in rows} == set(gpu.DRY)
    for case in ("csr-1M-bf16", "causal-4096", "window-16384", "molecules"):
        row = rows[case, "edgewise"]
        assert row["milliseconds"].keys() == {"forward", "step"} and row["errors"]["y"] < 2e-2
    for case, name in (("csr-1M-bf16", "pyg"), ("csr-1M-bf16", "pyg compiled"), ("causal-4096", "sdpa")):
        assert rows[case, name]["milliseconds"]["step"] > 0
    padded = rows["molecules", "padded sdpa"]
    assert padded["errors"].keys() == {"y", "q", "k", "v", "bias"} and max(padded["errors"].values()) < 2e-2
    assert rows["gpt", "plain compiled"]["losses"][1] < rows["gpt", "plain compiled"]["losses"][0]
    assert rows["cora-gat", "edgewise"]["milliseconds"]["step"] > 0
    assert rows["regret", "planner"]["regret"]["rows"]
    assert "out of memory" not in capsys.readouterr().out
    assert "| pyg |" in (tmp_path / "table.md").read_text(encoding="utf-8")


class Event:
    def __init__(self, enable_timing=False):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


@pytest.fixture
def card(monkeypatch):
    answers = {"synchronize": None, "empty_cache": None, "reset_peak_memory_stats": None, "get_device_name": "Card"}
    answers |= {"memory_allocated": 3 << 20, "max_memory_allocated": 5 << 20, "is_available": False}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: x)
    with Card():
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ["csr-1M-bf16", "window-16384", "molecules", "whole-graph"])
def test_nothing_is_on_the_wrong_device(card, case):
    device = gpu.Device(False, 600, toy=True)
    eager = [one for one in gpu.sparse.contenders(device) if one.name != "pyg compiled"]
    with mock.patch.object(gpu.sparse, "contenders", return_value=eager):
        results = gpu.run(device, {case: gpu.cases(quick=False)[case]}, None)
    assert results["machine"]["device"] == "Card"
    rows = rows_of(results)
    for name in {"edgewise", "pyg", "sdpa", "padded sdpa"} & {name for _, name in rows}:
        row = rows[case, name]
        assert "refused" not in row, row["refused"]
        assert row["milliseconds"]["step"] > 0
        assert row.get("peak MB", 2.0) in (2.0, 5.0)


def test_a_wrong_contender_is_not_timed_and_fails_the_run(capsys):
    device = gpu.Device(True, 600)
    graph = gpu.sparse.power_law(20, 60, "cpu")
    for x in (0.5, float("nan")):
        race = problems.Race(problems.Problem("p", graph, 1, 4, torch.float32), device)
        off = problems.Contender("edgewise off", lambda p, d, x=x: problems.Prepared(lambda q, k, v: (q + k + v) * x))
        race.enter(off)
        (row,) = race.time(1.0)
        assert row["refused"].startswith("wrong") and not row["milliseconds"]
        assert gpu.table.failed([row])


def test_a_contender_that_takes_the_card_down_is_left_out_of_a_new_process(monkeypatch, capsys, tmp_path):
    device = gpu.Device(True, 600)
    device.without = frozenset(["sdpa"])
    started = []

    def new_process(command, check):
        started.append(command)
        results = {"machine": MACHINE, "rows": [{"case": "molecules"} | ROW], "left out": ["gpt"]}
        gpu.write(Path(command[command.index("--out") + 1]), results)
        return gpu.subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(gpu.subprocess, "run", new_process)

    def crashing(q, k, v):
        raise RuntimeError("an illegal memory access was encountered")

    def case(device):
        race = problems.Race(problems.Problem("p", gpu.sparse.power_law(20, 60, "cpu"), 1, 4, torch.float32), device)
        race.enter(problems.Contender("sdpa", gpu.dense.sdpa))
        assert race.rows["sdpa"]["refused"] == problems.CRASHED
        device.broken = lambda: True
        race.enter(problems.Contender("edgewise triton", lambda p, d: problems.Prepared(crashing)))

    results = gpu.run(device, {"molecules": case, "gpt": None}, None)
    (command,) = started
    words = command[command.index("benchmarks") + 1 : command.index("--minutes")]
    assert words == ["molecules", "gpt", "--device", "cuda", "--without", "edgewise triton", "sdpa"]
    assert results["rows"][0]["contender"] == "x" and results["left out"] == ["gpt"]
    assert len(results["rows"]) == 1 and not gpu.table.failed(results["rows"])
    assert "illegal memory access" in capsys.readouterr().out
    results = gpu.run(device, {"whole-graph": lambda device: [ROW], "gpt": None}, None)  # broken, by nobody knows whom
    assert started[1][started[1].index("benchmarks") + 1 :][:2] == ["gpt", "--device"]
    assert [row["contender"] for row in results["rows"]] == ["x", "x"]
    monkeypatch.setattr(gpu.subprocess, "run", lambda command, check: gpu.subprocess.CompletedProcess(command, -11))
    results = gpu.run(device, {"whole-graph": lambda device: [ROW], "gpt": None}, None)  # which leaves no file
    assert [row["case"] for row in results["rows"]] == ["whole-graph", "gpt"] and gpu.table.failed(results["rows"])
    assert "code -11" in gpu.table.of_rows(results["rows"])


@pytest.mark.parametrize(("error", "fails"), [(RuntimeError("a kernel"), True), (BackendRefusal("no edges"), False)])
def test_an_error_of_edgewise_fails_the_run_and_a_refusal_does_not(error, fails):
    device = gpu.Device(True, 600)
    race = problems.Race(problems.Problem("p", gpu.sparse.power_law(20, 60, "cpu"), 1, 4, torch.float32), device)
    run = mock.Mock(side_effect=error)
    for name in ("edgewise", "pyg"):
        race.enter(problems.Contender(name, lambda p, d: problems.Prepared(run)))
    own, peer = race.time(1.0)
    assert gpu.table.failed([own]) is fails and not gpu.table.failed([peer])
    results = gpu.run(device, {"molecules": run}, None)
    assert gpu.table.failed(results["rows"]) is fails


def test_a_gradient_of_a_sum_that_is_not_a_number_is_wrong(monkeypatch):
    off = mock.Mock(return_value=lambda x: x[:, :1] * x.detach() * float("nan"))
    monkeypatch.setattr(gpu.sums, "CONTENDERS", {"edgewise": off})
    monkeypatch.setattr(gpu.sums, "step", lambda run, x, dy: (gpu.sums.oracle(*off.call_args[0][:3], x), x * torch.nan))
    (row,) = gpu.sums.sums("1M", torch.float32, "sum", gpu.Device(True, 600))
    assert gpu.table.failed([row]), row


def test_who_took_the_card_down_fails_the_run_where_it_is_edgewise():
    device = gpu.Device(True, 600)
    device.without = frozenset(["edgewise triton", "pyg"])
    race = problems.Race(problems.Problem("p", gpu.sparse.power_law(20, 60, "cpu"), 1, 4, torch.float32), device)
    for name in sorted(device.without):
        race.enter(problems.Contender(name, None))
    own, peer = race.time(1.0)
    assert gpu.table.failed([own]) and not gpu.table.failed([peer])
    rows = gpu.sums.sums("1M", torch.float32, "sum", device)
    assert {row["contender"] for row in rows if row.get("refused") == problems.CRASHED} == device.without
    assert gpu.table.failed([row for row in rows if row["contender"] == "edgewise triton"])


MACHINE = {"device": "Card", "python": "3", "date": "today", "bandwidth, B/s": 1.0, "bytes": "E"}
ROW = {"problem": "p", "contender": "x", "refused": "no"}


def test_what_there_is_no_time_for_is_said(capsys):
    results = gpu.run(gpu.Device(True, 1.0), {"gpt": None, "molecules": None}, None)
    assert results["left out"] == ["gpt", "molecules"] and not results["rows"]
    assert "Left out for lack of time: gpt, molecules." in capsys.readouterr().out
    assert main(["mole", *DRY]) == 2


def test_the_oracle_in_parts_is_the_oracle():
    for graph, sizes in ((gpu.sparse.power_law(30, 200, "cpu"), ()), (window(40, 3), ())):
        problem = problems.Problem("p", graph, 2, 4, torch.float32, sizes=sizes, biased=graph.rule is None)
        leaves = problem.leaves(0)
        whole = problem.oracle(leaves)
        with mock.patch.object(problems, "NUMBERS", 50):
            parts = problem.oracle(leaves)
        assert len(whole) == len(leaves) and all(torch.allclose(whole[name], parts[name]) for name in whole)


def test_the_peer_of_cora_gat_adds_no_self_loops_in_a_step(monkeypatch):
    gat_conv = pytest.importorskip("torch_geometric.nn.conv.gat_conv")
    monkeypatch.setattr(gat_conv, "add_self_loops", None)
    monkeypatch.setitem(gpu.training.TASKS, "generated", gpu.training.generated_cora)
    device = gpu.Device(True, 600)
    config = gpu.training.configured("cora-gat", device)
    config = replace(config, task=replace(config.task, name="generated", options={}))
    step = gpu.training.pyg_gat(config, device)
    assert step() > 0
