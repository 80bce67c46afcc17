"""Generated tastes, and choices of one's own."""

import json
from pathlib import Path

import pytest
import torch

from edgewise import training
from edgewise.apps.command.main import main
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import own_choices, tastes
from edgewise.tasks.links.knowledge import OwnFacts
from edgewise.tasks.links.recommendation import OwnChoices
from edgewise.training import Choice, RunConfig, TrainSettings, train

LINES = ["user_id,movieId,rating,timestamp", *(f"u{n % 5},m{n % 7},{n % 5 + 1},{1000 - n}" for n in range(35))]


def written(folder: Path, *lines: str) -> str:
    (folder / "choices.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "choices.csv")


def test_tastes_are_drawn_as_their_options_say() -> None:
    task = tastes(users=200, items=100, genres=4, choices=10)
    pairs = torch.cat([task.splits[split] for split in ("train", "valid", "test")])
    assert {split: len(rows) for split, rows in task.splits.items()} == {"train": 1600, "valid": 200, "test": 200}
    assert len(pairs.unique(dim=0)) == 2000 and torch.bincount(pairs[:, 0]).tolist() == [10] * 200
    truth = task.truth / task.truth.sum(1, keepdim=True)
    likely = truth[pairs[:, 0], pairs[:, 1]].mean() / truth.mean()
    assert likely > 3
    best, popular = task.scored(lambda some: task.truth[some]), task.popularity()
    assert best["ndcg@20"] > popular["ndcg@20"] + 0.05 and best["recall@20"] > popular["recall@20"]
    again, other = tastes(users=200, items=100, choices=10), tastes(users=200, items=100, choices=10, generated=1)
    assert not torch.equal(again.splits["train"], other.splits["train"])
    assert torch.equal(again.splits["train"], tastes(users=200, items=100, choices=10).splits["train"])
    with pytest.raises(ConfigError, match="twice as many items as choices"):
        tastes(items=30)


def test_a_table_of_ratings_is_read_by_time(tmp_path: Path) -> None:
    task = own_choices(written(tmp_path, *LINES))
    assert task.name == "choices" and (task.users, task.items) == (5, 7)
    test = {(task.choices.users[u], task.choices.items[i]) for u, i in task.splits["test"].tolist()}
    assert test == {(f"u{n}", f"m{n}") for n in range(5)}  # the latest line of each user
    liked = own_choices(written(tmp_path, *LINES), least=4)
    assert liked.users == 2 and "21 lines left out: choices that are there already, or rated below 4" in liked.summary


def test_a_column_split_names_the_parts_and_without_valid_a_tenth_of_each_users_choices_chooses(tmp_path: Path) -> None:
    rows = [f"{user},{n},{'test' if n == 3 else 'train'}" for user in "ab" for n in range(9)]
    task = own_choices(written(tmp_path, "user,item,split", *rows))
    assert {task.choices.items[i] for i in task.splits["test"][:, 1].tolist()} == {"3"}
    assert {split: len(part) for split, part in task.splits.items()} == {"train": 14, "valid": 2, "test": 2}
    rows[0] = "a,0,tset"
    with pytest.raises(DataError, match="line 2: the split 'tset' is none of train, valid, test"):
        own_choices(written(tmp_path, "user,item,split", *rows))


def test_other_names_dates_and_lines_that_repeat_a_choice(tmp_path: Path) -> None:
    days = [f"ann,{item},2024-01-{day:02d}" for day, item in enumerate("abcda", 1)]
    task = own_choices(written(tmp_path, "who,what,when", *days), columns="who,what,,when")
    names = {split: [task.choices.items[i] for _, i in rows.tolist()] for split, rows in task.splits.items()}
    assert sorted(names["train"]) == ["a", "b"] and names["valid"] == ["c"] and names["test"] == ["d"]
    assert "1 line left out: choices that are there already" in task.summary
    twice = own_choices(written(tmp_path, "customer,session,item", *(f"a,{n % 2},{n}" for n in range(9))))
    assert twice.choices.users == ("a",) and "not read: the columns session" in twice.summary
    drawn = [
        own_choices(written(tmp_path, "user,item", *(f"a,{n}" for n in range(9))), fold=fold) for fold in (0, 0, 1)
    ]
    tests = [{one.choices.items[i] for _, i in one.splits["test"].tolist()} for one in drawn]
    assert tests[0] == tests[1] != tests[2]


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["who,item", "a,b"], {}, "no column of users was found; its columns are who, item: name them"),
        (["user_id,User ID,item", "a,x,b"], {}, "it has the columns user_id and User ID, and which is meant"),
        (["user,item", "a,b", "a,The Good, the Bad"], {}, "choices.csv: line 3"),
        (["user,item", "a,b", ",c"], {}, "line 3: there is no user in 'user'"),
        (["user,item", "a,b"], {"least": 3}, r"task.least=3 needs a column of ratings"),
        (["user,item,rating", "a,b,good"], {}, "line 2: rating is 'good', not a finite number"),
        (["user,item", "3,b", "3.0,c"], {}, "line 3: user is '3.0', and '3' elsewhere: write the same user"),
        (["user,item", "a, 7", "a,7.0"], {}, "line 3: item is '7.0', and '7' elsewhere"),
        (["user,item,time", "a,b,1", "a,d,2", "a,c,soon"], {}, "time is 'soon', no number and no date"),
        (
            ["user,item", "a,b"],
            {"columns": "x,item"},
            "--task.columns 'x,item' should name user, item, rating",
        ),
        (["user,item,rating", "a,b,1"], {"least": 3}, "no line has a rating of at least 3"),
        (["user,item"], {}, "it has no lines"),
        (["user,item", "a,b"], {}, "choices has no choices in valid"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path: Path, lines: list[str], options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        own_choices(written(tmp_path, *lines), **options)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.csv"):
        own_choices(str(tmp_path / "nothing.csv"))


def test_the_recipes_of_choices_and_facts_train_and_are_measured_on_other_files(tmp_path: Path, capsys) -> None:
    (tmp_path / "facts.txt").write_text("".join(f"a{n}\tr{n % 2}\ta{(n + 1) % 9}\n" for n in range(30)))
    places = {"own-choices": ("file", written(tmp_path, *LINES)), "own-facts": ("folder", str(tmp_path))}
    for recipe, (option, place) in places.items():
        words = ["train", recipe, f"--task.{option}", place, "--train.steps", "1", "--run", str(tmp_path / recipe)]
        assert main(words) == 0
    loaded = {recipe: training.load_run(tmp_path / recipe).task for recipe in places}
    choices, facts = loaded["own-choices"], loaded["own-facts"]
    assert isinstance(choices, OwnChoices) and isinstance(facts, OwnFacts)
    named = {
        split: [(choices.choices.users[u], choices.choices.items[i]) for u, i in choices.splits[split].tolist()]
        for split in ("train", "valid", "test")
    }
    later = [*named["test"], named["train"][0], ("stranger", "m1")]
    (tmp_path / "later.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in later))
    names = facts.facts.entities, facts.facts.relations, facts.facts.entities
    told = ["\t".join(own[n] for own, n in zip(names, row, strict=True)) for row in facts.splits["test"].tolist()]
    (tmp_path / "later.tsv").write_text("head\trelation\ttail\n" + "\n".join([*told, "a1\tis\ta2"]) + "\n")
    lost = {"own-choices": "left out 1 of 7 choices, which trained", "own-facts": "names that the run has not: is"}
    for recipe, file in (("own-choices", "later.csv"), ("own-facts", "later.tsv")):
        assert main(["evaluate", str(tmp_path / recipe), "--json"]) == 0
        own = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert main(["evaluate", str(tmp_path / recipe), "--data", str(tmp_path / file), "--json"]) == 0
        out, err = capsys.readouterr()
        found = json.loads(out.splitlines()[-1])
        alike = own["test"].keys() - ({"loss"} if recipe == "own-choices" else {})  # items are drawn row by row
        assert [found["test"][name] for name in alike] == pytest.approx([own["test"][name] for name in alike])
        assert "valid" not in found
        assert found["quality"]["measures"].keys() == own["quality"]["measures"].keys() and lost[recipe] in err


def test_who_is_new_is_known_by_what_is_known_of_users_and_items(tmp_path: Path) -> None:
    """Users of one team choose the even items, those of the other the odd ones; nobody has chosen the last two."""
    lines = [f"u{u},i{2 * i + u % 2}" for u in range(20) for i in range(5) if (u + i) % 5]
    place = written(tmp_path, "user,item", *lines)
    (tmp_path / "users.csv").write_text("user_id,team,age\n" + "".join(f"u{n},{'ab'[n % 2]},{n}\n" for n in range(21)))
    (tmp_path / "items.csv").write_text("id,kind,name\n" + "".join(f"i{n},{'xy'[n % 2]},n{n}\n" for n in range(12)))
    tables = {name: str(tmp_path / f"{name}.csv") for name in ("users", "items")}
    with pytest.raises(DataError, match=r"items\.csv: name holds 12 different texts"):
        own_choices(place, **tables)
    task = Choice("own-choices", {"file": place, "width": 8, "ignore": "name", **tables})
    settings = TrainSettings(steps=60, batch=64)
    adam = Choice("adam", {"learning_rate": 0.05})
    train(
        RunConfig(task, Choice("light-gcn", {"depth": 1}), optimizer=adam, train=settings),
        tmp_path / "run",
        progress=False,
    )
    loaded = training.load_run(tmp_path / "run")
    own = loaded.task
    assert isinstance(own, OwnChoices) and (own.users, own.items) == (21, 12)
    assert "users.csv: of users: team (a category of 2)" in own_choices(place, ignore="name", **tables).summary

    def answers(request: str) -> list[str]:
        return [one["item"] for one in loaded.task.predict(loaded.model, None, request, "cpu")["items"]]

    new = '{"user": "new", "team": "%s", "age": 9}'
    for request, own_item, other in ((new % "a", "i10", "i11"), ("u20", "i10", "i11"), (new % "b", "i11", "i10")):
        assert own_item in answers(request)[:6] and other not in answers(request)[:6]
    assert answers('{"team": "a", "age": 9, "items": ["i0", "i2", "i4", "i6", "i8"]}')[0] == "i10"
    assert own.predict(loaded.model, None, "nobody", "cpu")["known"] is False
    before = answers("u3")
    for path in tmp_path.glob("*.csv"):
        path.unlink()
    loaded = training.load_run(tmp_path / "run")
    assert answers("u3") == before and "i10" in answers('{"team": "a", "age": 9}')[:6]


def test_a_new_entity_is_known_by_what_is_known_of_entities(tmp_path: Path) -> None:
    """People of a town live in it."""
    people = [(f"p{n}", "xyz"[n % 3]) for n in range(24)]
    (tmp_path / "facts.txt").write_text("".join(f"{name}\tlives in\ttown {town}\n" for name, town in people))
    described = "".join(f"{name},{town},1\n" for name, town in [*people, ("p99", "y")])
    (tmp_path / "entities.csv").write_text("entity,accent,size\n" + described)
    task = Choice("knowledge-folder", {"folder": str(tmp_path), "width": 8})
    adam = Choice("adam", {"learning_rate": 0.05})
    model = Choice("gnn", {"layer": "rgcn", "width": 8, "dropout": 0.0})
    train(
        RunConfig(task, model, optimizer=adam, train=TrainSettings(steps=40, batch=8)), tmp_path / "run", progress=False
    )
    (tmp_path / "entities.csv").unlink()
    loaded = training.load_run(tmp_path / "run")
    own = loaded.task
    assert isinstance(own, OwnFacts) and own.facts.entities[-1] == "p99"
    for request in ("p99, lives in, ?", '{"head": {"accent": "y", "size": 1}, "relation": "lives in"}'):
        assert own.predict(loaded.model, None, request, "cpu")["entities"][0]["entity"] == "town y"
    with pytest.raises(DataError, match="entities: it lacks the columns size"):
        own.predict(loaded.model, None, '{"head": {"accent": "y"}, "relation": "lives in"}', "cpu")
