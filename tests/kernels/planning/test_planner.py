"""The planner's choices where they are beyond doubt, its table, and that a choice is made once."""

from dataclasses import replace
from unittest import mock

import pytest
import torch

from edgewise import (
    Additive,
    BackendRefusal,
    Dot,
    EdgeNetwork,
    EdgeVectors,
    GatedAdditive,
    Gaussian,
    Graph,
    Kernel,
    SenderBias,
    ShapeError,
    Uniform,
    aggregate,
    attend,
    causal,
    collect,
    complete,
    plan,
    plans,
    record_messages,
    window,
)
from edgewise.kernels import BACKENDS, EdgeInput
from edgewise.kernels.backends.torch import segment
from edgewise.kernels.call import Aggregate, Attend, Collect
from edgewise.kernels.planning import dispatch, planner
from edgewise.layers import EGNN, SchNet


def ring(n: int) -> Graph:
    nodes = torch.arange(n)
    return Graph.from_edge_index(torch.stack([nodes, (nodes + 1) % n]), n)


@pytest.mark.parametrize(
    ("graph", "score", "choice"),
    [
        (complete(1024), Dot(), "tiled"),
        (causal(32), Dot(), "tiled"),
        (complete(8), Dot(), "tiled"),
        (ring(20_000), Dot(), "native"),
        (window(8192, 64), Dot(), "tiled"),
        (window(8192, 4), Dot(), "native"),
        (complete(64), Additive(), "native"),
        (complete(4096), Kernel(torch.exp), "factored"),
        (ring(1000), Kernel(torch.exp), "segment"),
        (complete(64), Uniform(), "native"),
    ],
)
def test_the_cheapest_backend_wins(graph, score, choice):
    assert plan(graph, score, heads=4, channels=16).choice == choice


def test_a_plan_prints_candidates_times_and_refusals():
    text = str(plan(ring(20_000), Dot(cap=5.0), heads=4, channels=16))
    lines = text.splitlines()
    assert "20000 edges" in lines[0] and "Dot, 4 heads × 16" in lines[0]
    assert lines[1].startswith("→ segment") and " ms" in lines[1]
    assert {line.split()[0] for line in lines[2:]} == set(BACKENDS) - {"segment"}
    assert any("refuses" in line and "no soft cap" in line for line in lines)
    assert next(line for line in lines if "reference" in line).endswith("  runs only by name")


def test_predictions_are_ordered_and_computed_without_tensors():
    made = plan(complete(100_000), heads=8, channels=64)  # 10¹⁰ pairs: nothing may be computed
    seconds = [one.seconds for one in made.candidates if one.seconds is not None and not one.by_name]
    assert seconds == sorted(seconds) and seconds[0] > 0
    for verb in ("attend", "aggregate", "collect"):
        assert plan(causal(16), verb=verb, heads=2, channels=4).choice in BACKENDS


MAP = EdgeInput((torch.ones(6, 4), torch.ones(6)), torch.ones(45, 4))
OF_EDGES = EdgeVectors(torch.ones(45, 2, 3)), EdgeVectors(MAP)


@pytest.mark.parametrize(
    "score",
    [
        Additive(0.2, torch.ones(2, 3), torch.ones(2, 3)),
        *(Additive(0.2, torch.ones(2, 3), torch.ones(2, 3)) + vectors for vectors in OF_EDGES),
        *(Dot() + vectors for vectors in OF_EDGES),
        Gaussian(torch.ones(2)),
        Dot(scale=torch.ones(2)),
    ],
)
def test_a_score_with_vectors_or_numbers_of_heads_is_planned(score):
    graph, x = causal(9), torch.zeros(9, 2, 3)
    assert plan(graph, score, heads=2, channels=3).choice in BACKENDS
    assert attend(graph, x, x, x, score).shape == x.shape


def test_refusals_name_the_score_that_was_written_and_not_what_it_becomes():
    graph, x = causal(9), torch.randn(9, 2, 16)
    for score in (Gaussian(), Additive(0.2, torch.ones(2, 16), torch.ones(2, 16))):
        name = type(score).__name__
        with pytest.raises(BackendRefusal, match=f"'factored' cannot run this call: it has no {name} score: it takes"):
            attend(graph, x, x, x, score, backend="factored")
        reasons = {one.backend: one.refusal for one in plan(graph, score, heads=2, channels=16).candidates}
        assert f"no {name} score" in reasons["factored"]
        assert not any("SenderBias" in (reason or "") for reason in reasons.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verb": "atend"}, "no verb 'atend'"),
        ({"heads": 0}, "at least 1"),
        ({"verb": "aggregate", "reduce": "median"}, "unknown reduction"),
    ],
)
def test_impossible_plans_are_refused(options, message):
    with pytest.raises(ShapeError, match=message):
        plan(causal(4), **options)


def test_a_choice_is_made_once_per_graph_and_shape():
    graph = causal(8)
    x, wider = torch.randn(8, 2, 4), torch.randn(8, 2, 6)
    with mock.patch.object(dispatch, "cheapest", wraps=planner.cheapest) as asked:
        for q in (x, x, wider, wider):
            attend(graph, q, q, q)
    assert asked.call_count == 2


def test_choices_are_bounded(monkeypatch):
    monkeypatch.setattr(dispatch, "REMEMBERED", 3)
    graph, weight = causal(4), torch.ones(2, 2)
    for n in range(5):
        network = EdgeNetwork(((weight, None),), lambda z, n=n: z + n, senders=torch.zeros(4, 2))
        assert torch.equal(collect(graph, network, "max"), torch.full((4, 2), 2.0 * n))
    for nodes in range(4, 9):
        attend(graph, *[torch.zeros(nodes, 4, 1, 2)] * 3)
    for kind in (Collect, Attend):
        assert len(dispatch._choices(graph, kind, False)) == 3


@pytest.mark.parametrize("nodes", [4, 40, 400])
@pytest.mark.parametrize("twice", [False, True])
def test_the_choice_is_the_first_of_the_plan_whether_edges_are_parallel_or_not(nodes, twice):
    edges = torch.stack([torch.arange(nodes).repeat(4), torch.randint(nodes, (4 * nodes,))])
    edges = torch.cat([edges, edges[:, :1]], 1) if twice else edges.unique(dim=1)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(nodes, 2, 4, dtype=dtype)
        graph = Graph.from_edge_index(edges, nodes)
        for call in (
            Attend(graph, x, x, x, Dot()),
            Aggregate(graph, x[:, 0], None, "mean"),
            Aggregate(graph, x[:, 0], None, "max"),
        ):
            assert planner.cheapest(call) == planner.explain(call).choice
            assert planner.cheapest(call, isolating=True) in BACKENDS
            assert planner.at_sight(call) in (None, planner.cheapest(call))


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", ["dot", "cap", "additive", "gated", "kernel", "uniform"])
def test_no_score_nor_option_gathers_edges_where_matrices_are_obviously_faster(kind, biased, returned):
    nodes, heads, channels = 128, 2, 16
    x, one = torch.randn(nodes, heads, channels), torch.randn(nodes, heads, 1)
    ends, score = {
        "dot": ((x, x), Dot()),
        "cap": ((x, x), Dot(cap=30.0)),
        "additive": ((one, one), Additive()),
        "gated": ((x, x), GatedAdditive(torch.randn(heads, channels))),
        "kernel": ((x, x), Kernel(torch.exp)),
        "uniform": ((None, None), Uniform()),
    }[kind]
    score = score + SenderBias(torch.randn(nodes, heads)) if biased else score
    dense = (complete(nodes), causal(nodes), window(nodes, 16), Graph.from_mask(torch.rand(nodes, nodes) < 0.5))
    for graph in dense:
        choice = planner.cheapest(Attend(graph, *ends, x, score, return_weights=returned))
        if (kind, returned) == ("gated", True):  # for which matrices are gathered edges, of all pairs
            assert choice == "segment"
        else:
            assert choice in ("dense", "tiled", "native", "factored"), (graph, choice)
    graph = Graph.from_edge_index(torch.randint(5000, (2, 20_000)), 5000)
    sparse = Attend(graph, *[None if end is None else end.new_zeros(5000, *end.shape[1:]) for end in (*ends, x)], score)
    sparse = replace(sparse, score=replace(score, biases=()), return_weights=returned)
    by_kernel = kind in ("dot", "additive", "gated", "uniform") and not returned
    assert planner.cheapest(sparse) == ("native" if by_kernel else "segment")


@pytest.mark.parametrize("channels", [1, 8, 64, 256])
def test_what_is_chosen_at_sight_is_what_is_predicted_to_be_fastest(channels):
    seen = set()
    for nodes, degree in ((4, 1), (20, 3), (100, 4), (1000, 2), (1000, 8)):
        graph = Graph.from_edge_index(torch.randint(nodes, (2, nodes * degree)), nodes)
        x, weight = torch.randn(nodes, 1, channels), torch.rand(graph.num_edges)
        a = torch.randn(1, channels)
        calls = [Attend(graph, x, x, x, score) for score in (Dot(), GatedAdditive(a), Additive(0.2, a, a))]
        calls += [Aggregate(graph, x[:, 0], w, how) for w in (None, weight) for how in ("sum", "mean", "max")]
        calls += [Collect(graph, torch.randn(graph.num_edges, channels), how) for how in ("sum", "mean")]
        for call in [call.lowered() for call in calls]:
            seen.add(name := planner.at_sight(call))
            assert name in (None, planner.explain(call).choice), (nodes, degree, call)
    assert {"native", "segment"} <= seen


def test_a_graph_that_a_backend_takes_with_parallel_edges_is_not_searched_for_them():
    graph = Graph.from_edge_index(torch.randint(2000, (2, 20_000)), 2000)
    aggregate(graph, torch.randn(2000, 4), reduce="mean")
    assert "has_duplicates" not in vars(graph)


def test_a_backend_without_costs_is_timed(monkeypatch):
    plain = replace(segment.BACKEND, name="plain", cost=None)
    monkeypatch.setattr(planner, "BACKENDS", {"plain": plain, "reference": BACKENDS["reference"]})
    x, state = torch.randn(6, 2, 4), torch.get_rng_state()
    call = Attend(ring(6), x, x, x, Dot(), dropout=0.5)
    assert planner.cheapest(call) == "plain" and 0 < planner.explain(call).candidates[0].seconds < 10
    assert torch.equal(torch.get_rng_state(), state)
    assert planner.explain(Attend(ring(6), *[x.to("meta")] * 3, Dot())).candidates[0].seconds == float("inf")


def test_the_calls_of_a_layer_are_planned():
    graph = Graph.from_edge_index(torch.randint(200, (2, 3000), generator=torch.Generator().manual_seed(0)), 200)
    with plans() as made:
        EGNN(64, 64)(graph, torch.randn(200, 64), torch.randn(200, 3))
        SchNet(64, 64)(graph, torch.randn(200, 64), torch.randn(200, 3))
    assert [one.what.split(": ")[1] for one in made] == [
        "collect (mean), EdgeReadout 64 → 64 → 64 → 1, silu",
        "collect (sum), Filter, 64 channels, weights by a network 64 → 64, shifted_softplus",
    ]
    for one in made:
        reasons = {candidate.backend: candidate.refusal for candidate in one.candidates}
        assert one.choice == "native" and reasons["segment"] is None and reasons["reference"] is None
        assert all(reasons[name] for name in ("dense", "factored", "flex", "ragged", "tiled", "bitmap"))


def test_messages_are_recorded_as_attention_weights_are():
    graph, h, x = ring(8), torch.randn(8, 4), torch.randn(8, 3)
    layer = EGNN(4, 5)
    with record_messages() as seen:
        _, moved = layer(graph, h, x)
    ((m_ij, pull_ij),) = (one.messages for one in seen)
    assert m_ij.shape == (8, 5) and pull_ij.shape == (8, 3) and not m_ij.requires_grad
    assert torch.allclose(x + collect(graph, pull_ij, "mean"), moved, atol=1e-6)
