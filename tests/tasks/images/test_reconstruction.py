import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Normal

from edgewise.errors import DataError
from edgewise.models import Memory, MemorySettings, VariationalAutoencoder, VariationalAutoencoderSettings
from edgewise.models.text.sampling import Sampling
from edgewise.tasks import digits, digits_recall, digits_reconstruction
from edgewise.tasks.images.reconstruction import bounds, log_likelihood


class Linear(nn.Module):
    """Codes of one number, whose exact likelihood can be integrated."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.tensor([1.5, -2.0, 0.7], dtype=torch.float64)

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = 0.8 * (x @ self.weight)[:, None]
        return mean, torch.full_like(mean, -0.5)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return z * self.weight


def test_the_bounds_are_bounds_and_the_weighted_one_meets_the_likelihood() -> None:
    model, x = Linear(), torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    z = torch.linspace(-9, 9, 20_001, dtype=torch.float64)[:, None]
    fit = Bernoulli(logits=model.decode(z)[:, None]).log_prob(x).sum(-1)
    exact = torch.logsumexp(fit + Normal(0.0, 1.0).log_prob(z), 0) + torch.tensor(18 / 20_000).log()
    elbo, weighted = bounds(model, x, torch.Generator().manual_seed(0), samples=200_000)
    assert bool((elbo < weighted).all())
    assert (weighted - exact).abs().max() < 0.01
    mean, log_variance = model.encode(x)
    q = Normal(mean, (log_variance / 2).exp())
    drawn = q.sample((200_000,))
    inside = Bernoulli(logits=model.decode(drawn)).log_prob(x).sum(-1)
    sampled = inside + (Normal(0.0, 1.0).log_prob(drawn) - q.log_prob(drawn)).sum(-1)
    assert (elbo - sampled.mean(0)).abs().max() < 0.02


def test_the_loss_and_the_score_are_the_cross_entropy_of_whole_images() -> None:
    task = digits_reconstruction()
    batch = next(task.batches("valid", 7))
    outputs = torch.randn(batch.x.shape)
    p = outputs.double().sigmoid()
    expected = -(batch.target * p.log() + (1 - batch.target) * (1 - p).log()).sum((1, 2))
    assert float(task.loss(outputs, batch)) == pytest.approx(float(expected.mean()), rel=1e-5)
    score = task.score(outputs, batch)
    assert float(score["loss"]) == pytest.approx(float(expected.sum()), rel=1e-5)
    assert float(score["count"]) == 7
    assert torch.allclose(log_likelihood(outputs.double(), batch.target.double()), -expected[:, None])


@pytest.fixture(scope="module")
def model() -> VariationalAutoencoder:
    torch.manual_seed(0)
    task = digits_reconstruction()
    settings = VariationalAutoencoderSettings(2, (32,))
    made, draw = VariationalAutoencoder(settings, task.signature), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(made.parameters(), 0.005)
    for _ in range(300):
        batch = task.train_batch(64, draw)
        outputs, penalty = made(*batch.inputs)
        optimizer.zero_grad()
        (task.loss(outputs, batch) + penalty).backward()
        optimizer.step()
    return made.eval()


def test_learning_beats_independent_pixels(model) -> None:
    """The best distribution without codes has each pixel's mean."""
    task = digits_reconstruction()
    mean = task.grey(task.splits["train"]).mean(0).clamp(1e-4, 1 - 1e-4)
    without = log_likelihood(torch.logit(mean).expand(360, -1), task.grey(task.splits["test"])).mean()
    judged = task.judge(model, "test", None, "cpu")
    assert judged["elbo"] > float(without) + 1
    assert judged["elbo"] < judged["likelihood"]
    assert judged == task.judge(model, "test", None, "cpu")


def test_a_prediction_has_the_code_and_the_bounds(model, tmp_path) -> None:
    task = digits_reconstruction()
    found = task.predict(model, None, "test:0", "cpu")
    assert (len(found["code"]), len(found["deviation"])) == (2, 2)
    assert found["elbo"] <= found["likelihood"]
    assert np.shape(found["pixels"]) == (8, 8)
    np.save(tmp_path / "digit.npy", task.images.pixels[int(task.splits["test"][0])].numpy())
    read = task.predict(model, None, str(tmp_path / "digit.npy"), "cpu")
    assert read["code"] == pytest.approx(found["code"])
    with pytest.raises(DataError, match=r"give a \.npy file, a picture"):
        task.predict(model, None, "seven", "cpu")


def test_new_images_are_drawn_by_a_seed(model) -> None:
    task = digits_reconstruction()
    first, again, other = (task.generate(model, None, Sampling(count=3, seed=seed), "cpu").values for seed in (0, 0, 1))
    assert task.generate(model, None, Sampling(count=1), "cpu").text == "1 image of 8 × 8 pixels"
    assert first == again
    assert first != other
    assert np.shape(first["pixels"]) == (3, 8, 8)
    assert 0 <= np.min(first["pixels"]) <= np.max(first["pixels"]) <= 1


def test_a_report_shows_the_space_of_codes(model) -> None:
    task = digits_reconstruction()
    sections = [section.make() for section in task.draw(model, None, {})]
    drawn = {drawing.name: drawing.figure.pixels.shape for section in sections for drawing in section}
    assert drawn == {"codes": (1, 120, 120), "between": (8, 8, 8), "images": (8, 8, 8), "given-back": (8, 8, 8)}


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
