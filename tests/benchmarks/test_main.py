import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.cases import CASES


def test_without_a_case_the_cases_are_listed(capsys) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    for name in (*CASES, "roofline", "all"):
        assert len([line for line in told.splitlines() if line.startswith(f"  {name} ")]) == 1, name


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["csr-4x61"], "unknown case 'csr-4x61'; did you mean 'csr-4x16'?"),
        (["csr-4x16", "--only", "sgment"], "unknown contender 'sgment'; did you mean 'segment'?"),
        (["csr-4x16", "--only", "sdpa"], "sdpa has no part in csr-4x16"),
        (["csr-4x16", "--threads", "0"], "not a whole number from 1"),
        (["csr-4x16", "--quik"], "did you mean '--quick'?"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], told: str, capsys) -> None:
    assert main(arguments) == 2
    complaint = capsys.readouterr().err
    assert told in complaint
    assert complaint.count("\n") == 1


def test_a_quick_case_prints_its_table_and_json_and_writes_its_files(capsys, tmp_path: Path) -> None:
    words = [
        "small-causal",
        "--quick",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--only",
        "edgewise",
        "segment",
        "--out",
        str(tmp_path / "results"),
        "--json",
    ]
    assert main(words) == 0
    told = capsys.readouterr().out
    answer = json.loads(told.splitlines()[-1])
    assert [row["contender"] for row in answer["measurements"]] == ["edgewise", "segment"]
    assert {row["kind"] for row in answer["achieved"]} == {"forward", "step"}
    assert "GB/s" in told
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "results.json",
        "table.md",
    ]
