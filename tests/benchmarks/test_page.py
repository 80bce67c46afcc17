from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement
from benchmarks.page import around_gpus, best_peer, on_a_gpu, page
from benchmarks.statistic import Spread


def row(name: str, step: float) -> report.Row:
    one = Measurement("csr-4x16", "", name, 2, errors={"y": 2e-6}, bits="a")
    one.seconds = {"forward": Spread(step / 2, step / 2, step / 2, 3), "step": Spread(step, step, step, 3)}
    one.megabytes, one.kept = {"forward": 10.0, "step": 20.0}, {"forward": 1.0, "step": 2.0}
    return report.as_row(one)


ROWS = [row("edgewise", 0.1), row("pyg", 0.25), row("compiled", 0.2), row("segment", 0.01)]
ROWS.append(report.as_row(Measurement("csr-4x16", "", "dense", 2, refused="too large")))
RESULTS = {
    "command": "python -m benchmarks all",
    "date": "2026-11-21",
    "quick": False,
    "machine": {"processor": "a processor, 2 cores", "python": "3.11", "torch": "2.13", "numba": None},
    "roofline": {"1": {"bytes": 1e10, "flops": 9e10}},
    "formulas": {"csr": "bytes and operations", "symbols": "E edges"},
    "measurements": ROWS,
    "achieved": [],
    "growth": [{"case": "csr-4x16", "contender": "edgewise", "threads": 2, "step time": 1.01}],
    "speed_up": [],
    "regret": None,
}


def test_the_fastest_peer_is_not_a_backend_of_ours() -> None:
    found = best_peer(ROWS, "step")
    assert found is not None
    assert found["contender"] == "compiled"


def test_the_page_has_machine_ratios_memory_and_refusals() -> None:
    text = page(RESULTS)
    assert "a processor, 2 cores; Python 3.11, PyTorch 2.13." in text
    assert "| csr-4x16 | 2 | forward and backward | 100 | 200 | `compiled` | 2.00 | 20 | 20 |" in text
    assert "Not measured: `dense`: too large." in text
    assert "10.0 GB/s" in text
    assert "1.01" in text


def test_a_page_of_nothing_is_still_a_page() -> None:
    assert page(RESULTS | {"measurements": [], "roofline": {}}).startswith("# Performance")


def test_the_section_on_gpus_and_what_follows_stay_when_the_rest_is_written_again() -> None:
    measured, more = on_a_gpu("one table\n\n### csr\n\nanother\n"), "\n## By hand\n\ntext\n"
    assert "one table" in measured and "Nothing was measured" not in measured
    assert around_gpus(page(RESULTS) + "\n" + measured + more) == (page(RESULTS) + "\n", measured, more)
    assert around_gpus(page(RESULTS) + "\n" + measured) == (page(RESULTS) + "\n", measured, "")
    before, gpu, after = around_gpus(page(RESULTS))
    assert before == page(RESULTS) and "Nothing was measured on a GPU yet" in gpu and after == ""


def test_the_committed_page_has_that_section_and_those_written_by_hand() -> None:
    text = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    before, gpu, after = around_gpus(text)
    assert before + gpu + after == text and "NVIDIA H100" in gpu and "## Whole training steps" in after
