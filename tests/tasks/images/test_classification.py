"""Image classification, on the digits."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from edgewise.errors import ConfigError
from edgewise.explanations import scores
from edgewise.graphs import complete
from edgewise.models import MLPSettings, Perceptron
from edgewise.tasks import ImageClassification, PatternChoice, digits
from edgewise.tasks.images.classification import cut, move


@pytest.fixture(scope="module")
def task() -> ImageClassification:
    return digits()


def test_cut_keeps_each_pixel_at_its_place() -> None:
    pixels = torch.arange(2 * 6 * 4).view(2, 6, 4)
    patches = cut(pixels, 3, 2)
    assert patches.shape == (2, 4, 6)
    for image in range(2):
        for row in range(2):
            for column in range(2):
                expected = pixels[image, 3 * row : 3 * row + 3, 2 * column : 2 * column + 2].flatten()
                assert torch.equal(patches[image, 2 * row + column], expected)


@pytest.mark.parametrize(
    ("patch", "layout", "channels"), [(2, (4, 4), 4), (4, (2, 2), 16), (8, (1, 1), 64), (0, (1, 1), 64)]
)
def test_patch_lays_the_image_out(patch: int, layout: tuple[int, int], channels: int) -> None:
    task = digits(patch=patch)
    assert task.layout == layout
    assert (task.signature.inputs, task.signature.length) == (channels, layout[0] * layout[1])
    assert task.signature.whole_graph
    batch = next(task.batches("test", 5))
    assert batch.x.shape == (5, layout[0] * layout[1], channels)
    assert batch.graph.num_receivers == layout[0] * layout[1]


def test_of_an_image_that_is_not_cut_the_pixels_are_explained() -> None:
    task = digits(patch=0)
    torch.manual_seed(0)
    model = Perceptron(MLPSettings(()), task.signature)
    subject = task.subject(model, PatternChoice("complete"), "test:7")
    explained, _, _ = subject.explained(model, "3")
    why = scores(explained, "gradient")
    assert (explained.num_nodes, why.edges, len(subject.names)) == (64, None, 64)
    assert [subject.names[n] for n in (0, 1, 8, 63)] == [
        "row 1, column 1", "row 1, column 2", "row 2, column 1", "row 8, column 8",
    ]  # fmt: skip
    x = explained.x[..., 0].flatten()
    slope = torch.autograd.functional.jacobian(
        lambda pixels: torch.logit(model(None, pixels[None, None]).softmax(-1)[0, 0, 3]), x
    )
    torch.testing.assert_close(why.nodes, slope * x, atol=1e-4, rtol=1e-4)
    (drawing,) = subject.drawings(why.edges, why.nodes, None)
    assert drawing.figure.heat[0].values.shape == (1, 8, 8)


def test_images_move_pixel_by_pixel() -> None:
    pixels, moves = torch.arange(1, 41).view(2, 4, 5), torch.tensor([[1, -2], [-3, 0]])
    moved = move(pixels, moves)
    for image, (down, right) in enumerate(moves.tolist()):
        for y in range(4):
            for x in range(5):
                inside = 0 <= y - down < 4 and 0 <= x - right < 5
                assert moved[image, y, x] == (pixels[image, y - down, x - right] if inside else 0)


def test_training_images_alone_are_shifted_every_time_anew(task: ImageClassification) -> None:
    shifted = ImageClassification("digits", task.images, 2, shift=2)
    batch = shifted.train_batch(200, torch.Generator().manual_seed(0))
    same = shifted.train_batch(200, torch.Generator().manual_seed(0))
    plain = task.train_batch(200, torch.Generator().manual_seed(0))
    assert torch.equal(batch.x, same.x) and torch.equal(batch.target, plain.target)
    reached = set()
    for seen, still in zip(batch.x, plain.x, strict=True):
        moves = torch.cartesian_prod(torch.arange(-2, 3), torch.arange(-2, 3))
        image = still.mul(task.images.deviation).add(task.images.mean).view(4, 4, 2, 2).transpose(1, 2).reshape(8, 8)
        candidates = shifted._normalise(cut(move(image.expand(25, 8, 8), moves), 2, 2).contiguous())
        (which,) = (candidates - seen).abs().flatten(1).amax(1).lt(1e-4).nonzero()[:1]
        reached.add(int(which))
    assert len(reached) > 20
    for split in ("valid", "test"):
        for one, other in zip(shifted.batches(split, 100), task.batches(split, 100), strict=True):
            assert torch.equal(one.x, other.x)


def test_digits_are_split_as_stated() -> None:
    task = digits()
    splits = task.images.splits
    assert [len(splits[split]) for split in ("train", "valid", "test")] == [1297, 140, 360]
    assert task.epoch_size == 1297
    assert torch.equal(torch.cat(list(splits.values())).sort().values, torch.arange(1797))
    assert splits["test"][:4].tolist() == digits().images.splits["test"][:4].tolist()
    assert splits["test"].tolist() != digits(seed=1).images.splits["test"].tolist()
    assert len(task.images.labels[splits["test"]].bincount()) == 10
    with pytest.raises(ConfigError, match="seed"):
        digits(seed=-1)


def test_each_test_digit_is_shown_at_every_size_and_the_others_at_one(task: ImageClassification) -> None:
    sized = digits(1, sizes=(0.5, 2.0))
    pixels, tests = sized.images.pixels, task.images.pixels[task.splits["test"]]
    assert pixels.shape[1:] == (16, 16) and torch.equal(pixels[:1797, 4:12, 4:12], task.images.pixels)
    assert pixels[:1797].count_nonzero() == task.images.pixels.count_nonzero()
    halves, doubles = pixels[sized.splits["test"]].double().split(len(tests))
    assert halves[:, 6:10, 6:10].count_nonzero() == halves.count_nonzero()
    for shown, times in ((halves, 0.25), (doubles, 4.0)):
        assert torch.allclose(shown.sum((1, 2)), times * tests.double().sum((1, 2)), rtol=0.1)
    assert torch.equal(sized.images.labels[sized.splits["test"]], task.images.labels[task.splits["test"]].repeat(2))
    with pytest.raises(ConfigError, match=r"sizes\[1\]"):
        digits(sizes=(1.0, 0.1))


def test_predict_reads_the_same_image_from_everywhere(task: ImageClassification, echo, tmp_path: Path) -> None:
    model = echo(4, 10, whole_graph=True)
    pixels, label = task.read("test:7")
    np.save(tmp_path / "seven.npy", pixels.numpy())
    Image.fromarray(pixels.numpy()).save(tmp_path / "seven.PNG", format="png")
    named = task.predict(model, None, "test:7", "cpu")
    assert named["label"] == label
    assert sum(named["probabilities"].values()) == pytest.approx(1)
    batch = next(task.batches("test", 8))
    assert named["class"] == str(model.eval()(batch.graph, batch.x)[7].argmax().item())
    for file in ("seven.npy", "seven.PNG"):
        loaded = task.predict(model, complete, str(tmp_path / file), "cpu")
        assert loaded["probabilities"] == named["probabilities"]
        assert loaded["label"] is None
    json.dumps(named)
