"""Images of one's own in folders of their classes."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from edgewise import deployment, training
from edgewise.apps.command.main import main
from edgewise.data import record
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import image_folder


def write(place: Path, count: int = 30, sizes: tuple[int, ...] = (8,), endings: tuple[str, ...] = ("png",)) -> Path:
    """Reddish and bluish noise."""
    random = np.random.default_rng(0)
    for number in range(count):
        folder = place / ("red", "blue")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        size = sizes[number % len(sizes)]
        pixels = random.integers(0, 100, (size, size, 3), dtype=np.uint8)
        pixels[..., 2 * (number % 2)] += 120
        Image.fromarray(pixels).save(folder / f"{number}.{endings[number % len(endings)]}")
    return place


def test_folders_are_classes_and_patches_have_colours(tmp_path) -> None:
    task = image_folder(str(write(tmp_path / "mine")), patch=4)
    assert task.classes == ("blue", "red") and task.signature.inputs == 48 and task.signature.length == 4
    assert task.images.pixels.shape == (30, 8, 8, 3) and task.images.labels[0] == 0
    first = np.asarray(Image.open(tmp_path / "mine" / "blue" / "1.png"))
    assert task.images.pixels[0].numpy().tolist() == first.tolist()
    assert task._patches[0, 1].tolist() == first[:4, 4:].reshape(-1).tolist()
    train = task.images.pixels[task.splits["train"]].double()
    assert (task.images.mean, task.images.deviation) == pytest.approx(
        (train.mean().item(), train.std(correction=0).item())
    )
    assert image_folder(str(tmp_path / "mine"), colour="grey", patch=4).signature.inputs == 16
    moved = image_folder(str(tmp_path / "mine"), patch=4, shift=2)
    assert moved.train_batch(4, torch.Generator().manual_seed(0)).x.shape == (4, 4, 48)


def test_an_array_has_the_colours_that_trained(tmp_path) -> None:
    folder = str(write(tmp_path / "mine"))
    colours, file = np.zeros((8, 8, 3)), str(tmp_path / "a.npy")
    for colour, good, wrong in (("rgb", colours, colours[..., 0]), ("grey", colours[..., 0], colours)):
        task = image_folder(folder, colour=colour, patch=4)  # type: ignore[arg-type]
        np.save(file, good)
        assert task.read(file)[0].tolist() == good.tolist()
        np.save(file, wrong)
        with pytest.raises(DataError, match=r"(in colours of 8 x 8 x 3|grey image of 8 x 8) pixels was expected"):
            task.read(file)


def test_sizes_that_differ_are_said_and_scaled_on_request(tmp_path) -> None:
    folder = write(tmp_path / "mine", 12, sizes=(8, 10, 16), endings=("png", "jpg", "bmp"))
    with pytest.raises(DataError, match=r"its images have 3 sizes: .*8 x 8 \(4\).*: give --task\.size"):
        image_folder(str(folder))
    assert image_folder(str(folder), size=8).images.pixels.shape == (12, 8, 8, 3)
    with pytest.raises(ConfigError, match=r"task\.size must be from 0 to 4096"):
        image_folder(str(folder), size=-1)


def test_all_damaged_pictures_are_one_message(tmp_path) -> None:
    folder = write(tmp_path / "mine", 10)
    for number in (1, 4):
        next(folder.glob(f"*/{number}.png")).write_bytes(b"no picture")
    with pytest.raises(DataError) as caught:
        image_folder(str(folder))
    assert "blue/1.png: not a readable picture" in str(caught.value) and "red/4.png" in str(caught.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images in folders of their classes"):
        image_folder(str(tmp_path / "empty"))


def test_folders_may_be_the_parts(tmp_path) -> None:
    for part, count in (("train", 20), ("test", 6)):
        write(tmp_path / "mine" / part, count)
    task = image_folder(str(tmp_path / "mine"), patch=4)
    assert {split: len(rows) for split, rows in task.splits.items()} == {"train": 16, "valid": 4, "test": 6}
    assert all(task.name_of(row).startswith("test/") for row in task.splits["test"].tolist())
    write(tmp_path / "mine" / "val", 4)
    assert len(image_folder(str(tmp_path / "mine"), patch=4).splits["valid"]) == 4
    (tmp_path / "mine" / "cover.png").write_bytes(b"")
    summary = image_folder(str(tmp_path / "mine"), patch=4).summary
    assert "not read: cover.png, which are in no class" in summary and "class: 2 classes (a folder for each)" in summary


def test_equal_images_that_train_do_not_choose_the_weights(tmp_path) -> None:
    for part, count in (("train", 20), ("test", 6)):
        write(tmp_path / "mine" / part, count)
    for path in list((tmp_path / "mine" / "train").glob("*/*.png")):
        for copy in range(3):
            path.with_name(f"{path.stem}-{copy}.png").write_bytes(path.read_bytes())
    task = image_folder(str(tmp_path / "mine"), patch=4)
    assert {split: len(rows) for split, rows in task.splits.items()} == {"train": 64, "valid": 16, "test": 6}
    train, valid = (
        {task.images.pixels[row].numpy().tobytes() for row in task.splits[split].tolist()}
        for split in ("train", "valid")
    )
    assert not train & valid


def test_a_run_predicts_and_keeps_its_parts(tmp_path, capsys) -> None:
    folder = write(tmp_path / "mine", 40)
    run = tmp_path / "run"
    options = ("--task.folder", str(folder), "--task.size", "0", "--task.patch", "4", "--model.width", "16")
    assert main(["train", "own-images", *options, "--train.steps", "3", "--run", str(run)]) == 0
    first = training.load_run(run).task
    write(tmp_path / "more", 44)
    (tmp_path / "more" / "red" / "42.png").rename(folder / "red" / "new.png")
    after = training.load_run(run).task
    assert {after.name_of(n) for n in after.splits["test"].tolist()} == {
        first.name_of(n) for n in first.splits["test"].tolist()
    }
    assert (after.images.mean, after.images.deviation) == (first.images.mean, first.images.deviation)
    assert main(["evaluate", str(run)]) == 0
    assert "images with a label in no part of the run's split" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--data", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["quality"]["classes"]["red"]["count"] == 21
    trained = deployment.load(run)
    out = tmp_path / "answers.csv"
    assert main(["predict", str(run), str(tmp_path / "more" / "blue"), "--out", str(out)]) == 0
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 22 and list(rows[0]) == ["image", "class", "probabilities.blue", "probabilities.red"]
    alone, known = trained.predict([str(tmp_path / "more" / "blue" / rows[0]["image"]), "red/new.png"])
    assert float(rows[0]["probabilities.blue"]) == pytest.approx(alone["probabilities"]["blue"], rel=1e-5)
    assert known["label"] == "red" and alone["label"] is None
    big = tmp_path / "big.png"
    Image.fromarray(np.zeros((9, 9, 3), dtype=np.uint8)).save(big)
    with pytest.raises(DataError, match="9 x 9 pixels, expected 8 x 8"):
        trained.predict([str(big)])


@pytest.mark.compiled
def test_it_is_exported(tmp_path) -> None:
    options = ("--task.folder", str(write(tmp_path / "mine")), "--task.patch", "4", "--model.width", "16")
    run = tmp_path / "run"
    assert main(["train", "own-images", *options, "--task.size", "0", "--train.steps", "1", "--run", str(run)]) == 0
    exported = deployment.export_run(run, "pt2", tmp_path / "model.pt2")
    assert exported.inputs["colours"][1:] == [8, 8, 3]


def test_names_of_files_may_be_of_any_bytes(tmp_path) -> None:
    folder, run = write(tmp_path / "mine", 20), tmp_path / "run"
    run.mkdir()
    (folder / "red" / "0.png").rename(folder / "red" / os.fsdecode(b"Z\xfcrich.png"))
    task = image_folder(str(folder), patch=4)
    task.keep(run)
    again = image_folder(str(folder), patch=4, like=str(run))
    assert again.changes == () and all(rows.equal(again.splits[split]) for split, rows in task.splits.items())
    assert again.read(r"red/Z\udcfcrich.png")[1] == "red"


def test_a_class_is_not_called_as_an_unknown_label_is(tmp_path) -> None:
    folder = write(tmp_path / "mine", 20)
    (folder / "red").rename(folder / "NA")
    with pytest.raises(DataError, match="the folder of a class is called 'NA', as an unknown label is: rename it"):
        image_folder(str(folder), patch=4)


def test_more_images_than_a_run_keeps_are_refused_before_any_is_read(tmp_path, monkeypatch) -> None:
    folder, run = write(tmp_path / "mine", 20), tmp_path / "run"
    image_folder(str(folder), patch=4).keep(run)
    names = [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]
    files = json.dumps({"files": json.loads((run / record.DATA).read_bytes())["files"]}, indent=1)
    assert 0.9 < (sum(map(len, names)) + record.OF_FILE * len(names)) / len(files) <= 1
    next(folder.glob("*/1.png")).write_bytes(b"")
    monkeypatch.setattr(record, "MAX_DATA", 2000)
    with pytest.raises(DataError, match=r"what a run keeps of its 20 files takes 2,.* bytes, of at most 2,000"):
        image_folder(str(folder), patch=4)
