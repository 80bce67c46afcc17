"""Every method on every family: scores of the right shapes, the model unchanged; and what is refused."""

from itertools import cycle
from typing import Any

import pytest
import torch

from edgewise import EXPLANATIONS, ExplanationError, Graph, explain, fidelity
from edgewise.layers import GAT
from explanations.families import FAMILIES, family

METHODS = ("gradient", "learned-mask", "leave-one-out")


@pytest.mark.parametrize(("name", "method"), list(zip(FAMILIES, cycle(METHODS))))
def test_a_method_scores_edges_and_nodes_of_every_family(name: str, method: str) -> None:
    model, inputs, index = family(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    why = explain(model, *inputs, index, method, baseline=None if name == "potential" else 0.0)
    if why.edges is not None:
        assert why.edges.shape == (why.graph.num_edges,) and bool(why.edges.isfinite().all())
        assert not why.edges.requires_grad
    assert bool(why.nodes.isfinite().all()) and not why.nodes.requires_grad
    assert why.nodes.shape == (why.explained.num_nodes,)
    assert why.signed == EXPLANATIONS[method].signed
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("method", "context"), list(zip(EXPLANATIONS, cycle([torch.no_grad, torch.inference_mode]))))
def test_a_context_without_gradients_changes_nothing(method: str, context: Any) -> None:
    model, (graph, x), index = family("gnn gat")
    right = explain(model, graph, x, index, method)
    with context():
        why = explain(
            model, Graph.from_edge_index(torch.stack([graph.senders, graph.receivers]), 5), x + 0, index, method
        )
        assert why.edges is not None and right.edges is not None
        torch.testing.assert_close((why.edges, why.nodes), (right.edges, right.nodes))


@pytest.mark.parametrize(("method", "size"), list(zip(EXPLANATIONS, cycle([5, 80]))))
def test_all_is_made_on_the_device_of_the_inputs(method: str, size: int) -> None:
    nodes = torch.arange(size)
    ring = Graph.from_edge_index(torch.stack([nodes, (nodes + 1) % size]), size).add_self_loops()
    layer, x = GAT(4, 2, heads=1), torch.randn(size, 4)
    right = explain(layer, ring, x, (3, 1), method)
    with torch.device("meta"):  # of what names no device
        why = explain(layer, ring, x, (3, 1), method)
        area = fidelity(why).method.area if method == "gradient" else None
    assert why.edges is not None and right.edges is not None
    torch.testing.assert_close((why.edges, why.nodes), (right.edges, right.nodes))
    assert area is None or area == fidelity(right).method.area


def test_an_unknown_method_names_the_nearest() -> None:
    model, inputs, index = family("gnn gcn")
    with pytest.raises(ExplanationError, match="did you mean 'rollout'"):
        explain(model, *inputs, index, "rolout")


def test_a_node_without_a_baseline_has_half_of_its_edges() -> None:
    model, inputs, index = family("gnn gcn")
    why = explain(model, *inputs, index, "gradient", baseline=None)
    assert why.edges is not None
    assert float(why.nodes.sum()) == pytest.approx(float(why.edges.sum()), abs=1e-6)


def test_a_model_of_which_nothing_can_be_left_out_is_refused() -> None:
    model, inputs, index = family("deep sets")
    with pytest.raises(ExplanationError, match="nothing to leave out"):
        explain(model, *inputs, index, baseline=None)
