import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgewise.errors import DataError, ShapeError
from edgewise.tasks.slides import reader
from edgewise.tasks.slides.reader import (
    Layout,
    Tiling,
    contrast,
    extract,
    fit_scale,
    lay_out,
    learn_extractor,
    stream,
    view,
)
from edgewise.tasks.slides.simulator import Level, encoded, write_pyramid

openslide = pytest.importorskip("openslide")
PURPLE = (150, 60, 160)


def checkered(path, levels=(1, 2), mpp=0.5):
    """512 × 768 pixels of glass, with tissue on three squares of 128: the second darker, the third half as wide."""
    pixels = np.full((512, 768, 3), 245, dtype=np.uint8)
    pixels[128:256, 256:384] = PURPLE
    pixels[256:384, 384:512] = np.array(PURPLE) // 2
    pixels[384:512, 640:704] = PURPLE
    made = []
    for coarser in levels:
        smaller = pixels[::coarser, ::coarser]
        height, width = smaller.shape[:2]
        made.append(Level(width, height, encoded(smaller), coarser))
    write_pyramid(path, made, mpp)
    return path


@pytest.mark.parametrize(
    ("levels", "mpp", "size"), [((1,), 2.0, 32), ((1, 2), 1.0, 64), ((1, 4), 0.5, 128), ((1, 2), 0.25, 256)]
)
def test_tiles_hold_the_same_tissue_at_every_resolution_and_from_every_pyramid(tmp_path, levels, mpp, size):
    tiling = Tiling(mpp, size, tissue=0.6, workers=0)
    layout = lay_out(checkered(tmp_path / "a.tiff", levels), tiling)
    assert layout.side == pytest.approx(128, rel=1e-3) and layout.extent == (512, 768)
    assert layout.places.tolist() == [[1, 2], [2, 3]]
    ((number, tiles),) = stream([layout], tiling)
    assert number == 0 and tiles.shape == (2, size, size, 3) and tiles.dtype == torch.uint8
    inner = slice(size // 8, -size // 8)
    for tile, colour in zip(tiles, (np.array(PURPLE), np.array(PURPLE) // 2), strict=True):
        assert np.abs(tile[inner, inner].numpy().reshape(-1, 3) - colour.astype(float)).max() < 12
    assert layout.graph().edge_index().tolist() == [[1, 0], [0, 1]]


def test_workers_give_what_one_process_gives(tmp_path):
    layouts = [lay_out(checkered(tmp_path / f"{n}.tiff"), Tiling(0.5, 32, workers=0)) for n in range(3)]
    alone = list(stream(layouts, Tiling(0.5, 32, workers=0)))
    together = list(stream(layouts, Tiling(0.5, 32, workers=2)))
    assert [number for number, _ in together] == [number for number, _ in alone] == [0, 1, 2]
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(alone, together, strict=True))


def test_the_real_slide_has_the_resolution_that_its_scanner_wrote(data):
    layout = lay_out(data("slides") / "CMU-1-Small-Region.svs", Tiling(2.0, 64, workers=0))
    assert layout.extent == (2967, 2220)
    assert layout.side == pytest.approx(64 * 2.0 / 0.499)
    assert 20 < len(layout.places) <= 8 * 11


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"", "not a slide"), (b"II*\0" + b"\xff" * 300, "not a slide"), (b"text", "not a slide")],
)
def test_what_is_no_slide_is_named(tmp_path, content, message):
    path = tmp_path / "bad.svs"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.svs.*{message}"):
        lay_out(path, Tiling(workers=0))


def test_a_cut_slide_is_named_by_workers_too(tmp_path):
    path = checkered(tmp_path / "cut.tiff")
    layout = lay_out(path, Tiling(0.5, 32, workers=0))
    content = bytearray(path.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    path.write_bytes(content)
    for workers in (0, 1):
        with pytest.raises(DataError, match=r"cut\.tiff"):
            list(stream([layout], Tiling(0.5, 32, workers=workers)))


def test_a_slide_without_tissue_or_resolution_is_refused(tmp_path):
    glass = np.full((256, 256, 3), 240, dtype=np.uint8)
    write_pyramid(tmp_path / "glass.tiff", [Level(256, 256, encoded(glass), 1)], 0.5)
    with pytest.raises(DataError, match="no tile of 32 pixels has 50% of tissue"):
        lay_out(tmp_path / "glass.tiff", Tiling(workers=0))
    with pytest.raises(DataError, match="cannot be right"):
        reader.microns(type("S", (), {"properties": {"openslide.objective-power": "1e-9"}}), tmp_path)
    with pytest.raises(DataError, match="neither its microns per pixel"):
        reader.microns(type("S", (), {"properties": {}}), tmp_path)
    assert reader.microns(type("S", (), {"properties": {"openslide.objective-power": "20"}}), tmp_path) == 0.5
    for x, y in [("4e5", "0.013"), ("0.5", "nan"), ("inf", "inf"), ("0.5", "-0.5"), ("0.2", "0.5")]:
        with pytest.raises(DataError, match=r"pixels of .* by .* microns cannot be right"):
            reader.microns(type("S", (), {"properties": {"openslide.mpp-x": x, "openslide.mpp-y": y}}), tmp_path)
    write_pyramid(tmp_path / "coarse.tiff", [Level(256, 256, encoded(glass), 1)], 33.0)
    with pytest.raises(DataError, match=r"32 pixels of 1.0 microns are 0.97 of its own: take larger tiles"):
        lay_out(tmp_path / "coarse.tiff", Tiling(workers=0))


HUGE = """
import resource, sys, time
import numpy as np, torch
from pathlib import Path
from edgewise.layers import ResNet
from edgewise.models import Features, PooledTransformer, PooledTransformerSettings
from edgewise.tasks.slides.reader import extract
from edgewise.tasks.slides.reader import Tiling, lay_out
from edgewise.tasks.slides.simulator import TILE, Level, draw, encoded, plan, write_pyramid

torch.set_num_threads(1)
path, side, tiling = Path(sys.argv[1]), 50_000, Tiling(mpp=2.0, size=64, workers=2)
kinds = [list(encoded(draw(plan(n, 0), n, 0))) for n in range(4)]  # 16 tiles each
def tiles(side):
    count = -(-side // TILE)
    return (kinds[(r // 4 + c // 4) % 4][4 * (r % 4) + c % 4] for r in range(count) for c in range(count))
coarser = [1] if "one" in sys.argv else [1, 4, 16]
write_pyramid(path, [Level(side // k, side // k, tiles(side // k), k) for k in coarser], 0.5)
start = time.perf_counter()
layout = lay_out(path, tiling)
(x,) = extract(ResNet(64), [layout], tiling)
model, graph = PooledTransformer(PooledTransformerSettings(), Features(64, 2, whole_graph=True)), layout.graph()
with torch.no_grad():
    model.eval()(graph, x)
heat = model.relevance(graph, x, 1)
assert heat.isfinite().all() and len(heat) == len(layout.places) > 20_000
peak = [resource.getrusage(who).ru_maxrss * 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(len(heat), peak[0] + tiling.workers * peak[1], round(time.perf_counter() - start))
"""


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pyramid", ["one", "three"])
def test_a_slide_of_50_000_by_50_000_pixels_takes_less_than_2_gb(tmp_path, pyramid):
    """From file to heat map, on one level or three: the peak of this process and of each worker, added up."""
    command = [sys.executable, "-c", HUGE, str(tmp_path / "huge.tiff"), pyramid]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tiles, peak, seconds = map(int, done.stdout.split())
    print(f"{tiles:,} tiles, {peak / 1e9:.2f} GB, {seconds / 60:.1f} minutes")
    assert tiles > 20_000
    assert peak <= 2e9, f"{peak / 1e9:.2f} GB"


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
