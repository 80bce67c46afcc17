"""Modules that take (x, edge_index, ...) are called as models are: model(graph, x, ...)."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import edgewise
from edgewise.errors import ConfigError, EdgewiseError, ExplanationError
from edgewise.graphs import Graph, complete
from edgewise.models.edge_index import on_graphs

PATH = Graph.from_edge_index([[1, 0, 1], [2, 1, 0]], num_nodes=3)


class Reading(nn.Module):
    """Its inputs, as they come."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Any = None, batch: Any = None) -> Any:
        return x, edge_index, edge_attr, batch


class Strange(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor, hops: int) -> Tensor:
        return x


class Sum(nn.Module):
    """Σ_j x_j over the edges, of which gates know nothing."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


def test_what_a_forward_names_is_what_it_gets() -> None:
    model, x, e = on_graphs(Reading()), torch.randn(3, 2), torch.randn(3, 4)
    assert model(PATH, x)[2] is None and model(PATH, x)[3].tolist() == [0, 0, 0]
    given = model(PATH, x, e)
    assert given[0] is x and given[2] is e and given[1].equal(PATH.edge_index()) and given[1] is model(PATH, x)[1]
    pair = Graph.batch([complete(1), complete(2)])
    assert model(pair, x)[3].tolist() == [0, 1, 1]
    assert on_graphs(nn.Bilinear(1, 1, 1)).__class__ is nn.Bilinear


def test_what_a_graph_does_not_have_is_named() -> None:
    with pytest.raises(ConfigError, match=r"Strange.forward takes 'hops': of a graph it can be given x, edge_index"):
        on_graphs(Strange())
    with pytest.raises(ConfigError, match="Sum reads no features of edges, and this task has some: let its forward"):
        on_graphs(Sum())(PATH, torch.ones(3, 1), torch.ones(3, 1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_named() -> None:
    scripted = torch.jit.script(nn.Linear(2, 2))
    for call in (on_graphs, lambda model: edgewise.explain(model, PATH, torch.ones(3, 2), (0, 0))):
        with pytest.raises(ConfigError, match="Linear is scripted, and takes tensors alone: give the module"):
            call(scripted)


class OfData(nn.Module):
    """As in PyTorch Geometric's own examples."""

    def forward(self, data: Any) -> Tensor:
        return data.x


class OtherNames(nn.Module):
    """Takes tensors, by names that say nothing."""

    def forward(self, features: Tensor, ends: Tensor) -> Tensor:
        return torch.zeros(features.size(0)).index_add(0, ends[1], features[ends[0], 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda model: edgewise.explain(model, PATH, torch.ones(3, 2), (0, 0)),
        lambda model: edgewise.export(model, (PATH, torch.ones(3, 2)), "pt2"),
    ],
    ids=["explain", "export"],
)
def test_modules_that_are_called_otherwise_are_told_how(call: Any) -> None:
    with pytest.raises(EdgewiseError, match=r"OfData is called model\(graph, x\), and its forward takes .*edge_index"):
        call(OfData())
    with pytest.raises(EdgewiseError, match="a module gets x and edge_index where its forward calls them so"):
        call(OtherNames())


def test_explanations_need_layers_that_are_gated() -> None:
    with pytest.raises(ExplanationError, match=r"reads its edge_index by layers .* edgewise.convert\(model\)"):
        edgewise.explain(Sum(), PATH, torch.ones(3, 1), (2, 0))


def test_a_converted_module_is_explained() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    x, layer = torch.randn(3, 2), edgewise.convert(pyg.SAGEConv(2, 2))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = layer

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index)

    why = edgewise.explain(Net(), PATH, x, (2, 0), "leave-one-out")
    without = PATH.keep_edges(~((PATH.senders == 1) & (PATH.receivers == 2)))
    fall = layer(x, PATH.edge_index())[2, 0] - layer(x, without.edge_index())[2, 0]
    assert why.edges is not None
    assert why.edges.tolist() == pytest.approx([0.0, 0.0, fall.item()], abs=1e-6)
