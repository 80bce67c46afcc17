import numpy as np
import pytest

from edgewise.tasks.slides.simulator import Level, draw, encoded, plan, write_pyramid
from recorded import check_recorded, summary

openslide = pytest.importorskip("openslide")


def distances(planned):
    """From each nest [m, 1] to the centre of each ring [1, n], in cells."""
    return np.hypot(*(planned.nests[:, None, axis] - planned.rings[None, :, axis] for axis in (0, 1)))


def test_a_ring_encloses_a_nest_or_each_is_apart_by_more_than_a_tile():
    amounts = []
    for number in range(40):
        planned = plan(number, seed=5)
        apart, radius = distances(planned), planned.nests[:, 2:4].max(1, keepdims=True)
        inner, outer = planned.rings[:, 2] * planned.rings[:, 4], planned.rings[:, 2]
        within, beyond = apart + radius + 4 <= inner, apart - radius - 4 >= outer  # a tile is 4 cells wide
        assert (within | beyond).all() and within.sum() == number % 2
        row, column = planned.nests[0, :2].astype(int)
        assert planned.region.any() == planned.region[row, column] == bool(number % 2)
        amounts.append((len(planned.nests), len(planned.rings)))
    assert amounts[::2] == amounts[1::2] and set(amounts) == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_what_is_planned_is_drawn():
    for number in range(2):
        planned = plan(number, seed=5)
        pixels = draw(planned, number, seed=5)
        assert np.array_equal(pixels, draw(plan(number, seed=5), number, seed=5))
        cells = pixels.reshape(64, 16, 64, 16, 3).mean((1, 3))
        assert (cells[~planned.tissue].min(-1) > 200).mean() > 0.98  # glass
        dark, place = cells.mean(-1), np.stack(np.mgrid[:64, :64] + 0.5, -1)[:, :, None]
        for shapes in (planned.nests, planned.rings):
            radius = np.linalg.norm((place - shapes[:, :2]) / shapes[:, 2:4], axis=-1)
            inside = ((radius < 1) & (radius > shapes[:, 4])).any(-1) & planned.tissue
            assert dark[inside].mean() < np.median(dark[planned.tissue]) - 15
        check_recorded(f"slides/{number}", [summary(planned), summary(pixels)])
    assert not np.array_equal(plan(1, 5).stain, plan(1, 6).stain)


def test_a_written_pyramid_is_read_by_openslide(tmp_path):
    pixels = np.zeros((512, 768, 3), dtype=np.uint8)
    pixels[:256, :256], pixels[256:, 512:] = (250, 20, 30), (20, 60, 240)
    levels = [Level(768, 512, encoded(pixels), 1), Level(384, 256, encoded(pixels[::2, ::2]), 2)]
    write_pyramid(tmp_path / "a.tiff", levels, 0.5)
    with openslide.OpenSlide(tmp_path / "a.tiff") as slide:
        assert slide.level_dimensions == ((768, 512), (384, 256))
        assert slide.level_downsamples == (1, 2)
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.5, rel=1e-3)
        for level, scale in enumerate((1, 2)):
            read = np.asarray(slide.read_region((0, 0), level, (768 // scale, 512 // scale)).convert("RGB"))
            inside = read[20 // scale : 230 // scale, 20 // scale : 230 // scale].reshape(-1, 3)
            assert np.abs(inside - [250.0, 20, 30]).max() < 12
            far = read[280 // scale : 500 // scale, 540 // scale : 750 // scale].reshape(-1, 3)
            assert np.abs(far - [20.0, 60, 240]).max() < 12
    assert [path.name for path in tmp_path.iterdir()] == ["a.tiff"]
