"""A backend as a record: one line in a table is planned, refused and run; what it cannot do follows from its data."""

from dataclasses import replace

import pytest
import torch

from edgewise import (
    Additive,
    BackendRefusal,
    Dot,
    EdgeBias,
    EdgeVectors,
    Graph,
    SenderBias,
    aggregate,
    attend,
    blocks,
    causal,
    collect,
    complete,
    plan,
    use_backend,
)
from edgewise.kernels import BACKENDS, EdgeNetwork, Filter, Message
from edgewise.kernels.backend import (
    BLOCKS,
    CAUSAL,
    COMPLETE,
    Attention,
    Backend,
    Cost,
    Messages,
    Need,
    Networks,
    Sums,
    Takes,
)
from edgewise.kernels.backends.torch import segment
from edgewise.kernels.call import Aggregate, Attend, Collect
from edgewise.kernels.planning.planner import candidates

RING = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
TAKES = Takes(
    dtypes=(torch.float32,),
    attend=Attention(scores=(Dot,), biases=(SenderBias,), dropout=False, least=2, most=8),
    aggregate=Sums(reductions=("sum", "mean"), weighted=(0, 1)),
)


def swift(**fields):
    """`segment` by another name, free of cost, with a few limits."""
    given = {"takes": TAKES, "cost": lambda call: Cost(), "run": segment.run} | fields
    return Backend(name="swift", summary="A record of a test", **given)


def attention(*, graph=RING, score=None, channels=4, dtype=torch.float32, **options):
    score = Dot() if score is None else score
    q, k, v = torch.zeros(3, graph.num_senders, 2, score.end_width or channels, dtype=dtype)
    v = v.new_zeros(graph.num_senders, 2, channels)
    return Attend(graph, *((q, k) if score.needs_ends else (None, None)), v, score, **options)


def product(weight=None, reduce="sum"):
    return Aggregate(RING, torch.zeros((3, 4) if weight is None or weight.ndim == 1 else (3, 2, 4)), weight, reduce)


def test_one_record_is_planned_run_and_refused_like_every_other(monkeypatch):
    monkeypatch.setitem(BACKENDS, "swift", swift())
    x = torch.randn(3, 2, 4)
    made = plan(RING, heads=2, channels=4)
    assert made.choice == "swift" and made.candidates[0].seconds == 0
    graph = Graph.from_edge_index(RING.edge_index(), 3)
    assert torch.equal(attend(graph, x, x, x), attend(graph, x, x, x, backend="segment"))
    with use_backend("swift"):
        assert torch.equal(aggregate(graph, x[:, 0]), aggregate(graph, x[:, 0], backend="segment"))
        with pytest.raises(BackendRefusal, match="backend 'swift' cannot run this call: it has no soft cap"):
            attend(graph, x, x, x, Dot(cap=2.0))
        with pytest.raises(BackendRefusal, match="it runs attend and aggregate, not collect"):
            collect(graph, x[:, 0])
    refused = {one.backend: one.refusal for one in candidates(Collect(graph, x[:, 0], "sum"))}
    assert refused["swift"] == "it runs attend and aggregate, not collect"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (attention(), None),
        (attention(score=Dot() + SenderBias(torch.zeros(3, 2))), None),
        (attention(score=Additive()), "it has no Additive score: it takes Dot"),
        (attention(score=Dot(cap=2.0)), "it has no soft cap"),
        (attention(score=Dot() + EdgeBias(torch.zeros(3, 2))), "it adds no EdgeBias: it takes SenderBias"),
        (
            attention(score=Dot() + EdgeVectors(torch.zeros(3, 2, 4))),
            "it adds no vectors of edges to keys and values",
        ),
        (attention(dropout=0.1), "it has no dropout"),
        (attention(return_weights=True), "it does not return its weights"),
        (attention(channels=1), "a head has 1 channels, fewer than 2"),
        (attention(channels=9), "a head has 9 channels, more than 8"),
        (attention(dtype=torch.float64), "its kernels compute in float32, not in torch.float64"),
        (product(), None),
        (product(torch.ones(3)), None),
        (product(reduce="max"), "it has no max: it takes sum and mean"),
        (product(torch.ones(3, 2)), "it takes no weights for each head"),
        (product(torch.ones(3).double()), "weights in torch.float64 do not fit features in torch.float32"),
        (Collect(RING, torch.zeros(3, 4), "sum"), "it runs attend and aggregate, not collect"),
    ],
)
def test_a_refusal_follows_from_the_data(call, reason):
    assert swift().refusal(call) == reason


def test_limits_of_size_and_kind_are_data_too():
    def refusal(call, **takes):
        return swift(takes=replace(TAKES, **takes)).refusal(call)

    assert refusal(attention(), nodes=2) == "it numbers nodes in 32 bits, and there are more than 2"
    assert refusal(attention(), edges=2) == "it numbers edges in 32 bits, and there are more than 2"
    twice = attention(graph=Graph.from_edge_index([[0, 0, 1], [1, 1, 0]], 2))
    assert refusal(twice) is None
    assert refusal(twice, parallel=False) == "the graph has parallel edges, which it cannot count"
    narrow = Attention(scores=(Dot,), head_bytes=32)
    assert refusal(attention(channels=8), attend=narrow) is None
    assert refusal(attention(channels=9), attend=narrow) == "a head has 9 channels in torch.float32, more than 8"
    summed = Messages(reductions=("sum",))
    one = Collect(RING, torch.zeros(3, 4), "sum")
    assert refusal(one, collect=(summed,)) is None
    assert refusal(replace(one, reduce="max"), collect=(summed,)) == "it has no max: it takes sum"
    other = replace(summed, kind=int)
    assert refusal(one, collect=(other,)) == "it collects no Tensor: it takes int"
    assert refusal(product(torch.ones(3)), aggregate=Sums(weighted=(0,))) == "it takes no weights"
    chosen = Attention(scores=(Dot,), graphs=(COMPLETE, CAUSAL, BLOCKS))
    said = "it runs on complete graphs, causal graphs and batches of complete graphs only"
    assert refusal(attention(), attend=chosen) == said
    for graph in (complete(3), causal(3), blocks([2, 1])):
        assert refusal(attention(graph=graph), attend=chosen) is None


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        (Networks(), None),
        (Networks(activations=(torch.relu,)), "its networks have no tanh: they take relu"),
        (Networks(maps=1), "its networks have at most 1 linear maps"),
        (Networks(gate=False), "its networks have no gate"),
        (Networks(dropout=False), "its networks have no dropout"),
        (Networks(batched=False), "its networks have no leading batch"),
        (Networks(dtypes=(torch.float64,)), "its kernels compute in float64, not in torch.float32"),
    ],
)
def test_networks_of_messages_are_refused_by_data_too(taken, reason):
    maps, x = ((torch.zeros(4, 4), None),), torch.zeros(2, 3, 4)
    network = EdgeNetwork(maps, torch.tanh, senders=x, gate=(torch.zeros(1, 4), None), dropout=0.5, activated=True)
    backend = swift(takes=replace(TAKES, collect=(Messages(Message, networks=taken),)))
    for message in (network, Filter(network, x)):
        assert backend.refusal(Collect(RING, message, "sum")) == reason


def test_what_it_needs_is_named_last_and_warned_of_where_it_would_have_been_the_fastest(monkeypatch):
    warned = []
    need = Need(lambda: False, "install swift", warn=lambda: warned.append(1))
    monkeypatch.setitem(BACKENDS, "swift", swift(need=need))
    assert swift(need=need).refusal(attention(score=Dot(cap=1.0))) == "it has no soft cap"
    assert swift(need=need).refusal(attention()) == "install swift"
    x = torch.zeros(3, 1, 4)
    attend(Graph.from_edge_index(RING.edge_index(), 3), x, x, x, Dot(cap=1.0))
    assert not warned
    attend(Graph.from_edge_index(RING.edge_index(), 3), x, x, x)
    assert warned


def test_where_it_runs_and_where_it_is_chosen_are_two_things(monkeypatch):
    elsewhere = swift(devices=("cuda",))
    assert elsewhere.refusal(attention()) == "its kernels run on NVIDIA GPUs, not on cpu"
    monkeypatch.setitem(BACKENDS, "swift", replace(elsewhere, by_name=("cpu",)))
    x = torch.zeros(3, 1, 4)
    names = [one.backend for one in plan(RING, heads=1, channels=4).candidates if one.refusal is None]
    assert names.index("segment") < names.index("swift")
    assert attend(RING, x, x, x, backend="swift").shape == x.shape


def test_only_the_oracle_takes_calls_as_they_are_given():
    assert [name for name, backend in BACKENDS.items() if not backend.lowered] == ["reference"]
    assert [name for name, backend in BACKENDS.items() if not backend.is_chosen_on("cpu")] == [
        "flex", "ragged", "bitmap", "triton", "reference",
    ]  # fmt: skip
    assert all(name == backend.name and backend.summary for name, backend in BACKENDS.items())
