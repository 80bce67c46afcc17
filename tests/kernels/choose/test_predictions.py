"""What the planner predicts of every backend on the assumed machine, or why one refuses, for calls of each kind.

Predictions are sums of counted operations and bytes; a term that is lost changes choices without any error.
"""

import pytest
import torch

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    Gaussian,
    Graph,
    Kernel,
    Uniform,
    blocks,
    causal,
    complete,
    plan,
    plans,
    window,
)
from edgewise.kernels import Plan
from edgewise.kernels.backends.cpu import tiled
from edgewise.layers import EGNN, TFN, AttentionEGNN, SchNet
from recorded import check_recorded, shown

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="kernels for GPUs are predicted for their interpreter"
)


@pytest.fixture(autouse=True)
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many pairs lie in tiles depends on how wide the machine's vectors are: here they hold edges alone."""
    monkeypatch.setattr(tiled, "pairs_of", lambda graph: graph.num_edges)


NODES = 400
RANDOM = Graph.from_edge_index(torch.randint(NODES, (2, 3000), generator=torch.Generator().manual_seed(0)), NODES)
GRAPHS = {
    "random": RANDOM,
    "complete": complete(NODES),
    "causal": causal(NODES),
    "window": window(NODES, 5),
    "blocks": blocks([40, 7, 353]),
    "tiles": blocks([64] * 6 + [16]),
}
VERBS = ("aggregate", "collect")
SCORES = [Dot(), Dot(cap=5.0), Dot() + EdgeBias(torch.zeros(3000, 4)), Additive(), Gaussian(), Uniform()]
NETWORKS = [(EGNN(16, 16), (16,), (3,)), (AttentionEGNN(16, 16), (16,), (3,)), (SchNet(16, 16), (16,), (3,))]
NETWORKS += [(TFN(8), (4, 8), (3,))]


def lines(made: Plan) -> list[str]:
    rows = [
        f"    {one.backend} {one.refusal or shown(one.seconds * 1e6)}{' by name' * one.by_name}"
        for one in made.candidates
    ]
    return [made.what, *sorted(rows)]


@pytest.mark.parametrize("name", GRAPHS)
def test_the_predictions_for_a_graph_are_those_on_record(name: str) -> None:
    graph = GRAPHS[name]
    scores = [score for score in [*SCORES, Kernel(torch.exp)] if not score.biases or graph is RANDOM]
    made = [plan(graph, score, heads=4, channels=16) for score in scores]
    made += [plan(graph, Dot(), heads=2, channels=100, batch=(3,), dtype=torch.float64)]
    made += [plan(graph, verb=verb, reduce=reduce, channels=48) for verb in VERBS for reduce in ("sum", "max")]
    check_recorded(f"predictions/{name}", (line for one in made for line in lines(one)))


def test_the_predictions_for_messages_are_those_on_record() -> None:
    with plans() as made:
        for layer, *shapes in NETWORKS:
            layer(RANDOM, *(torch.zeros(NODES, *shape) for shape in shapes))
    check_recorded("predictions/messages", (line for one in made for line in lines(one)))
