"""MNIST, from miniature IDX files and from the real ones."""

import gzip
from pathlib import Path

import pytest
import torch

from edgewise.tasks import mnist, mnist_rotated
from edgewise.tasks.images.digits import rotate
from tasks.miniature import mnist_parts, write_mnist


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_keeps_order_splits_and_scale(tmp_path: Path, zipped: bool) -> None:
    write_mnist(tmp_path)
    if zipped:
        for file in list(tmp_path.iterdir()):
            (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    task, parts = mnist(folder=str(tmp_path)), mnist_parts()
    (test,) = task.batches("test", 100)
    assert test.target.tolist() == parts["t10k-labels-idx1-ubyte"].tolist()
    expected = (parts["t10k-images-idx3-ubyte"].reshape(4, 1, 784) / 255 - 0.1307) / 0.3081
    torch.testing.assert_close(test.x.double(), torch.from_numpy(expected), rtol=0, atol=1e-5)
    (train,), (valid,) = task.batches("train", 100), task.batches("valid", 100)
    assert torch.cat([train.target, valid.target]).tolist() == parts["train-labels-idx1-ubyte"].tolist()
    assert (train.size, valid.size) == (6, 2)


def test_the_real_mnist_has_its_known_numbers(data) -> None:
    task = mnist(folder=str(data("mnist")))
    assert [len(task.images.splits[split]) for split in ("train", "valid", "test")] == [55_000, 5_000, 10_000]
    assert task.images.pixels.shape == (70_000, 28, 28)
    train = task.images.pixels[:60_000].double() / 255
    assert train.mean().item() == pytest.approx(0.1307, abs=1e-4)
    assert train.std().item() == pytest.approx(0.3081, abs=1e-4)
    assert task.images.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert task.images.labels[60_000:].bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


# Turned digits


def test_an_angle_turns_what_is_seen_counter_clockwise() -> None:
    """Beside the definition, pixel by pixel: the value at p is that of the image at p turned back."""
    pixels = torch.rand(1, 7, 7, dtype=torch.float64)
    angle = torch.tensor([33.0])
    cos, sin = angle.double().deg2rad().cos().item(), angle.double().deg2rad().sin().item()
    found = rotate(pixels, angle)[0]
    for y in range(7):
        for x in range(7):
            up, right = 3 - y, x - 3
            from_x, from_y = 3 + cos * right + sin * up, 3 - (cos * up - sin * right)
            expected = sum(
                pixels[0, j, i].item() * max(0.0, 1 - abs(from_y - j)) * max(0.0, 1 - abs(from_x - i))
                for j in range(7)
                for i in range(7)
            )
            assert found[y, x].item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.usefixtures("small")
def test_only_the_test_images_are_turned_and_the_same_way_each_time(tmp_path: Path) -> None:
    folder = str(write_mnist(tmp_path))
    plain, turned, again = mnist(1, folder), mnist_rotated(folder=folder), mnist_rotated(folder=folder)
    test = plain.images.splits["test"]
    assert torch.equal(turned.images.pixels, again.images.pixels)
    assert torch.equal(turned.images.pixels[: -len(test)], plain.images.pixels[: -len(test)])
    assert (turned.images.pixels[test] != plain.images.pixels[test]).flatten(1).any(1).all()
    assert not torch.equal(mnist_rotated(seed=1, folder=folder).images.pixels, turned.images.pixels)
    assert torch.equal(mnist_rotated(turn=0.0, folder=folder).images.pixels, plain.images.pixels)
    assert (turned.layout, turned.signature.inputs) == ((28, 28), 1)
