"""Handwritten digits of 8 x 8 pixels, 1,797 of them, as distributed with scikit-learn. Embedded, real."""

from __future__ import annotations

import numpy as np
import torch

from edgewise.errors import ConfigError
from edgewise.tasks.core.splits import cut
from edgewise.tasks.images.classification import ImageClassification, Images

TRAIN, VALID = 1297, 140  # of 1,797 images


def digits(patch: int = 2, seed: int = 0) -> ImageClassification:
    """Classify which of the ten digits an 8 x 8 image shows.

    The images are shuffled by `numpy.random.RandomState(seed)`, whose stream never changes: the first 1,297 train, the
    next 140 validate, the last 360 test. The grey values 0 to 16 are standardised by the training images' mean and
    standard deviation.

    Reference   Alpaydin and Kaynak 1998, as distributed with scikit-learn

    Args:
        patch: Height and width of a patch: 2 gives 16 nodes of 4 features on a 4 x 4 layout; 0 (or 8) gives one node
            of 64 features, for an MLP.
        seed: Chooses the split.

    Example
        >>> task = digits()
        >>> task.layout, task.signature.inputs, task.epoch_size
        ((4, 4), 4, 1297)
    """
    from sklearn.datasets import load_digits

    if not 0 <= seed < 1 << 32:
        raise ConfigError(f"seed must be a number from 0 to 2**32 - 1, not {seed}")
    data = load_digits()
    pixels = torch.from_numpy(data.images.astype("uint8"))
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(pixels)))
    splits = cut(order, (TRAIN, TRAIN + VALID))
    grey = pixels[splits["train"]].double()
    images = Images(
        pixels=pixels,
        labels=torch.from_numpy(data.target.astype("int64")),
        classes=tuple(str(digit) for digit in data.target_names),
        mean=grey.mean().item(),
        deviation=grey.std(correction=0).item(),
        splits=splits,
    )
    return ImageClassification("digits", images, patch)
