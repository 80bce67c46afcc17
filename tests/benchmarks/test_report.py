import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.harness import Measurement, Spread


def row(name: str, step: float, threads: int = 2, part: str = "", case: str = "csr-4x16") -> report.Row:
    one = Measurement(case, part, name, threads, errors={"y": 2e-6})
    one.seconds = {"forward": Spread(step / 2, step / 2, step / 2, 3), "step": Spread(step, 0.9 * step, 1.1 * step, 3)}
    one.megabytes = {"forward": 10.0, "step": 20.0}
    return asdict(one)


ROWS = [row("edgewise", 0.1), row("pyg", 0.25), asdict(Measurement("csr-4x16", "", "dense", 2, refused="no"))]


def test_the_table_has_times_ratios_and_refusals() -> None:
    ours, peer, refused = report.table(ROWS)
    assert (ours["step ms"], ours["step ×"]) == ("100 (90.0–110)", "1.00")
    assert (peer["step ×"], peer["MB"], peer["error"]) == ("2.50", "20", "2e-06")
    assert refused["forward ms"] == "— no"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.5, "0.500"), (1.0, "1.00"), (99.94, "99.9"), (1e4, "10,000")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.shown(value) == text


def test_shares_of_the_machine() -> None:
    works = {"csr-4x16/": {"step": (10**9, 2 * 10**9)}}
    found = report.achieved(ROWS, works, {"2": {"bytes": 2e10, "flops": 1e11}})
    assert found[0]["GB/s"] == pytest.approx(10)
    assert found[0]["of copy"] == pytest.approx(0.5)
    assert found[0]["of sgemm"] == pytest.approx(0.2)


def test_the_files_are_written(tmp_path: Path) -> None:
    names = report.write(
        tmp_path / "new",
        {"measurements": ROWS, "machine": {}, "command": "python -m benchmarks", "date": "", "achieved": []},
    )
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(names)
    assert json.loads((tmp_path / "new" / "results.json").read_text())["measurements"][1]["contender"] == "pyg"
    assert "| pyg | 2 | 125 (125–125) |" in (tmp_path / "new" / "table.md").read_text()
