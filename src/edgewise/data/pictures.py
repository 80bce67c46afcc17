"""Pictures of any usual format as pixels, read by Pillow within bounds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal
from warnings import catch_warnings, simplefilter

import numpy as np

from edgewise.errors import DataError
from edgewise.files import read_bytes, reading

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
MAX_BYTES = 1 << 26
MAX_PIXELS = 1 << 26  # of a picture; a file of a few bytes can claim any number
Colour = Literal["grey", "rgb"]
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def read_picture(path: Path, colour: Colour, size: int = 0) -> Pixels:
    """The pixels of a picture, uint8 [height, width] or [height, width, 3], as it is to be looked at.

    Symbols     size = height and width of what is read: the picture is scaled until its shorter side has so many
                pixels, and its middle is cut out; 0: it stays as it is
    Errors      DataError: no such file, none of `FORMATS`, damaged, or more than `MAX_PIXELS`; floating numbers, of
                which nothing says what is white, and whole ones beyond 16 bits
    Edge cases  what is transparent is white; 16 bits are scaled to 8, and 32 of a TIFF where one is above 255; of
                several frames the first is read
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    content = read_bytes(path, MAX_BYTES)
    with reading(path, "a readable picture"), catch_warnings():
        simplefilter("error", Image.DecompressionBombWarning)
        try:
            opened = Image.open(io.BytesIO(content), formats=FORMATS)
        except UnidentifiedImageError as error:  # whose message names an object in memory
            raise DataError(f"{path}: not a readable picture (none of {', '.join(FORMATS)})") from error
        width, height = opened.size
        if width * height > MAX_PIXELS or not width * height:
            raise DataError(f"{path}: {width:,} x {height:,} pixels, of at most {MAX_PIXELS:,}")
        opened.load()
        picture = ImageOps.exif_transpose(opened)
        if picture.mode.startswith("F"):
            raise DataError(f"{path}: its pixels are floating numbers: write them with 8 or 16 bits")
        if picture.mode.startswith("I"):
            values = np.asarray(picture, dtype=np.float64)
            least, most = int(values.min()), int(values.max())
            if not 0 <= least <= most < 1 << 16:
                raise DataError(f"{path}: its pixels are {least} to {most}, not 0 to 65535: write them with 16 bits")
            deep = picture.mode != "I" or opened.format != "TIFF" or most > 255  # a TIFF of 32 bits may mean 8 or 16
            picture = Image.fromarray((values / (257 if deep else 1)).astype(np.uint8))
        if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
            white = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(white, picture.convert("RGBA"))
        picture = picture.convert("RGB" if colour == "rgb" else "L")
        if size:
            picture = ImageOps.fit(picture, (size, size), Image.Resampling.BILINEAR)
        return np.asarray(picture, dtype=np.uint8)
