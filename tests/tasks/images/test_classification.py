"""Image classification, on the digits."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from edgewise.errors import ConfigError, DataError, ShapeError
from edgewise.explanations import scores
from edgewise.graphs import complete, grid
from edgewise.models import MLPSettings, Perceptron
from edgewise.tasks import ImageClassification, PatternChoice, digits
from edgewise.tasks.images.classification import cut, move, read_image


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


def test_an_image_that_is_no_square_is_described_by_both_sides(task) -> None:
    images = replace(task.images, pixels=task.images.pixels[:, :4])
    wide = ImageClassification("wide", images, patch=0)
    assert wide.describe().startswith("wide: 4 × 8 pixels in patches of 4 × 8")


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


@pytest.mark.parametrize("patch", [3, -1, 16])
def test_patch_must_divide_the_image(patch: int) -> None:
    with pytest.raises(ConfigError, match=f"patch={patch} does not cut images of 8 x 8"):
        digits(patch=patch)


@pytest.mark.parametrize("shift", [-1, 8])
def test_a_shift_must_leave_something_to_see(task: ImageClassification, shift: int) -> None:
    with pytest.raises(ConfigError, match=f"shift={shift} must be at least 0 and less than the image, 8 x 8"):
        ImageClassification("digits", task.images, 2, shift)


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


def test_train_batch_is_a_function_of_its_generator(task: ImageClassification) -> None:
    one, same, other = (task.train_batch(9, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.x, same.x)
    assert torch.equal(one.target, same.target)
    assert not torch.equal(one.x, other.x)


def test_train_batch_draws_from_the_training_images_only(task: ImageClassification) -> None:
    drawn = task.train_batch(2000, torch.Generator().manual_seed(0)).x
    train = task._normalise(task._patches[task.images.splits["train"]])
    known = {tuple(image) for image in train.flatten(1).tolist()}
    assert {tuple(image) for image in drawn.flatten(1).tolist()} <= known


def test_batches_give_every_image_of_the_split_once(task: ImageClassification) -> None:
    batches = list(task.batches("valid", 64))
    assert [batch.size for batch in batches] == [64, 64, 12]
    assert torch.equal(torch.cat([b.target for b in batches]), task.images.labels[task.images.splits["valid"]])


def test_graphs_are_laid_once_for_each_choice(task: ImageClassification) -> None:
    assert task.graph() is task.graph(None)
    assert torch.equal(task.graph().dense_mask(), grid(4, 4).dense_mask())
    assert torch.equal(task.graph(PatternChoice()).dense_mask(), grid(4, 4).dense_mask())
    assert task.graph(PatternChoice("complete")) is task.graph(PatternChoice("complete"))
    assert task.graph(PatternChoice("complete")).is_complete
    assert task.graph(complete).num_receivers == 16
    assert task.graph(PatternChoice("grid", {"neighbors": 4})).num_edges == 4 * 4 + 2 * 2 * 12
    generator = torch.Generator()
    assert task.train_batch(3, generator, complete).graph is next(task.batches("test", 3, complete)).graph


def test_score_reads_one_output_per_image(task: ImageClassification) -> None:
    batch = next(task.batches("test", 6))
    right = torch.nn.functional.one_hot(batch.target, 10).float()[:, None] * 100
    assert task.score(right, batch)["accuracy"].item() == 6
    assert task.loss(right, batch).item() == pytest.approx(0, abs=1e-6)
    assert task.score(right.roll(1, -1), batch)["accuracy"].item() == 0
    with pytest.raises(ShapeError, match="one output row per target"):
        task.loss(right.expand(6, 16, 10), batch)


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


def test_digits_are_standardised_by_the_training_images(task: ImageClassification) -> None:
    x = torch.cat([batch.x for batch in task.batches("train", 500)]).double()
    assert x.mean().item() == pytest.approx(0, abs=1e-6)
    assert x.std(correction=0).item() == pytest.approx(1, abs=1e-6)


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


@pytest.mark.parametrize("request_", ["test:360", "valid:140", "train:99999", "test:" + "9" * 18])
def test_predict_names_an_image_that_is_not_there(task: ImageClassification, request_: str) -> None:
    with pytest.raises(DataError, match=r"digits has \d+ images in (train|valid|test), counted from 0"):
        task.read(request_)


@pytest.mark.parametrize("request_", ["test:-1", "test:", "7", "", "train:1.5", "image.jpg", "test:" + "9" * 19])
def test_predict_says_what_it_reads(task: ImageClassification, request_: str) -> None:
    with pytest.raises(DataError, match=r"give a \.npy or \.png file, or a split and a number as in 'test:7'"):
        task.read(request_)


def test_read_image_takes_any_real_numbers(tmp_path: Path) -> None:
    for kind in ("float64", "int32", "bool", "uint8"):
        np.save(tmp_path / "image.npy", np.eye(2, 3, dtype=kind))
        pixels = read_image(tmp_path / "image.npy", 2, 3)
        assert pixels.dtype == np.float32
        assert pixels.tolist() == np.eye(2, 3).tolist()
