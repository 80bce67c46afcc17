"""The commands as functions."""

import pytest

import edgewise
from edgewise.apps.calls import overrides_of
from edgewise.apps.command import inference
from edgewise.errors import ConfigError


def test_a_recipe_is_trained_and_measured_as_on_the_command_line(tmp_path, capsys) -> None:
    run = tmp_path / "run"
    result = edgewise.train("karate", run, steps=2, model={"width": 8})
    assert result.run == run and result.steps == 2 and (run / "report.html").is_file()
    assert "seed 0: test accuracy" in capsys.readouterr().out and "width: 8" in (run / "config.yaml").read_text(
        encoding="utf-8"
    )
    assert edgewise.evaluate(run)["test"]["accuracy"] == pytest.approx(result.test)
    several = edgewise.train("karate", tmp_path / "two", steps=1, seeds=2, **{"model.width": 8})
    assert [one.run.name for one in several] == ["seed-0", "seed-1"]


def test_options_are_those_of_the_recipe(tmp_path) -> None:
    options = {"folder": tmp_path, "undirected": False, "fanouts": [5, 5], "learning_rate": 0.1, "graph": "given"}
    assert dict(overrides_of("own-nodes", options)) == {
        "task.folder": str(tmp_path),
        "task.undirected": "false",
        "task.fanouts": "[5, 5]",
        "optimizer.learning_rate": "0.1",
        "graph": "given",
    }
    with pytest.raises(ConfigError, match="the recipe 'own-nodes' has no option 'foldr'; did you mean 'folder'"):
        edgewise.train("own-nodes", foldr="x")
    with pytest.raises(
        ConfigError, match=r"width is task.width and model.width: give task=\{'width': 8\}, or the other"
    ):
        edgewise.train("own-links", width=8)
    with pytest.raises(ConfigError, match="is no time such as 90s"):
        edgewise.tune("own-nodes", time="soon")


def test_a_service_and_a_search_take_what_their_commands_take(monkeypatch, tmp_path) -> None:
    seen = []
    monkeypatch.setattr(inference, "serve", lambda *taken: seen.append(taken))
    monkeypatch.setattr("edgewise.apps.tuning.command.tune", lambda *taken: seen.append(taken))
    edgewise.serve(tmp_path, port=0, data={"folder": "there"})
    edgewise.tune("own-nodes", trials=3, time="2m", search=["model.depth=1..3"], folder="mine")
    assert seen[0] == (str(tmp_path), "127.0.0.1", 0, 30, 8, False, {"folder": "there"})
    assert seen[1] == ("own-nodes", [("task.folder", "mine")], ["model.depth=1..3"], 1, None, 3, 120.0, None)
