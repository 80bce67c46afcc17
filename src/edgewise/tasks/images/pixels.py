"""The pixels of a picture that Pillow has opened; it needs nothing else."""

from typing import Any

import numpy


def pixels_of(opened: Any, colour: str, size: int = 0) -> numpy.ndarray[Any, numpy.dtype[numpy.uint8]]:
    """A picture as it is to be looked at, uint8 [height, width], or [height, width, 3] where `colour` is "rgb".

    Symbols     size = height and width: it is scaled until its shorter side has so many pixels, and its middle is cut
                out; 0: it stays as it is
    Errors      ValueError for floating numbers, of which nothing says what is white, and for whole ones beyond 16 bits
    Edge cases  what is transparent is white; 16 bits are scaled to 8, and 32 of a TIFF where one is above 255
    """
    from PIL import Image, ImageOps

    picture = ImageOps.exif_transpose(opened)
    if picture.mode.startswith("F"):
        raise ValueError("its pixels are floating numbers: write them with 8 or 16 bits")
    if picture.mode.startswith("I"):
        values = numpy.asarray(picture, dtype=numpy.float64)
        least, most = int(values.min()), int(values.max())
        if not 0 <= least <= most < 1 << 16:
            raise ValueError(f"its pixels are {least} to {most}, not 0 to 65535: write them with 16 bits")
        deep = picture.mode != "I" or opened.format != "TIFF" or most > 255  # a TIFF of 32 bits may mean 8 or 16
        picture = Image.fromarray((values / (257 if deep else 1)).astype(numpy.uint8))
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture.convert("RGBA"))
    picture = picture.convert("RGB" if colour == "rgb" else "L")
    if size:
        picture = ImageOps.fit(picture, (size, size), Image.Resampling.BILINEAR)
    return numpy.asarray(picture, dtype=numpy.uint8)
