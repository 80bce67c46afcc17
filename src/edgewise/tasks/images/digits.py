"""Handwritten digits: 1,797 of 8 x 8 pixels, from scikit-learn, and MNIST, 70,000 of 28 x 28 from its IDX files."""

import struct
from math import isfinite, prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from edgewise.data.splits import cut, fixed
from edgewise.errors import ConfigError, DataError
from edgewise.files import gunzip, read_bytes
from edgewise.tasks.core.classification import Objective
from edgewise.tasks.core.source import Remote, find_folder, unpacked
from edgewise.tasks.core.task import check_range
from edgewise.tasks.images.classification import ImageClassification, Images

_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_SHA256 = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
FILES = {name: Remote(f"{name}.gz", f"{_ADDRESS}{name}.gz", sha256, 1 << 24) for name, sha256 in _SHA256.items()}
SIDE, TRAIN, VALID, TEST = 28, 55_000, 5_000, 10_000  # of MNIST
MAX_BYTES = 1 << 27  # of an IDX file; MNIST has 47 MB
UNSIGNED_BYTES = 0x08


def digits(
    patch: int = 2,
    seed: int = 0,
    error: Literal["cross-entropy", "squared"] = "cross-entropy",
    temperature: float = 1.0,
    sizes: tuple[float, ...] = (),
) -> ImageClassification:
    """Classify which of the ten digits an 8 x 8 image shows, or one of another size.

    The images are shuffled by `numpy.random.RandomState(seed)`, whose stream never changes: the first 1,297 train, the
    next 140 validate, the last 360 test. The grey values 0 to 16 are standardised by the training images' mean and
    standard deviation.

    Reference   Alpaydin and Kaynak 1998, as distributed with scikit-learn

    Args:
        patch: Height and width of a patch: 2 gives 16 nodes of 4 features on a 4 x 4 layout; 0 (or 8) gives one node
            of 64 features, for an MLP.
        seed: Chooses the split.
        error: What training lowers: "cross-entropy", or the "squared" distance of the outputs from one-hot targets.
        temperature: What outputs are divided by before the softmax of the cross-entropy.
        sizes: Multiples of 8 pixels at which each of the test digits is shown, all of them after each other. Those that
            train and validate have 8 pixels, in the middle of an image that holds the largest; none: all fill theirs.

    Errors      a size that is less than one pixel or more than 8 times the training digits' is a `ConfigError`.

    Example
        >>> task = digits()
        >>> task.layout, task.signature.inputs, task.epoch_size
        ((4, 4), 4, 1297)
    """
    from sklearn.datasets import load_digits

    check_range(0, 2**32 - 1, seed=seed)
    data = load_digits()
    pixels = torch.from_numpy(data.images.astype("uint8"))
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(pixels)))
    splits = cut(order, (1297, 1437))
    labels, classes = torch.from_numpy(data.target.astype("int64")), tuple(map(str, data.target_names))
    if sizes:
        check_range(1 / 8, 8, **{f"sizes[{place}]": size for place, size in enumerate(sizes)})
        side, tests = max(8, *(round(8 * size) for size in sizes)), splits["test"]
        shown = [resized(pixels[tests], round(8 * size), side) for size in sizes]
        splits = {**splits, "test": len(pixels) + torch.arange(len(tests) * len(sizes))}
        pixels, labels = (
            torch.cat([resized(pixels, 8, side), *shown]),
            torch.cat([labels, labels[tests].repeat(len(sizes))]),
        )
    grey = pixels[splits["train"]].double()
    images = Images(pixels, labels, classes, grey.mean().item(), grey.std(correction=0).item(), splits)
    task = ImageClassification("digits", images, patch)
    task.objective = Objective(error, temperature)
    return task


def mnist(patch: int = 0, folder: str | None = None, download: bool = False, shift: int = 0) -> ImageClassification:
    """Classify which of the ten digits a 28 x 28 image shows.

    Of the 60,000 training images the first 55,000 train and the last 5,000 validate; the 10,000 test images test. The
    grey values, scaled to 0..1, are standardised by the customary mean 0.1307 and standard deviation 0.3081.

    Reference   LeCun, Bottou, Bengio and Haffner 1998. Licence: CC BY-SA 3.0

    Args:
        patch: Height and width of a patch: 0 gives one node of 784 features, for an MLP; 4 gives 49 nodes of 16
            features on a 7 x 7 layout; 7 gives 16 nodes of 49 features.
        folder: Where the four IDX files lie, gzipped or not (default: mnist in $EDGEWISE_DATA, then the cache).
        download: Fetch what is missing, over TLS and verified by its hash.
        shift: Each training image is moved by up to so many pixels down and across, drawn anew in every batch.

    Errors      a file that is missing, damaged or of another size is a `DataError` that names it.
    """
    return ImageClassification("mnist", _images(*_read(folder, download)), patch, shift)


def mnist_rotated(
    patch: int = 1, turn: float = 360.0, seed: int = 0, folder: str | None = None, download: bool = False
) -> ImageClassification:
    """Classify which of the ten digits an image shows, turned by any angle, having seen upright ones only.

    As `mnist`, except that each of the 10,000 test images is turned about its centre by an angle drawn evenly from
    0° to `turn`, by bilinear interpolation, and rounded to whole grey values. The images that train and those that
    validate are upright: nothing that is learned or chosen knows of the turns.

    Reference   LeCun, Bottou, Bengio and Haffner 1998. Licence: CC BY-SA 3.0

    Args:
        patch: Height and width of a patch; 1 gives 784 nodes of one feature on a 28 x 28 layout, for a group-cnn.
        turn: The largest angle in degrees; 0 leaves the test images upright.
        seed: Chooses the angles.
        folder: Where the four IDX files lie, gzipped or not (default: mnist in $EDGEWISE_DATA, then the cache).
        download: Fetch what is missing, over TLS and verified by its hash.

    Errors      those of `mnist`; ConfigError for an angle that is not finite.
    """
    if not isfinite(turn):
        raise ConfigError(f"turn must be a finite angle in degrees, not {turn}")
    pixels, labels = _read(folder, download)
    angles = turn * torch.rand(TEST, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    pixels[-TEST:] = torch.cat(
        [rotate(*part) for part in zip(pixels[-TEST:].split(1000), angles.split(1000), strict=True)]
    )
    return ImageClassification("mnist-rotated", _images(pixels, labels), patch)


def rotate(pixels: Tensor, angles: Tensor) -> Tensor:
    """Turn each image about its centre, counter-clockwise by its angle in degrees: [M, Y, X], [M] -> [M, Y, X].

    What comes from outside is 0; between pixels, values are interpolated bilinearly, and those of bytes rounded.

    Example
        >>> rotate(torch.tensor([[[1, 2], [3, 4]]], dtype=torch.uint8), torch.tensor([90.0])).tolist()
        [[[2, 4], [1, 3]]]
    """
    cos, sin = angles.double().deg2rad().cos(), angles.double().deg2rad().sin()
    height, width = pixels.shape[1:]
    from_x = torch.stack([cos, -sin * height / width, torch.zeros_like(cos)], -1)  # in units of half the image
    from_y = torch.stack([sin * width / height, cos, torch.zeros_like(cos)], -1)
    places = functional.affine_grid(torch.stack([from_x, from_y], 1), [len(pixels), 1, height, width], False)
    turned = functional.grid_sample(pixels[:, None].double(), places, align_corners=False)[:, 0]
    return (turned if pixels.is_floating_point() else turned.round()).to(pixels.dtype)


def resized(pixels: Tensor, size: int, side: int) -> Tensor:
    """Scale square images to a size, in the middle of a black square of a side: [M, Y, Y] -> [M, side, side].

    Between pixels, values are interpolated bilinearly, of as much of the image as one covers; those of bytes rounded.

    Example
        >>> resized(torch.tensor([[[8, 8], [0, 8]]], dtype=torch.uint8), 1, 3).tolist()
        [[[0, 0, 0], [0, 6, 0], [0, 0, 0]]]
    """
    scaled = functional.interpolate(pixels[:, None].double(), (size, size), mode="bilinear", antialias=True)[:, 0]
    before = (side - size) // 2
    framed = functional.pad(scaled, (before, side - size - before) * 2)
    return (framed if pixels.is_floating_point() else framed.round()).to(pixels.dtype)


def _read(folder: str | None, download: bool) -> tuple[Tensor, Tensor]:
    """The grey values [70000, 28, 28] and the digits [70000], those that train first."""
    place = find_folder("mnist", FILES.values(), folder, download)
    pixels, labels = [], []
    for part, count in (("train", TRAIN + VALID), ("t10k", TEST)):
        images_path = unpacked(place / FILES[f"{part}-images-idx3-ubyte"].name)
        labels_path = unpacked(place / FILES[f"{part}-labels-idx1-ubyte"].name)
        images, classes = read_idx(images_path, 3), read_idx(labels_path, 1)
        if images.shape != (count, SIDE, SIDE):
            size = " x ".join(map(str, images.shape))
            raise DataError(f"{images_path}: {count} x {SIDE} x {SIDE} values were expected, it has {size}")
        if classes.shape != (count,):
            raise DataError(f"{labels_path}: {count} labels were expected, it has {len(classes)}")
        if classes.max() > 9:
            raise DataError(f"{labels_path}: label {classes.argmax()} is {classes.max()}, expected a digit 0 to 9")
        pixels.append(torch.from_numpy(images))
        labels.append(torch.from_numpy(classes).long())
    return torch.cat(pixels), torch.cat(labels)


def _images(pixels: Tensor, labels: Tensor) -> Images:
    return Images(pixels, labels, tuple("0123456789"), 0.1307 * 255, 0.3081 * 255, fixed(TRAIN, VALID, TEST))


def read_idx(path: Path, dimensions: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The array of unsigned bytes that an IDX file holds.

    Symbols     dimensions = how many sizes the header must give: 1 for labels, 3 for images
    Shapes      -> uint8, as the header says
    Errors      DataError names the file: unreadable, damaged gzip, wrong magic number, truncated, trailing bytes
    Cost        memory of at most twice the unpacked file, which may have 128 MiB
    Reference   LeCun, Cortes and Burges 1998
    """
    content = read_bytes(path, MAX_BYTES)
    if content.startswith(b"\x1f\x8b"):
        content = gunzip(path, content, MAX_BYTES)
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise DataError(f"{path}: truncated; an IDX header of {header} bytes was expected, it has {len(content)}")
    magic = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    if content[:4] != magic:
        kind = f"IDX of unsigned bytes in {dimensions} dimensions"
        raise DataError(f"{path}: starts with {content[:4].hex()}, expected {magic.hex()} ({kind})")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    found, expected = len(content) - header, prod(shape)
    if found != expected:
        fault = "truncated" if found < expected else "trailing bytes"
        size = " x ".join(map(str, shape))
        raise DataError(f"{path}: {fault}; its header promises {size} = {expected} bytes, {found} follow")
    if not found:  # an empty array, whose other sizes may be too large for numpy
        raise DataError(f"{path}: it holds no data; its header promises {' x '.join(map(str, shape))} bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()
