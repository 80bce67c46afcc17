"""Each layer of the graph network at its place: widths of heads, and what is refused."""

import pytest

from edgewise.errors import ConfigError
from edgewise.layers import GCN, GCNII
from edgewise.models.graph.graph_layers import GRAPH_LAYERS, Site


def test_hidden_layers_and_the_output_have_heads_of_their_own() -> None:
    hidden, last = Site(8, 12, 12, "relu", 3), Site(8, 5, 12, "relu", 3, last=True)
    for name in ("rgat", "hgt"):
        assert GRAPH_LAYERS[name](hidden, heads=4, output_heads=1) is not None
        with pytest.raises(ConfigError, match="5 heads do not divide"):
            GRAPH_LAYERS[name](hidden, heads=5)
        with pytest.raises(ConfigError, match="2 heads do not divide"):
            GRAPH_LAYERS[name](last, heads=5, output_heads=2)
    assert GRAPH_LAYERS["rgat"](hidden, heads=4).a_sender.shape == (3, 4, 3)
    assert GRAPH_LAYERS["hgt"](last, heads=4).message.shape == (3, 1, 5, 5)
    assert len(GRAPH_LAYERS["hgt"](Site(8, 5, 12, "relu", kinds=2)).output.weight) == 2


def test_bases_are_at_most_as_many_as_relations() -> None:
    for name in ("rgcn", "rgat"):
        assert GRAPH_LAYERS[name](Site(8, 4, 4, "relu", 3), bases=9).mix.shape == (3, 3)


def test_initial_residuals_come_between_plain_convolutions() -> None:
    at = GRAPH_LAYERS["gcnii"]
    kinds = [type(at(Site(4, 4, 4, "relu", number=number, last=number == 2))) for number in range(3)]
    assert kinds == [GCN, GCNII, GCN]
    assert at(Site(4, 4, 4, "relu", number=1), decay=9.0).beta == 1.0
