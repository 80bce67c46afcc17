import numpy as np
import pytest
import torch

from edgewise.errors import DataError
from edgewise.models import Memory, MemorySettings
from edgewise.tasks import digits, digits_recall


def test_the_stored_images_are_digits_in_black_and_white_one_of_each_class() -> None:
    task, images = digits_recall(patterns=20), digits().images
    train = images.splits["train"]
    black = {tuple((image > image.max() / 2).flatten().tolist()): int(label)
             for image, label in zip(images.pixels[train].float(), images.labels[train], strict=True)}  # fmt: skip
    found = [black[tuple((image > 0).tolist())] for image in task.stored]
    assert found == [*range(10), *range(10)]


def test_a_cover_empties_the_lower_rows() -> None:
    task = digits_recall(patterns=9, damage="cover", share=0.5)
    image, stored = task.damaged("test").view(9, 8, 8), task.stored.view(9, 8, 8)
    assert bool((image[:, 4:] == -1).all())
    assert torch.equal(image[:, :4], stored[:, :4])
    assert bool((stored[:, 4:] == 1).any())


def test_the_score_counts_whole_images_and_units() -> None:
    task = digits_recall(patterns=4)
    batch = next(task.batches("test", 4))
    outputs = batch.target.clone()
    outputs[0, 0, :16] *= -1
    score = task.score(outputs, batch)
    assert {name: float(value) for name, value in score.items()} == {
        "loss": 0.25,
        "units": 3.75,
        "recalled": 3.0,
        "count": 4.0,
    }
    assert float(task.loss(outputs, batch)) == pytest.approx(1 / 16)


def test_a_prediction_names_the_stored_image(tmp_path) -> None:
    task = digits_recall(patterns=10, share=0.05)
    model = Memory(MemorySettings(patterns=10), task.signature)
    model.weight.data.copy_(task.stored)
    found = task.predict(model, None, "test:3", "cpu")
    assert (found["stored"], found["recalled"]) == (3, 3)
    shown = [[1.0 if pixel == "#" else -1.0 for pixel in row] for row in found["pixels"]]
    assert torch.equal(torch.tensor(shown).flatten(), task.stored[3])
    np.save(tmp_path / "four.npy", (task.stored[4].view(8, 8).numpy() + 1) * 8)
    assert task.predict(model, None, str(tmp_path / "four.npy"), "cpu")["recalled"] == 4
    with pytest.raises(DataError, match="is no example of digits to recall"):
        task.predict(model, None, "four", "cpu")
    assert [section.title for section in task.draw(model, None, {})] == ["Recall"]
    assert [one.name for one in task.recalled(model, None)] == ["stored", "damaged", "recalled"]
