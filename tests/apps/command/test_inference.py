import json
from pathlib import Path

import numpy as np
import pytest

from edgewise import training
from edgewise.apps.command.inference import written
from edgewise.apps.command.main import main
from edgewise.tasks.core.drawing import Confusion, Drawing, Output


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("run", ["karate", "text"])
def test_evaluate_gives_the_scores_that_training_gave(run: str, trained, capsys) -> None:
    folder = trained(run)
    result = training.finished(folder)
    scores = answer(["evaluate", str(folder)], capsys)
    assert ("test" in scores) == (run != "text")
    assert scores["test" if "test" in scores else "valid"][result.metric] == result.value
    assert scores["valid"][result.metric] == result.valid


def test_what_is_measured_of_a_run_that_cannot_be_written_is_printed_all_the_same(own, capsys) -> None:
    run = own("karate")
    (run / "evaluation.json").unlink(missing_ok=True)
    (run / "evaluation.json").mkdir()
    assert "test" in answer(["evaluate", str(run)], capsys)
    assert main(["evaluate", str(run)]) == 0
    assert capsys.readouterr().err == f"edgewise: warning: {run}/evaluation.json could not be written: Is a directory\n"


def test_predict_answers_for_nodes(trained, capsys) -> None:
    nodes = answer(["predict", str(trained("karate")), "0,33"], capsys)["nodes"]
    assert [one["node"] for one in nodes] == [0, 33]
    assert sum(nodes[0]["probabilities"].values()) == pytest.approx(1)


def test_predict_answers_for_an_image_and_for_a_file(trained, capsys) -> None:
    run = str(trained("digits"))
    known = answer(["predict", run, "test:3"], capsys)
    np.save("mine.npy", training.load_run(trained("digits")).task.read("test:3")[0].numpy())
    mine = answer(["predict", run, "mine.npy"], capsys)
    assert known["probabilities"] == mine["probabilities"]


def test_predict_answers_for_a_text(trained, capsys) -> None:
    assert len(answer(["predict", str(trained("text")), "the "], capsys)["next"]) == 5


def test_predict_goes_on_with_a_film_and_draws_it(own, capsys) -> None:
    run = own("granular")
    told = answer(["predict", str(run), "valid:0"], capsys)
    assert told["steps"] == 200 and told["forecast"].keys() == told["truth"].keys()
    drawn = Path(told["animation"])
    assert drawn == run / "figures" / "rollout-valid-0.svg"
    assert drawn.read_text(encoding="utf-8").count("<circle") == 6
    assert main(["predict", str(run), "valid:1"]) == 2
    assert "1 films in valid" in capsys.readouterr().err


@pytest.mark.parametrize("steps", ["3", "20"])
def test_the_cache_does_not_change_the_greedy_text(steps: str, trained, capsys) -> None:
    arguments = ["generate", str(trained("text")), "--prompt", "the ", "--steps", steps, "--temperature", "0"]
    with_cache = answer(arguments, capsys)
    without = answer([*arguments, "--no-cache"], capsys)
    assert with_cache["text"] == without["text"]
    assert len(with_cache["text"]) == 4 + int(steps)
    assert (with_cache["cache"], without["cache"]) == (True, False)


def test_generation_follows_its_seed(trained, capsys) -> None:
    arguments = ["generate", str(trained("text")), "--prompt", "the ", "--steps", "30", "--seed"]
    texts = [answer([*arguments, seed], capsys)["text"] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_generation_draws_from_the_most_likely_only(trained, capsys) -> None:
    arguments = ["generate", str(trained("text")), "--prompt", "the ", "--steps", "10"]
    greedy = answer([*arguments, "--temperature", "0"], capsys)["text"]
    assert answer([*arguments, "--top-k", "1"], capsys)["text"] == greedy


def test_texts_are_printed_as_they_are_written_and_end_at_a_stop_text(trained, capsys) -> None:
    arguments = ["generate", str(trained("text")), "--prompt", "the ", "--steps", "40", "--stop", "e", "--stop", "a"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    one = answer(arguments, capsys)
    assert printed == one["text"] + "\n" and not {"e", "a"} & {*one["text"][4:]}
    several = answer([*arguments, "--count", "3"], capsys)
    assert len(several["texts"]) == 3 and len(several["ended"]) == 3
    assert main(["generate", str(trained("text")), "--top-p", "1.5"]) == 2
    assert "top_p must be above 0 and at most 1, not 1.5" in capsys.readouterr().err


def test_a_run_writes_graphs_and_draws_them(own, capsys) -> None:
    run = own("graphs")
    arguments = ["generate", str(run), "--count", "3", "--seed", "5"]
    answers = [answer(arguments, capsys) for _ in range(2)]
    for one in answers:
        del one["seconds"]
    assert answers[0] == answers[1]
    assert len(answers[0]["graphs"]) == 3
    assert main([*arguments, "--top-p", "0.9"]) == 2
    assert "top_p has no effect on graphs, which follow from count, temperature, seed" in capsys.readouterr().err
    path = run / "figures" / "generated-5.svg"
    assert answers[0].get("drawing", str(path)) == str(path)


def test_a_task_that_generates_nothing_says_so(trained, capsys) -> None:
    assert main(["generate", str(trained("karate"))]) == 2
    assert "karate generates nothing" in capsys.readouterr().err


def test_a_predictions_drawings_are_written_into_the_run(tmp_path: Path) -> None:
    drawing = Drawing("heat-1", Confusion(np.eye(2, dtype=int), ["a", "b"]))
    path = tmp_path / "figures" / "heat-1.svg"
    assert written(Output({}, {"heat map": drawing}), tmp_path) == {"heat map": str(path)}
    assert path.read_text(encoding="utf-8").startswith("<?xml")
    assert written(Output({}, {}), tmp_path) == {}


def test_drawings_that_cannot_be_written_are_left_out_with_a_warning(tmp_path: Path, capsys) -> None:
    (tmp_path / "figures").write_text("no folder")
    drawing = Drawing("heat-1", Confusion(np.eye(2, dtype=int), ["a", "b"]))
    assert written(Output({}, {"heat map": drawing}), tmp_path) == {}
    assert f"edgewise: warning: heat map in {tmp_path} could not be written: " in capsys.readouterr().err


def test_predict_writes_a_table_for_a_file(trained, capsys) -> None:
    Path("nodes.txt").write_text("0\n33\n5\n", encoding="utf-8")
    told = answer(["predict", str(trained("karate")), "nodes.txt", "--out", "table.csv"], capsys)
    assert told["rows"] == 3 and Path("table.csv").read_text(encoding="utf-8").count("\n") == 4
    for request in ("nodes.txt", "."):
        assert main(["predict", str(trained("karate")), request]) == 2
        error = capsys.readouterr().err.splitlines()
        assert error[0].startswith("edgewise: error: no node") and error[1].strip().endswith("give --out answers.csv")
    assert main(["predict", str(trained("karate")), "99"]) == 2 and "--out" not in capsys.readouterr().err
    assert main(["predict", str(trained("karate")), "nodes.txt", "--column", "node"]) == 2
    assert "--column is of a file of inputs: give --out" in capsys.readouterr().err
