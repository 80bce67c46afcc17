"""Clouds of points of one's own: two tables, or a folder for each class."""

import random
from pathlib import Path

import pytest
import torch

from edgewise import deployment
from edgewise.apps.command.main import main
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import point_folder


def points(number: int) -> list[tuple[float, float, float]]:
    """A long cloud or a round one, somewhere."""
    draw = random.Random(number)
    stretch = 5.0 if number % 2 else 1.0
    return [(10 + stretch * draw.gauss(0, 1), draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(8 + number % 4)]


def write(place: Path, count: int = 30) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    lines, rows = ["id;form;length"], ["cloud;x;y;z;charge"]
    for number in range(count):
        lines.append(f"c{number};{('round', 'long')[number % 2]};{'' if number % 3 else f'{number},5'}")
        rows += [f"c{number};" + ";".join(f"{v:.3f}".replace(".", ",") for v in (*p, number)) for p in points(number)]
    (place / "clouds.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (place / "points.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return place


def write_files(place: Path, count: int = 30) -> Path:
    for number in range(count):
        folder = place / ("round", "long")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        text = "x,y,z\n" + "".join(f"{x},{y},{z}\n" for x, y, z in points(number))
        (folder / f"{number}.csv").write_text(text, encoding="utf-8")
    return place


def test_coordinates_are_centred_and_keep_their_directions_and_sizes(tmp_path) -> None:
    task = point_folder(str(write(tmp_path / "mine")), label="form,length", neighbors=3)
    sizes = [one.num_receivers for one in task.graphs.members]
    parts = task.graphs.x[:, :3].split(sizes)
    assert all(part.mean(0).abs().max() < 1e-5 for part in parts)
    train = torch.cat([parts[number] for number in task.splits["train"].tolist()])
    assert train.square().sum(1).mean().item() == pytest.approx(1, rel=1e-5)
    spread = torch.stack([part.std(0) for part in parts])
    assert (spread[1::2, 0] > 2 * spread[1::2, 1]).float().mean() > 0.9  # one number for all axes
    assert task.graphs.x.shape[1] == 4 and task.signature.outputs == 3
    assert all(int(one.in_degrees().max()) == 3 for one in task.graphs.members)


def test_a_folder_for_each_class_says_the_same(tmp_path) -> None:
    files = point_folder(str(write_files(tmp_path / "files")))
    assert files.classes == ("long", "round") and len(files.graphs.members) == 30
    assert files.name_of(0) == "long/1.csv"
    assert any("of the class that its folder is called; its columns are x, y, z" in line for line in files.summary)
    (tmp_path / "files" / "round" / "0.csv").write_text("x;y;z\n" + "0,5;1;2\n" * 9, encoding="utf-8")
    how = "round/0.csv, and others alike: separated by ';', decimal commas in x"
    assert how in point_folder(str(tmp_path / "files")).summary


@pytest.mark.parametrize("make", [write, write_files])
def test_train_and_predict_new_clouds(tmp_path, make) -> None:
    folder = make(tmp_path / "mine")
    options = ("--task.folder", str(folder), *(("--task.label", "form,length") if make is write else ()))
    assert main(["train", "own-points", *options, "--train.steps", "2", "--run", str(tmp_path / "run")]) == 0
    trained = deployment.load(tmp_path / "run")
    new = make(tmp_path / "new", count=4)
    (tmp_path / "one.csv").write_text("x,y,z,charge\n" + "1,2,3,1\n" * 2 + "2,2,2,1\n", encoding="utf-8")
    assert deployment.predict_file(trained, new, tmp_path / "out.csv") == 4
    head, first, *_ = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert head.startswith("cloud,") and first.startswith("c0," if make is write else "long/1.csv,")
    alone = trained.predict([str(tmp_path / "one.csv"), "c3" if make is write else "long/3.csv"])
    assert alone[0]["cloud"].endswith("one.csv") and ("class" in alone[1] or alone[1]["form"]["label"] == "long")


def test_new_files_of_points_are_read_as_the_columns_that_trained(tmp_path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "clouds.csv").write_text("cloud,label\n" + "".join(f"c{n},{'uv'[n % 2]}\n" for n in range(12)))
    cells = ["blue,yes,0.5,2024-01-31", "red,no,,2024-02-01", ",,1.5,"]
    rows = "".join(f"c{n},{k},{k * n},{cells[k % 3]}\n" for n in range(12) for k in range(6))
    (folder / "points.csv").write_text("cloud,x,y,kind,bright,size,seen\n" + rows)
    task = point_folder(str(folder))
    for number in (3, 4):
        own = "".join(f"{k},{k * number},{cells[k % 3]}\n" for k in range(6))
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "new" / f"{number}.csv").write_text("x,y,kind,bright,size,seen\n" + own)
    x = torch.cat([task.numbered(number, None).x for number in (3, 4)])
    assert torch.allclose(task.elsewhere(tmp_path / "new").graphs.x, x)
    assert torch.allclose(task.member(str(tmp_path / "new" / "4.csv"), None).x, x[6:])
    (tmp_path / "new" / "4.csv").write_text("x,y,kind,bright,size,seen\n1,,red,no,1,\n")
    with pytest.raises(DataError, match=r"y must be a number in each row: it is a coordinate, which 4\.csv lacks"):
        task.elsewhere(tmp_path / "new")


def test_what_is_wrong_is_named(tmp_path) -> None:
    folder = write_files(tmp_path / "files", 6)
    (folder / "long" / "1.csv").write_text("x,y,z\n1,2,three\n", encoding="utf-8")
    (folder / "round" / "0.csv").write_text("x,y\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        point_folder(str(folder))
    told = str(caught.value)
    assert (
        "1.csv: line 2: z is 'three', not a finite number" in told and "0.csv: its columns are x, y; expected" in told
    )
    tables = write(tmp_path / "tables", 6)
    text = (tables / "points.csv").read_text(encoding="utf-8")
    (tables / "points.csv").write_text(text.replace(";y;", ";height;"), encoding="utf-8")
    with pytest.raises(DataError, match=r"expected coordinates x, y and perhaps z, or --task\.position"):
        point_folder(str(tables), label="form")
    named = point_folder(str(tables), label="form", position="x,height,z")
    assert [one.name for one in named.own.fitted.columns][:3] == ["x", "height", "z"]
    (tables / "points.csv").write_text(
        text.replace("c1;", "c1;", 1).replace(";4,", ";,", 1) + "c5;;1;1;1\n", encoding="utf-8"
    )
    with pytest.raises(DataError, match="x must be a number in each row"):
        point_folder(str(tables), label="form")
    with pytest.raises(ConfigError, match=r"task\.neighbors must be at least 1"):
        point_folder(str(tables), neighbors=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        DataError, match=r"it has no tables of points: expected clouds\.csv and points\.csv, or a folder for each class"
    ):
        point_folder(str(tmp_path / "empty"))
    with pytest.raises(DataError, match="nowhere: no such file or folder: expected clouds"):
        point_folder(str(tmp_path / "nowhere"))


def test_a_column_of_some_files_alone_is_refused_or_ignored(tmp_path) -> None:
    place = write_files(tmp_path / "mine")
    last = place / "round" / "28.csv"
    last.write_text("x,mass,y,z\n0,5,0,0\n1,5,0,0\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"the columns mass, which long/1\.csv lacks: give --task\.ignore mass"):
        point_folder(str(place))
    task = point_folder(str(place), ignore="mass")
    assert task.signature.inputs == 3
    new = task.elsewhere(last)
    assert len(new.graphs.x) == 2 and not any(note.startswith("not read") for note in new.summary)
    assert "not read: the columns mass" in point_folder_without(place, last).elsewhere(last).summary


def point_folder_without(place: Path, file: Path):
    text = file.read_text(encoding="utf-8")
    file.write_text("x,y,z\n0,0,0\n1,0,0\n", encoding="utf-8")
    task = point_folder(str(place))
    file.write_text(text, encoding="utf-8")
    return task
