import math
from pathlib import Path

import pytest
import torch
from torch import nn

from edgewise.errors import ShapeError
from edgewise.tasks.slides import reader
from edgewise.tasks.slides.reader import Layout, Tiling, contrast, extract, fit_scale, learn_extractor, view

TILING = Tiling(size=16, workers=0)


def textures(count: int, seed: int) -> torch.Tensor:
    """Tiles with fine or coarse grain by turns, in a colour of their own, bytes [count, 16, 16, 3]."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        grain = 2 if number % 2 else 8
        grey = torch.rand(16 // grain, 16 // grain, 1, generator=generator)
        grey = grey.repeat_interleave(grain, 0).repeat_interleave(grain, 1)
        made.append((90 + 110 * grey) * (0.8 + 0.4 * torch.rand(3, generator=generator)))
    return torch.stack(made).clamp(0, 255).to(torch.uint8)


@pytest.fixture
def slides(monkeypatch):
    """Three slides without files: 300 tiles each, in two parts."""
    layouts = [Layout(Path(str(n)), 16.0, (1, 1), torch.zeros(300, 2, dtype=torch.int64)) for n in range(3)]

    def tiles(layouts, tiling):
        for number, layout in enumerate(layouts):
            yield from ((number, part) for part in textures(len(layout.places), int(layout.path.name)).split(256))

    monkeypatch.setattr(reader, "stream", tiles)
    return layouts


def test_the_contrast_is_its_equation():
    a, b = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    z = [row / row.norm() for row in (*a, *b)]
    expected = 0.0
    for i in range(8):
        likeness = [float(z[i] @ z[k]) / 0.5 for k in range(8)]
        others = sum(math.exp(likeness[k]) for k in range(8) if k != i)
        expected -= math.log(math.exp(likeness[(i + 4) % 8]) / others) / 8
    assert contrast(a, b, 0.5).item() == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(contrast, (a.requires_grad_(), b.requires_grad_()))


def test_without_labels_the_network_learns_to_tell_tiles_it_never_saw_apart(slides):
    """Between views of 100 new tiles, the contrast is far lower than before it learned."""
    generator = torch.Generator().manual_seed(1)
    one, other = (view(textures(100, 99), generator) for _ in range(2))

    def cost(network):
        with torch.no_grad():
            a, b = network(one), network(other)
        return contrast(a - a.mean(0), b - b.mean(0)).item()

    drawn, learned = (cost(learn_extractor(slides, TILING, 16, steps, seed=0)) for steps in (0, 60))
    assert learned < drawn - 1
    again = learn_extractor(slides, TILING, 8, steps=2, seed=0)
    same = learn_extractor(slides, TILING, 8, steps=2, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), same.state_dict().values(), strict=True))


def test_features_have_mean_0_and_deviation_1_over_the_training_tiles(slides):
    def colours(tiles):
        return torch.cat([tiles.float().mean((1, 2)), torch.ones(len(tiles), 1)], 1)

    features = fit_scale(colours, extract(colours, slides[:2], TILING))
    x = torch.cat(features.of(slides[:2], TILING))
    assert torch.allclose(x.mean(0), torch.zeros(4), atol=1e-4)
    assert torch.allclose(x.std(0, correction=0)[:3], torch.ones(3), atol=1e-4) and not x[:, 3].any()
    (other,) = features.of(slides[2:], TILING)
    assert torch.allclose(other, (colours(textures(300, 2)) - features.mean) / features.deviation)


class Own(nn.Module):
    """Gives one row too few, or no number."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, tiles):
        assert not self.training
        return {"few": torch.zeros(len(tiles) - 1, 2), "nan": torch.full((len(tiles), 2), torch.nan)}[self.what]


@pytest.mark.parametrize("what", ["few", "nan"])
def test_an_extractor_that_gives_something_else_is_refused(slides, what):
    with pytest.raises(ShapeError, match=r"finite \[B, C\] is needed"):
        extract(Own(what), slides, TILING)
