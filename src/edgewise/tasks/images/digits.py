"""Handwritten digits of 8 x 8 pixels, 1,797 of them, as distributed with scikit-learn. Embedded, real."""

from typing import Literal

import numpy as np
import torch

from edgewise.data.splits import cut
from edgewise.tasks.core.classification import Objective
from edgewise.tasks.core.task import check_range
from edgewise.tasks.images.classification import ImageClassification, Images

TRAIN, VALID = 1297, 140  # of 1,797 images


def digits(
    patch: int = 2,
    seed: int = 0,
    error: Literal["cross-entropy", "squared"] = "cross-entropy",
    temperature: float = 1.0,
) -> ImageClassification:
    """Classify which of the ten digits an 8 x 8 image shows.

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
    splits = cut(order, (TRAIN, TRAIN + VALID))
    grey = pixels[splits["train"]].double()
    labels, classes = torch.from_numpy(data.target.astype("int64")), tuple(map(str, data.target_names))
    images = Images(pixels, labels, classes, grey.mean().item(), grey.std(correction=0).item(), splits)
    task = ImageClassification("digits", images, patch)
    task.objective = Objective(error, temperature)
    return task
