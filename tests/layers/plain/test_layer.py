"""What `Layer` checks of its arguments, and what it leaves alone."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from edgewise import ConfigError, Graph, GraphError, ShapeError, complete
from edgewise.configuration import Count, Share
from edgewise.layers.plain.layer import Layer
from edgewise.layers.plain.sides import NodeRows


class Scaled(Layer):
    def __init__(
        self, width: Count, dropout: Share = 0.0, how: Literal["up", "down"] = "up", most: Count | None = None
    ):
        super().__init__()
        self.width, self.dropout = width, dropout

    def forward(self, graph: Graph, x: NodeRows, times: int = 2) -> torch.Tensor:
        return times * x


def test_arguments_are_checked_by_their_annotations_however_they_are_given():
    layer, x = Scaled(3, how="down", most=None), torch.ones(4, 3)
    assert torch.equal(layer(complete(4), x, times=3), layer(graph=complete(4), x=x, times=3))
    for wrong in ({"width": 0}, {"width": 3, "dropout": 1.0}, {"width": 3, "how": "left"}, {"width": 3, "most": 0}):
        with pytest.raises(ConfigError):
            Scaled(**wrong)
    for wrong in ((complete(4), x[:3]), (complete(4), x.long()), (complete(4), x.tolist())):
        with pytest.raises(ShapeError):
            layer(*wrong)
    with pytest.raises(GraphError, match="the graph comes first"):
        layer(x, complete(4))
    with pytest.raises(TypeError, match="missing"):
        layer(complete(4))


def test_a_subclass_whose_annotations_cannot_be_read_is_left_alone():
    def made():
        Local = torch.Tensor

        class Own(Scaled):
            def forward(self, graph: Graph, x: Local) -> Local:  # text, which names nothing in this module
                return x

        return Own(3)

    assert made()(None, 5) == 5
