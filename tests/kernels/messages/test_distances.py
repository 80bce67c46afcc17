"""Gaussians of distances: what they are of, and what no backend spreads."""

import pytest
import torch

from edgewise import GraphError, ShapeError
from edgewise.kernels import gaussians
from kernels.drawn import random_graph
from kernels.networks import case


@pytest.mark.parametrize("backend", [None, "native", "segment"])
@pytest.mark.parametrize(("count", "reach"), [(5, 0.0), (5, -1.0), (5, float("nan")), (5, float("inf")), (1, 1.5)])
def test_what_cannot_be_spread_is_refused_on_every_backend(count, reach, backend):
    with pytest.raises((ShapeError, GraphError), match=r"reach must be|number of Gaussians must be"):
        case(random_graph(6, 5, 30), [4, 3], edges=count, ends="", reach=reach)(backend)


def test_whole_numbers_have_the_gaussians_of_the_same_floats():
    length = torch.tensor([[0], [1], [2]])
    torch.testing.assert_close(gaussians(length, 4, 2.0), gaussians(length.float(), 4, 2.0))
