"""MNIST, from miniature IDX files and from the real ones."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise import ConfigError
from edgewise.tasks import mnist, mnist_rotated
from edgewise.tasks.images.idx import read_idx
from edgewise.tasks.images.mnist import rotate
from tasks.miniature import SIZES, idx, mnist_parts, write_mnist


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in SIZES.items():
        monkeypatch.setitem(mnist.__globals__, name, size)


@pytest.mark.parametrize("zipped", [False, True])
def test_read_idx_gives_back_what_was_written(tmp_path: Path, zipped: bool) -> None:
    values = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)
    (tmp_path / "values").write_bytes(gzip.compress(idx(values)) if zipped else idx(values))
    assert np.array_equal(read_idx(tmp_path / "values", 3), values)


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


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("patch", "layout"), [(4, (7, 7)), (7, (4, 4)), (28, (1, 1))])
def test_mnist_is_cut_into_patches(tmp_path: Path, patch: int, layout: tuple[int, int]) -> None:
    task = mnist(patch=patch, folder=str(write_mnist(tmp_path)))
    assert task.layout == layout
    assert task.signature.inputs == patch * patch


@pytest.mark.usefixtures("small")
def test_mnist_shifts_what_trains(tmp_path: Path) -> None:
    folder = str(write_mnist(tmp_path))
    one, other = (mnist(4, folder, shift=s).train_batch(50, torch.Generator().manual_seed(0)) for s in (0, 2))
    assert torch.equal(one.target, other.target) and not torch.equal(one.x, other.x)


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


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4])
def test_quarter_turns_are_exact(turns: int) -> None:
    pixels = torch.randint(0, 256, (3, 6, 6), dtype=torch.uint8)
    assert torch.equal(rotate(pixels, torch.full((3,), 90.0 * turns)), torch.rot90(pixels, turns, (1, 2)))


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


def test_an_endless_turn_is_refused() -> None:
    with pytest.raises(ConfigError, match="turn must be a finite angle"):
        mnist_rotated(turn=float("inf"))


def test_the_angles_of_the_real_digits_are_those_of_the_seed(data) -> None:
    task, upright = mnist_rotated(folder=str(data("mnist"))), mnist(1, folder=str(data("mnist")))
    angles = 360 * torch.rand(10_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    test = task.images.splits["test"][[0, 1234, 9999]]
    expected = rotate(upright.images.pixels[test], angles[[0, 1234, 9999]])
    assert torch.equal(task.images.pixels[test], expected)
