"""Pictures of any usual format as pixels."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgewise.errors import DataError
from edgewise.tasks.own.images import read_picture

RED = np.zeros((4, 6, 3), dtype=np.uint8)
RED[:, :3, 0] = 250


@pytest.mark.parametrize("ending", ["png", "bmp", "gif", "tiff", "ppm", "webp", "jpg"])
def test_formats(tmp_path: Path, ending: str) -> None:
    Image.fromarray(RED).save(tmp_path / f"a.{ending}", **({"quality": 100} if ending in ("jpg", "webp") else {}))
    pixels = read_picture(tmp_path / f"a.{ending}", "rgb")
    assert pixels.shape == (4, 6, 3) and np.abs(pixels.astype(int) - RED).max() <= (
        80 if ending in ("jpg", "webp") else 0
    )
    assert read_picture(tmp_path / f"a.{ending}", "grey").shape == (4, 6)


def test_what_cameras_and_programs_write(tmp_path: Path) -> None:
    turned = Image.fromarray(RED)
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    turned.save(tmp_path / "a.jpg", exif=exif, quality=100)
    assert read_picture(tmp_path / "a.jpg", "rgb").shape == (6, 4, 3)
    clear = np.zeros((2, 2, 4), dtype=np.uint8)
    clear[0, 0] = (10, 20, 30, 255)
    Image.fromarray(clear).save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png", "rgb").tolist() == [[[10, 20, 30], [255] * 3], [[255] * 3] * 2]
    deep = np.array([[0, 257 * 100], [257 * 200, 65535]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "b.png")
    assert read_picture(tmp_path / "b.png", "grey").tolist() == [[0, 100], [200, 255]]
    Image.fromarray(RED).quantize(4).save(tmp_path / "c.png")
    assert read_picture(tmp_path / "c.png", "rgb")[0, 0, 0] == 250


@pytest.mark.parametrize("ending", ["png", "tiff", "pgm"])
def test_a_dark_picture_of_16_bits_is_dark(tmp_path: Path, ending: str) -> None:
    """It was read as one of 8 bits where none of its pixels is above 255."""
    dark = np.array([[0, 40], [130, 255]], dtype=np.uint16)
    Image.fromarray(dark).save(tmp_path / f"a.{ending}")
    assert read_picture(tmp_path / f"a.{ending}", "grey").max() == 0
    Image.fromarray(dark.astype(np.int32)).save(tmp_path / "b.tiff")  # of 32 bits: they may be anything
    assert read_picture(tmp_path / "b.tiff", "grey").tolist() == dark.tolist()


def test_another_size_is_scaled_and_cut_from_the_middle(tmp_path: Path) -> None:
    wide = np.zeros((8, 24), dtype=np.uint8)
    wide[:, 8:16] = 200
    Image.fromarray(wide).save(tmp_path / "a.png")
    pixels = read_picture(tmp_path / "a.png", "grey", 4)
    assert pixels.shape == (4, 4) and (pixels[:, 1:3] == 200).all() and (pixels > 150).all()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims a size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", r"a\.png: not a readable picture \(none of PNG, JPEG"),
        (b"<svg/>", r"a\.png: not a readable picture \(none of PNG, JPEG"),
        (bomb(100_000, 1_000), "100,000 x 1,000 pixels, of at most 67,108,864|not a readable picture"),
        (bomb(300_000, 300_000), "pixels"),
        (bomb(8, 8), "not a readable picture"),
    ],
)
def test_damaged_and_hostile_files_are_named(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(DataError, match=told):
        read_picture(tmp_path / "a.png", "grey")


def test_numbers_of_which_nothing_says_what_is_white_are_refused(tmp_path: Path) -> None:
    for pixels, told in (
        (np.array([[0.0, 0.5], [1.0, 0.25]], np.float32), "its pixels are floating numbers: write them with 8 or 16"),
        (np.array([[0, 5], [70_000, 9]], np.int32), "its pixels are 0 to 70000, not 0 to 65535"),
        (np.array([[-3, 5], [7, 9]], np.int32), "its pixels are -3 to 9, not 0 to 65535"),
    ):
        Image.fromarray(pixels).save(tmp_path / "a.tif")
        with pytest.raises(DataError, match=rf"a\.tif: {told}"):
            read_picture(tmp_path / "a.tif", "grey")
