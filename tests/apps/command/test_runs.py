import json
import shutil
import statistics
from pathlib import Path

import pytest
from safetensors.torch import load_file

from edgewise.apps.command import runs
from edgewise.apps.command.main import main
from edgewise.apps.report import report
from edgewise.deployment import serving
from edgewise.tasks import Task
from edgewise.training import Result, RunConfig
from edgewise.training.runs import create

TINY = ["--train.steps", "4", "--evaluation.every", "2", "--train.checkpoints.every", "2", "--model.width", "8"]


def last(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def weights(run: Path) -> dict:
    newest = sorted((run / "checkpoints").iterdir())[-1]
    return {name: tensor.tolist() for name, tensor in load_file(newest / "model.safetensors").items()}


def test_a_run_folder_holds_all_that_the_run_was(capsys) -> None:
    assert main(["train", "karate", *TINY, "--json"]) == 0
    answer = last(capsys)
    run = Path(answer["runs"][0])
    assert run == Path("runs/karate-0")
    assert {path.name for path in run.iterdir()} == {
        "config.yaml", "metrics.jsonl", "checkpoints", "figures", "report.html", "explanations",
    }  # fmt: skip
    assert {path.name for path in (run / "figures").iterdir()} == {"attention.svg", "confusion.svg", "curves.svg"}
    assert answer["recipe"] == "karate"
    assert answer["metric"] == "accuracy"
    assert answer["values"] == [answer["mean"]]
    assert answer["sd"] is None


def test_seeds_repeat_and_report_mean_and_deviation(capsys) -> None:
    assert main(["train", "karate", *TINY, "--seeds", "3", "--train.seed", "5", "--run", "mine", "--json"]) == 0
    told = capsys.readouterr().out
    answer = json.loads(told.splitlines()[-1])
    assert answer["runs"] == ["mine/seed-5", "mine/seed-6", "mine/seed-7"]
    assert answer["mean"] == statistics.fmean(answer["values"])
    assert answer["sd"] == statistics.stdev(answer["values"])
    assert "± " in told.splitlines()[-2]
    assert weights(Path("mine/seed-5")) != weights(Path("mine/seed-6"))
    page = Path(answer["page"])  # one for all seeds
    assert page == Path("mine/seed-5-to-seed-7.html") and str(page) in told
    text = page.read_text(encoding="utf-8")
    assert all(run in text for run in answer["runs"]) and "± " in text and "3 runs of 1 configuration" in text


def test_resume_after_a_crash_ends_with_the_same_weights(capsys) -> None:
    assert main(["train", "karate", *TINY, "--run", "whole", "--json"]) == 0
    whole = last(capsys)
    shutil.copytree("whole", "cut")
    shutil.rmtree("cut/checkpoints/step-00000004")
    Path("cut/report.html").unlink()
    metrics = Path("cut/metrics.jsonl")
    metrics.write_bytes(metrics.read_bytes()[:-20])
    assert main(["resume", "cut", "--json"]) == 0
    assert last(capsys)["values"] == whole["values"]
    assert weights(Path("cut")) == weights(Path("whole"))
    assert Path("cut/report.html").is_file()


def test_an_interruption_of_the_report_says_how_to_go_on(monkeypatch, capsys) -> None:
    def interrupted(*_: object) -> list[str]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(report, "report", interrupted)
        assert main(["train", "karate", *TINY]) == 130
    assert "go on with: edgewise resume runs/karate-0" in capsys.readouterr().err
    assert main(["resume", "runs/karate-0"]) == 0
    assert "test accuracy" in capsys.readouterr().out
    assert Path("runs/karate-0/report.html").is_file()


def test_a_report_that_fails_is_told_and_does_not_fail_the_run(monkeypatch, capsys) -> None:
    def faulty(*_: object) -> list[str]:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(report, "report", faulty)
    assert main(["train", "karate", *TINY, "--json"]) == 0
    told = capsys.readouterr()
    assert "warning: the report of runs/karate-0 could not be written: ZeroDivisionError: a fault" in told.err
    assert json.loads(told.out.splitlines()[-1])["runs"] == ["runs/karate-0"]


def test_print_config_is_a_recipe_that_gives_the_same_run(capsys) -> None:
    assert main(["train", "karate", *TINY, "--print-config"]) == 0
    assert not Path("runs").exists()
    Path("karate.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["train", "karate.yaml", "--run", "a/x"]) == 0
    assert main(["train", "karate", *TINY, "--run", "b/x"]) == 0
    assert Path("a/x/config.yaml").read_bytes() == Path("b/x/config.yaml").read_bytes()
    assert weights(Path("a/x")) == weights(Path("b/x"))


def test_ranks_agree_on_the_folder(monkeypatch) -> None:
    config = runs.configure(runs.recipes.read("karate"))
    Path("runs/karate-0").mkdir(parents=True)
    assert runs.run_folder(config, None, alone=True) == Path("runs/karate-0-2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert runs.run_folder(config, None, alone=True) == Path("runs/karate-0")


def test_an_interruption_among_several_runs_says_how_many_are_trained(monkeypatch, capsys) -> None:
    train = runs.training.train

    def interrupted(config: RunConfig, run: Path, task: Task | None = None) -> Result:
        if config.train.seed != 1:
            return train(config, run)
        create(run, config)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.training, "train", interrupted)
    assert main(["train", "karate", *TINY, "--seeds", "3"]) == 130
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.endswith("go on with: edgewise resume runs/karate-1; 1 of 3 runs are trained")


@pytest.fixture
def folds(tmp_path, monkeypatch) -> list[str]:
    """Arguments that train a small graph network on a folder of forty paths."""
    from tasks.graphs.test_tudataset import write

    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path))
    (tmp_path / "tudataset").mkdir()
    write(tmp_path / "tudataset" / "MINE")
    Path("paths.yaml").write_text(
        "task: {name: tudataset, dataset: MINE}\nmodel: {name: gnn, layer: gin, width: 4, readout: sum}\n"
        "train: {steps: 6, batch: 8}\nevaluation: {every: 2}\n",
        encoding="utf-8",
    )
    return ["train", "paths.yaml", "--json"]


def test_folds_repeat_with_another_fold_and_seed_each(folds, capsys) -> None:
    assert main([*folds, "--folds", "3", "--run", "mine"]) == 0
    told = capsys.readouterr().out
    answer = json.loads(told.splitlines()[-1])
    assert answer["runs"] == ["mine/seed-0", "mine/seed-1", "mine/seed-2"]
    configs = [runs.training.read_config(Path(run)) for run in answer["runs"]]
    assert [config.task.options["fold"] for config in configs] == [0, 1, 2]
    assert [config.train.seed for config in configs] == [0, 1, 2]


def test_folds_need_a_task_that_has_them(folds, capsys) -> None:
    assert main(["train", "karate", "--folds", "3", *TINY]) == 2
    assert "has no folds" in capsys.readouterr().err
    assert main([*folds, "--folds", "3", "--seeds", "2"]) == 2
    assert "exclude one another" in capsys.readouterr().err


def test_what_is_wrong_with_data_or_said_of_them_is_told_once_in_lines(tmp_path, capsys) -> None:
    def write(last: str) -> list[str]:
        rows = "".join(f"n{n},{n},{'uv'[n % 2]},{('train', 'valid', 'test')[n % 3]}\n" for n in range(18))
        (tmp_path / "nodes.csv").write_text(f"id,age,label,split\n{rows}{last}", encoding="utf-8")
        (tmp_path / "edges.csv").write_text("source,target\nn0,n1\n", encoding="utf-8")
        data = [f"--task.folder={tmp_path}", "--task=node-folder", "--train.steps=1"]
        return ["train", "cora-sage", *data, f"--run={tmp_path / 'run'}"]

    assert main(write("x,1,u\ny,2,u\n")) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("line 20 does not have 4 columns") and second.endswith("line 21 does not have 4 columns")
    assert main(write("x,1,w,test\n")) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "that trains" in line]
    assert said == [f"{tmp_path / 'run'}: label: no node that trains is of the class w"]


def test_commands_on_a_run_take_the_place_where_its_data_lie_now(tmp_path, monkeypatch, capsys) -> None:
    data, run, now = tmp_path / "mine", str(tmp_path / "run"), tmp_path / "moved"
    data.mkdir()
    rows = "".join(f"n{n},{n},{'uv'[n % 2]}\n" for n in range(18))
    (data / "nodes.csv").write_text(f"id,age,label\n{rows}", encoding="utf-8")
    (data / "edges.csv").write_text("source,target\nn0,n1\n", encoding="utf-8")
    task = ["--task=node-folder", f"--task.folder={data}"]
    assert main(["train", "cora-sage", *task, "--train.steps=1", f"--run={run}"]) == 0
    data.rename(now)
    monkeypatch.setattr(serving, "serve", lambda trained, *arguments: 0)
    for command in (["explain", run, "n3"], ["export", run, "--to=pt2"], ["serve", run]):
        capsys.readouterr()
        assert main(command) == 0 and "stands in for its data" in capsys.readouterr().err
        assert main([*command, f"--task.folder={now}"]) == 0
    (page,) = (tmp_path / "run" / "explanations").glob("n3-*.html")
    assert f" --task.folder {now}</pre>" in page.read_text(encoding="utf-8")
    for command, why in (("explore", "has no blocks of attention"), ("generate", "generates nothing")):
        assert main([command, run, f"--task.folder={now}"]) == 2
        said = capsys.readouterr().err
        assert why in said and "no such folder" not in said
