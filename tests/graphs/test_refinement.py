"""Refinement by hashes, against dictionaries of sorted tuples, which cannot collide."""

import networkx
import pytest
import torch

from edgewise import Graph, GraphError, ShapeError, complete
from edgewise.graphs.refinement import refine, refined_pairs, refinement_classes


def by_dictionary(key_of, count):
    """Refine until stable; the names of colours are their keys, numbered anew in each round."""
    colors, classes = [0] * count, 0
    while len(set(colors)) != classes:
        classes = len(set(colors))
        keys = [key_of(colors, number) for number in range(count)]
        names = {key: name for name, key in enumerate(sorted(set(keys)))}
        colors = [names[key] for key in keys]
    return colors


def same_partition(a, b):
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


def random_graph(seed, nodes=12):
    return Graph.from_networkx(networkx.gnp_random_graph(nodes, 0.2, seed=seed, directed=seed % 2 == 1))


@pytest.mark.parametrize("seed", range(6))
def test_1_wl_is_that_of_dictionaries(seed):
    graph = Graph.batch([random_graph(seed), random_graph(seed + 100), complete(3)])
    start = torch.randint(2, (graph.num_receivers,), generator=torch.Generator().manual_seed(seed))
    senders, offsets = graph.senders.tolist(), graph.offsets.tolist()

    def key(colors, i):
        return start[i].item(), colors[i], tuple(sorted(colors[j] for j in senders[offsets[i] : offsets[i + 1]]))

    assert same_partition(refine(graph, start).tolist(), by_dictionary(key, graph.num_receivers))


@pytest.mark.parametrize("seed", range(3))
def test_2_wl_is_that_of_dictionaries(seed):
    graph = random_graph(seed, 7)
    n, edge = 7, graph.multiplicity().tolist()

    def key(colors, pair):
        i, j = divmod(pair, n)
        through = tuple(sorted((colors[i * n + w], colors[w * n + j]) for w in range(n)))
        return i == j, edge[i][j], edge[j][i], colors[pair], through

    assert same_partition(refined_pairs([graph])[0].flatten().tolist(), by_dictionary(key, n * n))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_relabelling_never_tells_apart(order, seed):
    graph = random_graph(seed)
    copies = [graph.permute(torch.randperm(12)) for _ in range(20)]
    assert refinement_classes([graph, *copies], order).tolist() == [0] * 21


def test_trees_are_told_apart_exactly_where_they_are_not_isomorphic():
    """1-WL is complete for trees (Arvind et al., 2015)."""
    trees = list(networkx.nonisomorphic_trees(8))
    labels = refinement_classes([Graph.from_networkx(tree) for tree in trees])
    assert len(labels.unique()) == len(trees) == 23


def test_colours_and_rounds_count():
    star = Graph.from_edge_index([[1, 2, 3, 0, 0, 0], [0, 0, 0, 1, 2, 3]], num_nodes=4)
    assert len(refine(star, rounds=0).unique()) == 1
    assert len(refine(star, torch.tensor([0, 0, 0, 1])).unique()) == 3
    assert refinement_classes(
        [star, star], colors=[torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 0])]
    ).tolist() == [0, 0]
    assert (
        len(refinement_classes([star, star], colors=[torch.tensor([0, 0, 0, 1]), torch.tensor([1, 0, 0, 0])]).unique())
        == 2
    )
    assert len(refinement_classes([complete(2), complete(3)]).unique()) == 2


def test_what_cannot_be_refined_is_refused():
    with pytest.raises(GraphError):
        refine(complete(2, 3))
    with pytest.raises(ShapeError, match="3 integers"):
        refine(complete(3), torch.zeros(3))
    with pytest.raises(GraphError, match="order 1 or 2"):
        refinement_classes([complete(2)], 3)
