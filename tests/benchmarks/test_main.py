"""The command: what it lists, refuses, measures and writes; a contender that is wrong is not timed."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import report, roofline
from benchmarks.__main__ import Machine, failed, main, measure
from benchmarks.cases import CASES, CASES_OF_A_GPU
from benchmarks.contenders import Contender, ours_on
from benchmarks.inputs import Inputs

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyTorch Geometric's


def test_without_a_case_the_cases_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out.splitlines()
    for name in (*CASES, *CASES_OF_A_GPU):
        assert len([line for line in printed if line.split()[:1] == [name]]) == 1, name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["csr-4x61"], "unknown case 'csr-4x61'; did you mean 'csr-4x16'?"),
        (["csr-4x16", "--only", "sgment"], "unknown contender 'sgment'; did you mean 'segment'?"),
        (["csr-4x16", "--threads", "0"], "not a whole number from 1"),
        (["gpu-window", "--device", "cuda"], "no GPU of NVIDIA's here"),
        (["csr-4x16", "--quik"], "did you mean '--quick'?"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available() and "cuda" in arguments:
        pytest.skip("a GPU is here")
    assert main(arguments) == 2
    complaint = capsys.readouterr().err
    assert message in complaint and complaint.count("\n") == 1


@pytest.mark.parametrize("case", ["small-causal", pytest.param("gpu-csr-100k", marks=pytest.mark.studies)])
def test_a_quick_case_prints_and_writes_its_table(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([case, "--quick", "--only", "edgewise", "segment", "--out", str(tmp_path / "new")]) == 0
    rows = json.loads((tmp_path / "new" / "results.json").read_text())["rows"]
    assert [row["contender"] for row in rows] == ["edgewise", "segment"]
    for row in rows:
        assert row["error"] < 4e-2 and row["MB"] >= 0 and "refused" not in row
        assert all(min(taken) > 0 for taken in row["seconds"].values()) and set(row["seconds"]) == {"forward", "step"}
    table = (tmp_path / "new" / "table.md").read_text()
    assert f"## {case}" in table and table.split("\n\n", 1)[1].splitlines()[-1] in capsys.readouterr().out


def test_a_contender_that_is_wrong_or_fails_is_not_timed() -> None:
    right = ours_on("cpu")["edgewise"]

    def wrong(inputs: Inputs):  # type: ignore[no-untyped-def]
        run = right.prepare(inputs)
        return lambda: run() * 1.01

    def fails(inputs: Inputs):  # type: ignore[no-untyped-def]
        raise RuntimeError("no\n way")

    who = {
        "wrong": Contender("", right.refuses, wrong),
        "fails": Contender("", right.refuses, fails),
        "edgewise": right,
    }
    part = CASES["small-causal"].parts[""]
    rows = {row["contender"]: row for row in measure(part, who, Machine("cpu", 1), 1, 0.1)}
    assert rows["wrong"]["refused"].startswith("wrong by 1") and rows["wrong"]["seconds"] == {}
    assert rows["fails"]["refused"] == "RuntimeError: no way"
    assert failed(rows["wrong"]) and not failed(rows["edgewise"]) and not failed(rows["wrong"] | {"contender": "pyg"})
    assert failed(rows["fails"] | {"contender": "edgewise"}) and not failed(rows["fails"] | {"contender": "segment"})
    assert "refused" not in rows["edgewise"] and set(rows["edgewise"]["seconds"]) == {"forward", "step"}


def test_the_table_has_times_ratios_shares_and_refusals() -> None:
    rows = [
        {"contender": "edgewise", "seconds": {"step": [0.1]}, "step bytes": 1e9, "MB": 20.0, "error": 2e-6},
        {"contender": "pyg", "seconds": {"step": [0.25]}, "MB": 1234.0, "error": 0.0},
        {"contender": "dense", "seconds": {}, "refused": "no"},
    ]
    ours, peer, refused = report.lines(rows, copied=2e10)
    assert (ours["step ms"], ours["step ×"], ours["step of copy"]) == ("100 (100–100)", "1.00", "50%")
    assert (peer["step ×"], peer["MB"], refused["remark"]) == ("2.50", "1,234", "no")
    assert "forward ms" not in ours


def test_the_brief_table_has_the_fastest_peer_and_shares_of_the_machine() -> None:
    case = {"case": "csr", "part": "", "threads": 2}
    rows = [
        case
        | {"contender": "edgewise", "seconds": {"step": [0.1]}, "MB": 20.0, "step bytes": 1e9, "step operations": 1e9},
        case | {"contender": "pyg", "seconds": {"step": [0.5, 0.3, 0.4]}, "MB": 30.0},
        case | {"contender": "compiled", "seconds": {"step": [0.25]}, "MB": 1234.0},
        case | {"contender": "sdpa", "seconds": {}, "refused": "no"},
        case | {"case": "alone", "contender": "edgewise", "seconds": {"forward": [2e-3]}, "MB": 1.0},
    ]
    both, alone = report.brief(rows, copied=2e10, multiplied=1e11)
    assert list(both.values()) == [
        "csr", "2", "forward and backward", "100", "250", "compiled", "2.50", "20", "1,234", "50%", "10%",
    ]  # fmt: skip
    assert (alone["Edgewise, ms"], alone["peer"], alone["×"]) == ("2.00", "", "")


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.5, "0.500"), (1.0, "1.00"), (99.94, "99.9"), (1e4, "10,000")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.shown(value) == text


@pytest.mark.parametrize("formula", roofline.FORMULAS)
def test_a_step_moves_and_computes_more_than_its_forward_pass(formula: str) -> None:
    forward, step = (roofline.traffic(formula, kind, 100, 10, 2, 4) for kind in ("forward", "step"))
    assert all(more > less for more, less in zip(step, forward, strict=True))


def test_a_batch_counts_every_copy() -> None:
    moved, operations = roofline.of(CASES["small-causal"].parts[""].make(1.0), "pairs", "forward")
    assert moved == 4 * 12 * 64 * 4 * 4 * 32
    assert operations == 4 * 12 * (64 * 65 // 2) * 4 * 32
