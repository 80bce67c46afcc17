"""Runs side by side: repetitions together, what differs, deviations, and names that run nothing."""

import json
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgewise.apps.command.main import main
from edgewise.apps.report.compare import compare
from edgewise.errors import CheckpointError, ConfigError

Make = Callable[..., Path]


@pytest.fixture
def make(trained: Callable[[str], Path], tmp_path: Path) -> Make:
    """A copy of a small run, with another seed, other options and another result."""

    def copy(name: str, seed: int = 0, test: float = 0.5, **options: Any) -> Path:
        run = tmp_path / name
        shutil.copytree(trained("karate"), run)
        config = yaml.safe_load((run / "config.yaml").read_text())
        config["train"]["seed"] = seed
        config["model"] |= options
        (run / "config.yaml").write_text(yaml.safe_dump(config))
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        records[-1]["test"]["accuracy"] = test
        (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        return run

    return copy


def test_repetitions_have_a_mean_and_a_deviation(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    tests = (0.5, 0.75, 0.7)
    runs = [str(make(f"first-{seed}", seed, test)) for seed, test in enumerate(tests)]
    other = str(make("other", 0, 0.25, heads=2))
    assert main(["report", "compare", *runs, other, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    first, second = summary["configurations"]
    assert (first["letter"], first["runs"], second["runs"]) == ("A", runs, [other])
    assert first["test"] == pytest.approx(statistics.fmean(tests))
    assert first["test_sd"] == pytest.approx(statistics.stdev(tests))
    assert (second["test"], second["test_sd"]) == (0.25, None)
    text = Path(summary["page"]).read_text(encoding="utf-8")
    for part in ("4 runs of 2 configurations", "65.0 % ± 13.2 %", "25.0 %", "model.heads", "seed 2", "<svg"):
        assert part in text, part
    assert "train.seed" not in text


def test_runs_of_one_configuration_differ_in_nothing_else(make: Make, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    made = compare([str(make("a", 0)), str(make("b", 1))], str(page))
    assert len(made["configurations"]) == 1
    assert "differ in seed or fold" in page.read_text(encoding="utf-8")


def test_a_run_that_is_not_finished_is_compared_by_its_curves(make: Make, tmp_path: Path) -> None:
    run, page = make("a", heads=2), tmp_path / "page.html"
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]) + '{"step": 5, "loss": "x", "valid": 3}\n')
    empty = make("b", heads=1)
    (empty / "metrics.jsonl").unlink()
    made = compare([str(run), str(empty)], str(page))
    assert [one["test"] for one in made["configurations"]] == [None, None]
    text = page.read_text(encoding="utf-8")
    assert "not finished" in text and "0 of 1" in text and "<svg" in text


def test_a_run_that_is_named_twice_counts_once(make: Make, tmp_path: Path) -> None:
    first, second = (str(make(name, seed, test)) for name, seed, test in (("a", 0, 0.5), ("b", 1, 0.75)))
    made = compare([first, second, f"{second}/", str(Path(second).parent / "." / "b")], str(tmp_path / "page.html"))
    assert made["configurations"][0]["runs"] == [first, second]
    assert made["configurations"][0]["test"] == 0.625


def test_what_cannot_be_compared_is_refused(make: Make, tmp_path: Path) -> None:
    run = str(make("a"))
    with pytest.raises(ConfigError, match="two runs or more"):
        compare([run, run])
    with pytest.raises(CheckpointError, match="not a run folder"):
        compare([run, str(tmp_path)])
