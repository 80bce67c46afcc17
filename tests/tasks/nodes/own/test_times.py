"""Training on the past, testing on the future."""

import random
from pathlib import Path

import pytest

from edgewise import training
from edgewise.apps.command.main import main
from edgewise.errors import DataError
from edgewise.tasks import link_folder, node_folder

NODES = 40


def write(place: Path, dates: bool = True) -> Path:
    """A ring in which each link is there twice, in random order; nodes have a year."""
    place.mkdir(exist_ok=True)
    draw = random.Random(0)
    years = [2000 + draw.randrange(20) for _ in range(NODES)]
    nodes = "".join(f"n{n},{n % 7},{years[n]},{'uv'[n % 2]}\n" for n in range(NODES))
    (place / "nodes.csv").write_text("id,size,year,label\n" + nodes, encoding="utf-8")
    rows = []
    for n in range(NODES):
        for step in (1, 2):
            day = draw.randrange(1, 29)
            month = draw.randrange(1, 13)
            first, later = (f"2020-{month:02}-{day:02}", f"2021-{month:02}-{day:02}") if dates else (month * day, 999)
            rows += [f"n{n},n{(n + step) % NODES},{first}", f"n{(n + step) % NODES},n{n},{later}"]
    draw.shuffle(rows)
    (place / "edges.csv").write_text("source,target,seen\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return place


@pytest.mark.parametrize("dates", [True, False])
def test_the_earliest_links_train_and_the_latest_test(tmp_path, dates: bool) -> None:
    place = write(tmp_path / "mine", dates)
    task = link_folder(str(place), time="seen", ignore="label")
    first: dict[tuple[int, int], object] = {}
    for line in (place / "edges.csv").read_text(encoding="utf-8").splitlines()[1:]:
        a, b, when = line.split(",")
        pair = tuple(sorted((int(a[1:]), int(b[1:]))))
        value = when if dates else float(when)
        first[pair] = min(first.get(pair, value), value)
    times = {split: [first[tuple(pair)] for pair in pairs.tolist()] for split, pairs in task.splits.items()}
    assert sum(map(len, times.values())) == len(first) == 80
    assert max(times["train"]) < min(times["valid"]) and max(times["valid"]) < min(times["test"])
    assert 50 <= len(times["train"]) <= 68 and len(times["test"]) >= 4
    assert {tuple(sorted(p)) for p in task.graph().edge_index().T.tolist()} == {
        tuple(p) for p in task.splits["train"].tolist()
    }
    first_of_all = min(times["train"])
    shown = first_of_all if dates else f"{first_of_all:g}"
    assert task.summary[-1].startswith(f"links by seen: train {shown} to ")
    assert [line for line in task.summary if "seen" in line] == [task.summary[-1]]  # it is no feature


def test_nodes_by_their_own_time_or_by_their_first_edge(tmp_path) -> None:
    place = write(tmp_path / "mine")
    task = node_folder(str(place), time="year", ignore="seen")
    years = [int(line.split(",")[2]) for line in (place / "nodes.csv").read_text(encoding="utf-8").splitlines()[1:]]
    parts = {split: [years[node] for node in rows.tolist()] for split, rows in task.splits.items()}
    assert max(parts["train"]) < min(parts["valid"]) and max(parts["valid"]) < min(parts["test"])
    assert task.nodes.x.shape[1] == 1  # the year is no feature
    assert len([line for line in task.summary if "year" in line]) == 1
    by_edge = node_folder(str(place), time="seen")
    assert by_edge.nodes.e is None and by_edge.splits["train"].tolist() != task.splits["train"].tolist()
    assert any(line.startswith("nodes by seen: train 2020-0") for line in by_edge.summary)


def test_a_run_keeps_the_parts_of_its_time(tmp_path, capsys) -> None:
    place, run = write(tmp_path / "mine"), tmp_path / "run"
    options = ["--task", "node-folder", "--task.folder", str(place), "--task.time", "year", "--task.ignore", "seen"]
    assert main(["train", "cora-gcn", *options, "--train.steps", "2", "--run", str(run)]) == 0
    assert "nodes by year: train 200" in capsys.readouterr().out
    before = training.load_run(run).task
    with (place / "nodes.csv").open("a", encoding="utf-8") as file:
        file.write("new,3,1900,u\n")
    after = training.load_run(run).task
    assert all(before.splits[split].equal(after.splits[split]) for split in before.splits)
    assert after.nodes.x.shape[1] == before.nodes.x.shape[1] == 1


@pytest.mark.parametrize(
    ("column", "change", "told"),
    [
        ("when", ("", ""), "no column of edges that is read is called 'when'; they have seen"),
        ("seen", ("2020-0", "early-"), "seen"),
        ("seen", (",2020-12", ",,2020-12"), "does not have 3 columns"),
    ],
)
def test_times_that_are_none_are_named(tmp_path, column: str, change: tuple[str, str], told: str) -> None:
    place = write(tmp_path / "mine")
    text = (place / "edges.csv").read_text(encoding="utf-8")
    (place / "edges.csv").write_text(text.replace(*change) if change[0] else text, encoding="utf-8")
    with pytest.raises(DataError, match=told):
        link_folder(str(place), time=column, ignore="label")


def test_gaps_and_a_single_time_are_refused(tmp_path) -> None:
    place = write(tmp_path / "mine")
    lines = (place / "edges.csv").read_text(encoding="utf-8").splitlines()
    (place / "edges.csv").write_text(
        "\n".join([*lines[:-1], lines[-1].rpartition(",")[0] + ","]) + "\n", encoding="utf-8"
    )
    with pytest.raises(DataError, match="seen is missing in 1 rows of edges: each needs its time"):
        link_folder(str(place), time="seen", ignore="label")
    same = [lines[0], *(line.rpartition(",")[0] + ",2020-01-01" for line in lines[1:])]
    (place / "edges.csv").write_text("\n".join(same) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="1 different times of 80 examples do not make three parts"):
        link_folder(str(place), time="seen", ignore="label")


def test_a_nodes_time_is_that_of_its_first_edge_either_way(tmp_path):
    """The first edge of n comes from n - 1, which is earlier than all that n sends."""
    rows = [f"{n},{n + 1},{n}" for n in range(40)] + [f"{n},{n + 2},{500 - n}" for n in range(39)]
    (tmp_path / "edges.csv").write_text("source,target,seen\n" + "\n".join(rows) + "\n")
    (tmp_path / "nodes.csv").write_text("id,size,label\n" + "".join(f"{n},{n % 5},{'uv'[n % 2]}\n" for n in range(41)))
    task = node_folder(str(tmp_path), time="seen")
    times = [max(n - 1, 0) for n in range(41)]
    parts = {split: [times[n] for n in rows.tolist()] for split, rows in task.splits.items()}
    assert max(parts["train"]) < min(parts["valid"]) and max(parts["valid"]) < min(parts["test"])
    assert any("train 0 to " in line for line in task.summary)


def test_parts_that_a_column_names_are_not_cut_by_time_too(tmp_path) -> None:
    parts = ("train", "valid", "test")
    nodes = "".join(f"{n},{n % 5},{2000 + n},{'uv'[n % 2]},{parts[n % 3]}\n" for n in range(40))
    (tmp_path / "nodes.csv").write_text("id,size,year,label,split\n" + nodes)
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{n},{n + 1}\n" for n in range(39)))
    with pytest.raises(DataError, match=r"give --task\.ignore split, or leave out --task\.time"):
        node_folder(str(tmp_path), time="year")
    assert node_folder(str(tmp_path), time="year", ignore="split").splits["train"].tolist() == list(range(24))
