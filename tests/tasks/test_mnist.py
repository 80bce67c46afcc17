"""MNIST, from miniature IDX files and from the real ones."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise.tasks import mnist
from edgewise.tasks.idx import read_idx
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


def test_the_real_mnist_has_its_known_numbers(data) -> None:
    task = mnist(folder=str(data("mnist")))
    assert [len(task.images.splits[split]) for split in ("train", "valid", "test")] == [55_000, 5_000, 10_000]
    assert task.images.pixels.shape == (70_000, 28, 28)
    train = task.images.pixels[:60_000].double() / 255
    assert train.mean().item() == pytest.approx(0.1307, abs=1e-4)
    assert train.std().item() == pytest.approx(0.3081, abs=1e-4)
    assert task.images.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert task.images.labels[60_000:].bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
