"""Texts of one's own from a table."""

import json
from pathlib import Path

import pytest

from edgewise import deployment, training
from edgewise.apps.command.main import main
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import text_table


def write(path: Path, count: int = 60, label: str = "mood") -> Path:
    moods = ("gut", "schlecht")
    lines = [f"nr\tReview\t{label}\tstars"]
    for n in range(count):
        mood, stars = "" if n % 9 == 0 else moods[n % 2], "" if n % 5 == 0 else n / 4
        lines += [f"{n}\t{moods[n % 2]}, „Stück {n}“\t{mood}\t{stars}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-16" if path.suffix == ".tsv" else "utf-8")
    return path if path.suffix == ".tsv" else _commas(path)


def _commas(path: Path) -> Path:
    """The same with commas, which texts have too: quoted; and the label alone."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    text = "".join(f'{row[0]},"{row[1]}",{row[2]}\n' for row in rows)
    path.write_text(text.replace("nr,", "id,"), encoding="utf-8")
    return path


def test_texts_are_graphs_over_tokens(tmp_path) -> None:
    task = text_table(str(write(tmp_path / "t.csv")), level="character", length=40)
    assert task.classes == ("gut", "schlecht") and task.signature.whole_graph and task.signature.length == 40
    assert task.graphs.members[1].num_receivers == len("schlecht, „Stück 1“") + 2
    assert task.tokenizer.decode(task._x[1].tolist()) == "schlecht, „Stück 1“"
    assert sum(map(len, task.splits.values())) == 53
    batch = next(task.batches("valid", 3))
    assert batch.size == 3 and batch.graph.num_edges == sum(one.num_receivers**2 for one in batch.members)


def test_several_targets_of_a_table_in_utf_16(tmp_path) -> None:
    task = text_table(str(write(tmp_path / "t.tsv")), label="mood,stars", level="byte", id="nr")
    assert task.graphs.targets.shape == (60, 3) and task.signature.outputs == 3
    assert "t.tsv: encoded in utf-16, separated by '\\t'" in task.summary and "Review has the text" in task.summary


def test_byte_pairs_are_learned_from_what_trains_and_kept(tmp_path) -> None:
    table = write(tmp_path / "t.csv")
    options = ("--task.file", str(table), "--task.vocabulary", "290", "--train.steps", "2")
    assert main(["train", "own-texts", *options, "--run", str(tmp_path / "run")]) == 0
    before = training.load_run(tmp_path / "run").task
    with table.open("a", encoding="utf-8") as file:
        file.write('900,"wunderbar wunderbar wunderbar",gut\n')
    after = training.load_run(tmp_path / "run").task
    assert after.tokenizer.to_json() == before.tokenizer.to_json() and after.splits["test"].equal(before.splits["test"])
    trained = deployment.load(tmp_path / "run")
    alone = trained.predict(["gut, „Stück 2“"])[0]
    assert alone["input"] == "gut, „Stück 2“" and set(alone["probabilities"]) == {"gut", "schlecht"}
    subject = trained.task.subject(trained.model, None, "gut, „Stück 2“")
    assert "".join(subject.names) == "⟨begin⟩gut,„Stück2“⟨end⟩"
    assert subject.explained(trained.model)[2] == repr(alone["class"])
    (tmp_path / "new.csv").write_text("Review\ngut\nschlecht genug\n", encoding="utf-8")
    deployment.predict_file(trained, tmp_path / "new.csv", tmp_path / "out.csv")
    rows = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "text,input,class,probabilities.gut,probabilities.schlecht" and rows[2].startswith(
        "1,schlecht genug,"
    )


def test_long_texts_are_refused_or_cut(tmp_path) -> None:
    table = write(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"line 3: a text of 19 tokens, of at most 14: give --task\.truncate true"):
        text_table(str(table), level="character", length=16)
    task = text_table(str(table), level="character", length=16, truncate=True)
    assert max(len(x) for x in task._x) == 16
    assert any("of more than 16 tokens, read without the end" in line for line in task.summary)
    with pytest.raises(ConfigError, match=r"task\.length must be from 3"):
        text_table(str(table), length=2)


def test_a_character_that_was_never_seen_is_named(tmp_path) -> None:
    task = text_table(str(write(tmp_path / "t.csv")), level="character")
    (tmp_path / "new.csv").write_text("Review\ngut\n日本\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"new\.csv: line 3: character '日' at position 0"):
        task.elsewhere(tmp_path / "new.csv")


def test_a_column_that_is_new_is_no_target_of_a_run(tmp_path) -> None:
    """`value` and `label` are called as targets are, and the run has another."""
    rows = [f"text {n},{n / 4 + 0.1}" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["text,stars", *rows]) + "\n", encoding="utf-8")
    before = text_table(str(tmp_path / "t.csv"), level="byte")
    (tmp_path / "run").mkdir()
    before.keep(tmp_path / "run")
    new = [f"{row},{1000 + n}" for n, row in enumerate(rows)]
    for name in ("value", "note"):
        (tmp_path / "t.csv").write_text("\n".join([f"text,stars,{name}", *new]) + "\n", encoding="utf-8")
        after = text_table(str(tmp_path / "t.csv"), level="byte", like=str(tmp_path / "run"))
        assert after.graphs.targets.equal(before.graphs.targets)
        assert f"not read: the columns {name}" in after.summary
    with pytest.raises(DataError, match="the run was trained with the targets stars, not note"):
        text_table(str(tmp_path / "t.csv"), label="note", target="number", level="byte", like=str(tmp_path / "run"))


def test_texts_that_differ_in_letters_that_are_not_read_are_in_one_part(tmp_path) -> None:
    rows = [f"{word} word {n},{'uv'[n % 2]}" for n in range(30) for word in ("Good", "good", "GOOD")]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    task = text_table(str(tmp_path / "t.csv"), level="byte", lowercase=True)
    parts = {split: {task.texts[row] for row in chosen.tolist()} for split, chosen in task.splits.items()}
    assert not parts["train"] & (parts["valid"] | parts["test"]) and not parts["valid"] & parts["test"]


def test_folds_are_pooled_as_the_answers_of_one_model(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("edgewise.apps.command.runs.write_report", lambda *arguments, **options: None)
    monkeypatch.setattr("edgewise.apps.command.runs.one_page", lambda runs: None)
    options = ["--task.file", str(write(tmp_path / "t.csv")), "--task.level", "character", "--model.width", "8"]
    words = ["train", "own-texts", *options, "--train.steps", "1", "--folds", "3", "--run", str(tmp_path / "runs")]
    assert main([*words, "--json"]) == 0
    told = capsys.readouterr().out
    made = json.loads(told.splitlines()[-1])
    (found,) = made["pooled"]
    assert found["examples"] == 53 and "53 examples of 3 folds" in told
    sizes = [len(training.load_run(run).task.splits["test"]) for run in made["runs"]]
    right = [size * fold["accuracy"]["value"] for size, fold in zip(sizes, found["folds"], strict=True)]
    assert sum(sizes) == 53 and found["measures"]["accuracy"]["value"] == pytest.approx(sum(right) / 53)
