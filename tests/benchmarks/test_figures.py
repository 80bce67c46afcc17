"""Tables of figures are what was recorded, byte for byte; every figure is within its bound; claims rest on bounds."""

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import figures
from benchmarks.figures import Figure
from edgewise.errors import DataError

CLAIMS = Path(__file__).parents[2] / "docs" / "claims.md"
TRAINED = {"command": "a", "figures": {"accuracy": [0.9, 0.01, 5], "memory": [1.9, None, 1]}, "seconds": 3.2}
STUDY = {
    "command": "s",
    "rows": [["network", "error", "a step"], ["GNN", "0.064 ± 0.001", "1,280 ms"], ["EGNN, turned", "0.017", "−2 %"]],
}


def test_tables_are_written_from_what_is_recorded() -> None:
    for name, content in figures.tables(figures.recorded()).items():
        assert (figures.TABLES / f"{name}.csv").read_text(encoding="utf-8") == content, "run make figures"


def test_recorded_figures_are_within_their_bounds() -> None:
    known = figures.recorded()
    assert set(figures.commands()) == known.keys(), "make figures runs what is new"
    assert [said for figure in figures.figures() for said in figures.wrong(figure, known)] == []


def test_each_claim_has_a_bound_or_says_that_it_has_none_and_shows_its_figure() -> None:
    known, entries = figures.recorded(), 0
    for entry in re.findall(r"^\|(?!---| place).*`.*\|$", CLAIMS.read_text(encoding="utf-8"), re.MULTILINE):
        commands = re.findall(r"`((?:pytest|python|edgewise) [^`]+)`", entry)
        bounded = [figure for figure in figures.figures() if figure.bound and figure.command in commands]
        assert bounded or "no bound" in entry or any(one.startswith("pytest") for one in commands), entry
        for figure in bounded:
            if figure.measure and not figure.value:
                value = figures.values(known[figure.command], "")[""]
                assert figures.shown(figures.unit(figure, known[figure.command]), value) in entry, entry
        entries += 1
    assert entries > 70


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (Figure("", "a", bound="≥ 0.8"), ""),
        (Figure("", "a", bound="≥ 0.91"), "0.9 is not ≥ 0.91"),
        (Figure("", "a", bound="≤ 3", value="memory"), ""),
        (Figure("", "a", bound="≥ 0.8", simple="0.85 a guess"), "the bound 0.8 is under the 0.85 of a guess"),
        (Figure("", "a", bound="≥ 0.8", simple="0.95 a guess"), ""),  # the table says that it is missed
        (Figure("", "a", bound="≥ 0.8", simple="0.895 a guess"), ""),  # within two standard errors
        (Figure("", "a", bound="better", without="--depth 0"), "0.9 is not ≥ 0.92 (better)"),
        (Figure("", "s", bound="≤ 0.5 × GNN/error", value="EGNN*/error"), ""),
        (Figure("", "s", bound="≤ 0.2 × GNN/error", value="EGNN*/error"), "0.017 (1 EGNN, turned) is not ≤ 0.0128"),
        (Figure("", "s", bound="≥ 1000", value="GNN/a step"), ""),
        (Figure("", "s", bound="≤ -0.02", value="EGNN*/a step"), ""),
    ],
)
def test_what_breaks_a_bound_is_said(line: Figure, message: str) -> None:
    known = {"a": TRAINED, "s": STUDY, "a --depth 0": {"figures": {"accuracy": [0.92, None, 1]}}}
    said = " ".join(figures.wrong(line, known))
    assert message in said if message else said == ""


def test_a_simple_method_that_is_better_and_what_gains_nothing_show_in_the_table() -> None:
    known = {"a": TRAINED, "a --depth 0": {"figures": {"accuracy": [0.92, None, 1]}}}
    line = Figure("t", "a", "test accuracy", "≥ 0.8", "0.95 a guess", "--depth 0")
    assert figures.line(line, known) == [
        "`a`", "test accuracy", "≥ 80.0 %", "95.0 %, a guess: missed", "92.0 % (one run), `--depth 0`: no gain",
        "90.0 % ± 1.0 %", "3",
    ]  # fmt: skip


def test_a_study_is_run_once_and_its_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []

    def process(words: Any, folder: Path) -> Any:
        runs.append(words)
        return "one line\n| a | b |\n|---|---|\n| x | |\n", {"seconds": 1.0}

    monkeypatch.setattr(figures, "BUILD", tmp_path)
    monkeypatch.setattr(figures, "process", process)
    command = "python -m benchmarks.studies.labels"
    first, second = figures.measured(command), figures.measured(command)
    assert first == second and first["rows"] == [["a", "b"], ["x", ""]] and len(runs) == 1
    figures.measured(command, again=True)
    assert len(runs) == 2


def test_studies_of_one_table_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "figures", lambda: (Figure("both", "s"), Figure("both", "s --threads 2")))
    other = STUDY | {"rows": [STUDY["rows"][0], ["LSTM", "1", "2 ms"]]}
    joined = figures.tables({"s": STUDY, "s --threads 2": other})["both"].splitlines()
    assert joined[0] == "network,error,a step" and joined[-1] == "LSTM,1,2 ms" and len(joined) == 4


def test_parts_share_all_commands_and_keep_a_start_beside_what_starts_from_it() -> None:
    commands = figures.commands()
    parts = [figures.part(commands, number, 4) for number in (1, 2, 3, 4)]
    assert sorted(command for part in parts for command in part) == sorted(commands)
    own = next(part for part in parts if "edgewise train esol-bert" in part)
    assert "edgewise train esol-bert-100 --seeds 5" in own


@pytest.mark.studies
def test_one_step_is_chosen_for_all_folds() -> None:
    def log(*accuracies: float) -> str:
        scores = [f'{{"step": {2 * n + 2}, "valid": {{"accuracy": {one}}}}}' for n, one in enumerate(accuracies)]
        return "\n".join(['{"step": 1, "loss": 1.0}', *scores, '{"metric": "accuracy"}'])

    mean, deviation, count = figures.best_of_mean_curve([log(0.9, 0.5, 0.6), log(0.1, 0.7, 0.8, 1.0)], "accuracy")
    assert (mean, count) == (pytest.approx(0.7), 2) and deviation == pytest.approx(0.02**0.5)


def test_a_training_gives_its_metric_and_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "BUILD", tmp_path)
    found = figures.measured("edgewise train karate --seeds 2 --train.steps 2")
    value, deviation, count = found["figures"]["accuracy"]
    assert 0 <= value <= 1 and deviation is not None and count == 2 and next(iter(found["figures"])) == "accuracy"
    assert found["seconds"] > 1 and 0.1 < found["figures"]["memory"][0] < 8


def test_public_data_are_fetched_once_for_each_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched: list[tuple[str, Any]] = []

    def citation(dataset: str, download: bool, **others: Any) -> None:
        fetched.append((dataset, download))
        if dataset == "citeseer":
            raise DataError("the download failed")

    monkeypatch.setitem(figures.TASKS, "citation", functools.wraps(figures.TASKS["citation"])(citation))
    train = "edgewise train cora-gcn"
    figures.fetch(
        [train, f"{train} --seeds 2", f"{train} --task.dataset citeseer", "edgewise train karate", "python -m a"]
    )
    assert fetched == [("cora", True), ("citeseer", True)] and "no data  the download failed" in capsys.readouterr().out
