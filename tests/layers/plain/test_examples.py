"""The graph of examples has each kind of node on which a layer may go wrong."""

from edgewise.layers.plain.examples import example_graph, small_example
from edgewise.layers.plain.mlp import MLP


def test_the_graph_has_a_self_loop_an_isolated_node_and_edges_both_ways():
    graph = example_graph()
    mask = graph.dense_mask()
    assert mask.diagonal().tolist() == [False, False, False, True, False]
    assert (graph.in_degrees()[4], graph.out_degrees()[4]) == (0, 0)
    assert mask[:3, :3].sum() == 6


def test_a_small_example_fits_its_graph():
    layer, graph, (x,) = small_example(MLP([4, 2]), channels=4)
    assert isinstance(layer, MLP)
    assert x.shape == (graph.num_senders, 4)
