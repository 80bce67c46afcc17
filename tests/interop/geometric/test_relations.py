"""Twins of layers for edges of several types, over their options."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

import edgewise
from edgewise.interop import convert
from edgewise.layers.relational.types import grouped
from interop.geometric.parity import check, graphs
from pretend import CARD, Card

pyg = pytest.importorskip("torch_geometric.nn")


@pytest.fixture(params=graphs().items(), ids=lambda item: item[0])
def graph(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(3)
    return request.param[1]


@pytest.mark.parametrize("kind", ["RGCNConv", "FastRGCNConv"])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_bases": 2}, {"num_blocks": 2}, {"aggr": "add"}, {"root_weight": False}, {"bias": False}],
)
@pytest.mark.parametrize("relations", [1, 3, 40])
def test_rgcn(graph: Any, kind: str, options: Any, relations: int) -> None:
    edge_index, nodes = graph
    types = torch.randint(0, relations, (edge_index.shape[1],))
    layer = getattr(pyg, kind)(6, 4, relations, **options)
    check(layer, torch.randn(nodes, 6), edge_index, types)


@pytest.mark.parametrize("kind", ["RGCNConv", "FastRGCNConv"])
@pytest.mark.parametrize("options", [{}, {"num_bases": 2}])
def test_rgcn_of_nodes_without_features(kind: str, options: Any) -> None:
    edge_index, types = torch.randint(0, 9, (2, 30)), torch.randint(0, 3, (30,))
    layer = getattr(pyg, kind)(9, 4, 3, **options)
    check(layer, None, edge_index, types)
    check(layer, torch.arange(9), edge_index, types)


def test_rgcn_of_few_pairs_writes_no_row_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def noted(x: Tensor, W: Tensor, counts: tuple[int, ...]) -> Tensor:
        sizes.append(len(x))
        return grouped(x, W, counts)

    monkeypatch.setattr("edgewise.interop.geometric.relations.grouped", noted)
    edge_index, types = torch.randint(0, 50, (2, 300)), torch.randint(0, 40, (300,))
    check(pyg.RGCNConv(6, 4, 40), torch.randn(50, 6), edge_index, types)
    pairs = len({*zip(types.tolist(), edge_index[0].tolist(), strict=True)})
    assert set(sizes) == {pairs} and pairs < 300


def test_hgt() -> None:
    kinds = [("author", "writes", "paper"), ("paper", "by", "author"), ("paper", "in", "venue")]
    x = {"author": torch.randn(5, 8), "paper": torch.randn(7, 6), "venue": torch.randn(2, 8)}
    edges = {kind: torch.randint(0, 2, (2, 11)) for kind in kinds}
    layer = pyg.HGTConv({name: value.shape[1] for name, value in x.items()}, 8, (list(x), kinds), heads=2)
    for prior in layer.p_rel.values():
        torch.nn.init.normal_(prior)
    check(layer, x, edges)


def test_hooks_of_the_maps_of_relations_are_called() -> None:
    kind, seen = ("a", "to", "a"), list[int]()
    layer = edgewise.convert(pyg.HGTConv(4, 4, (["a"], [kind])))
    layer.k_rel.register_forward_hook(lambda *_: seen.append(1))
    layer({"a": torch.randn(3, 4)}, {kind: torch.tensor([[0, 1], [1, 2]])})
    assert seen == [1]


def test_hgt_on_a_card() -> None:
    kinds = [("author", "writes", "paper"), ("paper", "by", "author")]
    layer = edgewise.convert(pyg.HGTConv(8, 8, (["author", "paper"], kinds), heads=2))
    x = {"author": torch.randn(5, 8), "paper": torch.randn(7, 8)}
    edges = {kind: torch.randint(5, (2, 11)) for kind in kinds}
    right = layer(x, edges)
    with Card():
        layer.to("cuda")
        y = layer({kind: t.to("cuda") for kind, t in x.items()}, {kind: t.to("cuda") for kind, t in edges.items()})
        for kind, t in y.items():
            assert t.device == CARD
            torch.testing.assert_close(t.to("cpu"), right[kind])


@pytest.mark.parametrize("kind", ["RGCNConv", "FastRGCNConv"])
@pytest.mark.parametrize("nodes", [2, 5])
def test_rgcn_of_an_axis_in_front_is_left_to_pytorch_geometric(kind: str, nodes: int) -> None:
    """Which takes the first axis for the nodes, and refuses most of such features."""
    theirs, edges, types = getattr(pyg, kind)(6, 4, 3), torch.randint(0, 2, (2, 5)), torch.zeros(5, dtype=torch.int64)
    ours, seen = convert(deepcopy(theirs)), []
    for layer in (theirs, ours):
        try:
            seen.append(layer(torch.ones(2, nodes, 6), edges, types))
        except RuntimeError as error:
            seen.append(type(error))
    assert seen[0] is seen[1] if isinstance(seen[0], type) else torch.equal(*seen)
