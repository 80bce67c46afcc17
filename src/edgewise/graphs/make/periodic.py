"""Points in a periodic cell: their shortest moves, and the images within a radius; it needs NumPy and SciPy alone."""

from typing import Any

import numpy

Points = numpy.ndarray[Any, numpy.dtype[Any]]

ROUNDING = 1e-9  # relative: how far the tree's distances may be from ours, generously
MOST_IMAGES = 1 << 22  # of points, held in memory at once


def unwrapped(x: Points, box: Points) -> Points:
    """Positions [T, N, D] of which each is the image, in a box of edges [D], that is nearest to the one before.

    Edge cases  along an infinite edge they stay as they are

    >>> unwrapped(numpy.array([[[0.5]], [[9.5]], [[9.0]]]), numpy.array([10.0])).ravel().tolist()
    [0.5, -0.5, -1.0]
    """
    turns = numpy.rint(numpy.diff(x, axis=0) / box).cumsum(0)
    return numpy.concatenate([x[:1], x[1:] - turns * numpy.where(numpy.isfinite(box), box, 0.0)])


def images_within(x: Points, radius: float, a: Points) -> tuple[Points, Points, Points]:
    """Pairs i, j [E] and s [E, D] with |x_i - (x_j + s)| <= radius, but for j = i at s = 0; by i, then by j.

    Equation    s = Σ_k n_k a_k for whole n_k
    Symbols     x [N, D] in float64; a [K, D] = the vectors of the cell along which there are images
    Errors      ValueError for too many images to hold
    """
    from scipy.spatial import cKDTree

    count, axes = len(x), len(a)
    inverse = numpy.linalg.pinv(a) if axes else numpy.zeros((x.shape[1], 0))
    reach = radius * (1 + ROUNDING) * numpy.linalg.norm(inverse, axis=0)  # of the radius, in vectors of the cell
    home = numpy.floor(x @ inverse)
    place = x @ inverse - home  # from 0 to 1 along each periodic vector
    most = numpy.floor(reach + 1)
    images = int((2 * most + 1).prod())
    if count * images > MOST_IMAGES:
        raise ValueError(f"a radius of {radius} has too many images in the cell {a.tolist()}: is it in the same unit?")
    n = numpy.indices([int(2 * m + 1) for m in most]).reshape(axes, images).T - most
    seen = place[:, None] + n
    low, high = (place.min(0), place.max(0)) if count else (reach, reach)
    j, image = ((seen >= low - reach) & (seen <= high + reach)).all(-1).nonzero()
    own = x - home @ a
    near = own[j] + n[image] @ a
    pairs = cKDTree(own).sparse_distance_matrix(cKDTree(near), radius * (1 + ROUNDING), output_type="ndarray")
    i, k = pairs["i"], pairs["j"]
    close = numpy.square(own[i] - near[k]).sum(-1) <= radius * radius
    i, j, n_ij = i[close], j[k[close]], n[image[k[close]]]
    apart = (i != j) | (n_ij != 0).any(1)
    order = numpy.lexsort((*n_ij.T, j, i))
    i, j, n_ij = (part[order[apart[order]]] for part in (i, j, n_ij))
    return i, j, (n_ij + home[i] - home[j]) @ a
