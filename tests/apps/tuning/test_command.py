import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgewise.apps.command.main import main, parse
from edgewise.apps.command.options import MOST_TRIALS
from edgewise.apps.options import configure
from edgewise.apps.recipes import read
from edgewise.apps.tuning import study
from edgewise.apps.tuning.command import limits
from edgewise.errors import NonFiniteError

pytest.importorskip("optuna", reason="edgewise tune needs it")

TINY = ["--train.steps=6", "--evaluation.every=2", "--train.checkpoints.every=6", "--model.width=8"]
SEARCHED = ["--search=optimizer.learning_rate=0.001..0.1", "--search=model.layer=gcn,sage-mean"]


def last(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.studies
@pytest.mark.parametrize(("repeated", "name"), [(["--seeds=2"], "seed-2")])
def test_a_search_reads_the_test_data_once_with_the_best_options(repeated, name, capsys):
    assert main(["tune", "karate-sage", *TINY, *SEARCHED, *repeated, "--trials=3", "--json"]) == 0
    answer = last(capsys)
    folder = Path("runs/karate-sage-tuned")
    assert answer["trials"] == 3
    read_test = [path for path in folder.rglob("metrics.jsonl") if '"test"' in path.read_text()]
    assert sorted(path.parent for path in read_test) == [Path(run) for run in answer["runs"]]
    assert Path(answer["runs"][0]) == folder / "best" / str(answer["best"]) / name
    assert all(path.parts[3] == str(answer["best"]) for path in read_test)
    assert (folder / "report.html").is_file() and not list((folder / "trials").rglob("checkpoints"))

    tuned = read(answer["recipe_file"])
    overrides = [(option, str(value)) for option, value in answer["options"].items()]
    plain = [tuple(one.removeprefix("--").split("=")) for one in TINY]
    assert configure(tuned).to_plain() | {"recipe": ""} == configure(
        read("karate-sage"), [*plain, *overrides]
    ).to_plain() | {"recipe": ""}

    before = {path: path.read_bytes() for path in folder.rglob("metrics.jsonl")}
    assert (
        main(["tune", "karate-sage", *TINY, *SEARCHED, *repeated, "--trials=3", "--json"]) == 0
    )  # nothing is left to do
    assert last(capsys)["best"] == answer["best"]
    assert {path: path.read_bytes() for path in folder.rglob("metrics.jsonl")} == before


def test_the_recipe_itself_is_the_first_trial(capsys):
    assert main(["train", "karate-sage", *TINY, "--json"]) == 0
    alone = last(capsys)
    assert main(["tune", "karate-sage", *TINY, *SEARCHED, "--trials=1", "--json"]) == 0
    assert last(capsys)["valid"] == alone["valid"][0]


@pytest.mark.parametrize(("widths", "is_recipe"), [("8,32", False)])
def test_a_trial_is_called_the_recipe_only_where_it_is(widths, is_recipe, capsys):
    shape = [*TINY[:-1], f"--search=model.width={widths}", "--search=model.layer=gcn,sage-mean"]
    assert main(["tune", "karate-sage", "--model.depth=1", *shape, "--trials=1", "--run=t"]) == 0
    page = Path("t/report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page) and "<script" not in page
    said = ["as the recipe stands" in capsys.readouterr().out, "the recipe, validation" in page, "as it stands" in page]
    assert said == [is_recipe] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds=2", "--folds=2"], "exclude one another"),
        (["--folds=3"], "has no folds"),
        (["--time=soon"], "'soon' is no time such as 90s, 30m or 2h"),
        (["--trials=0"], "'0' is not a whole number from 1"),
        (["--search=model.width"], "write SECTION.OPTION=LOW..HIGH"),
        (["--serch=model.width=1..2"], "unknown option '--serch'; did you mean '--search'"),
        (["--model.widht=3"], "did you mean 'width'"),
    ],
)
def test_a_mistake_is_one_line_and_makes_no_folder(arguments, message, capsys):
    assert main(["tune", "karate-sage", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not Path("runs").exists()


def test_where_no_trial_runs_the_first_says_why(monkeypatch, capsys):
    def carry_out(config, run, watch):
        raise NonFiniteError("step 1: the loss is nan")

    monkeypatch.setattr(study, "carry_out", carry_out)
    assert main(["tune", "karate", "--train.steps=2", "--trials=2"]) == 2
    told = capsys.readouterr()
    assert "trial 1: step 1: the loss is nan" in told.out
    assert "2 of 2 trials did not run with their values" in told.err


def test_the_page_shows_what_mattered_and_what_did_not_run(monkeypatch):
    def carry_out(config, run, watch):
        if run.parent.name == "1":
            raise RuntimeError("shapes cannot be multiplied")
        run.mkdir()
        return SimpleNamespace(valid=config.optimizer.options["learning_rate"])

    monkeypatch.setattr(study, "carry_out", carry_out)
    searched = ["--search=optimizer.learning_rate=0.0001..0.5", "--search=model.layer=gcn,sage-mean,gin"]
    assert main(["tune", "karate-sage", *TINY, *searched, "--trials=13"]) == 0
    page = Path("runs/karate-sage-tuned/report.html").read_text()
    assert page.count("<svg") == 2  # history, options
    for text in (
        "<td>optimizer.learning_rate</td>",
        "log₁₀ learning_rate",
        "layer: 0 = gcn, 1 = sage-mean, 2 = gin",
        "13 trials",
        "0 stopped early, 1 did not run",
        "shapes cannot be multiplied (RuntimeError)",
    ):
        assert text in page


def test_a_search_is_of_fifty_trials_or_an_hour_and_a_time_alone_is_filled_with_trials():
    given = {
        "": (50, 3600),
        "--time=30m": (MOST_TRIALS, 1800),
        "--trials=7": (7, 3600),
        "--trials=7 --time=30m": (7, 1800),
    }
    for words, wanted in given.items():
        args = parse(["tune", "karate", *words.split()])
        assert limits(args.trials, args.time) == wanted


def test_options_that_do_not_go_with_the_data_are_not_searched(tmp_path, capsys):
    """Each trial but the first had a share of edges to leave out, which edges with features refuse."""
    nodes = "".join(f"n{n},{n % 7},{'uv'[n % 2]}\n" for n in range(20))
    (tmp_path / "nodes.csv").write_text("id,age,label\n" + nodes)
    (tmp_path / "edges.csv").write_text("source,target,hours\n" + "".join(f"n{n},n{n // 2},{n}\n" for n in range(20)))
    data = ["--task=node-folder", f"--task.folder={tmp_path}", "--train.steps=2"]
    assert main(["tune", "cora-gat", *data, "--trials=2", "--json"]) == 0
    told = capsys.readouterr().out
    assert "not searched: model.edge_dropout: edge_dropout cannot leave out edges that have features" in told
    assert "trial 1: valid" in told or "trial 1: stopped early" in told


@pytest.mark.studies
def test_the_model_of_a_folder_is_what_train_trains_and_its_options_are_not_searched(tmp_path, capsys):
    pytest.importorskip("transformers")
    from models.hub.peers import bert
    from training.test_pretrained import write_tokenizer

    bert().save_pretrained(tmp_path / "hub")
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    write_tokenizer(tmp_path / "hub", ["good", "bad"], special)
    rows = "".join(f"{('good', 'bad')[n % 2]} {n},{n % 2}\n" for n in range(40))
    (tmp_path / "texts.csv").write_text(f"text,label\n{rows}")
    data = [f"--task.file={tmp_path / 'texts.csv'}", "--task.length=8", f"--start.hub={tmp_path / 'hub'}"]
    arguments = ["tune", "own-texts", *data, "--train.steps=2", "--trials=1", "--json"]
    assert main([*arguments, "--search=model.depth=1..2"]) == 2
    assert "model.depth is searched, but the folder of start.hub decides it" in capsys.readouterr().err
    assert main(arguments) == 0
    told = capsys.readouterr().out
    tuned = read(json.loads(told.splitlines()[-1])["recipe_file"])
    assert configure(tuned, []).model.options["width"] == 24
    assert "not searched: model.width: the folder of start.hub decides it" in told
    assert "not searched: model.dropout" not in told
