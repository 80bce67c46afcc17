"""What contexts list of calls, and draw of attention; what they change of the process is undone, in any order."""

import itertools

import pytest
import torch

from edgewise import Graph, attend, causal, draw_attention, plan, plans, record
from edgewise.errors import ShapeError
from edgewise.kernels import Recorded
from edgewise.kernels.gates import gated
from edgewise.kernels.planning.recording import Overlapping

EDGES = Graph.from_edge_index([[0, 2, 2, 1], [1, 1, 1, 2]], num_nodes=3)


def recorded(*batch: int) -> Recorded:
    q = torch.randn(*batch, 3, 2, 4)
    with record() as seen:
        attend(EDGES, q, q, q)
    return seen[0]


@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_the_matrix_has_the_weights_in_their_places_and_sums_parallel_edges(batch: tuple[int, ...]) -> None:
    call = recorded(*batch)
    matrix = call.matrix()
    assert matrix.shape == (*batch, 2, 3, 3)
    torch.testing.assert_close(matrix.sum(-1), torch.tensor([0.0, 1.0, 1.0]).expand(*batch, 2, 3))
    torch.testing.assert_close(matrix[..., 1, 2], call.weights[..., 1, :] + call.weights[..., 2, :])
    assert bool((matrix[..., 0, :] == 0).all())


def test_a_drawing_has_labels_and_heads() -> None:
    weights = torch.tensor([[1.0, 0.5], [0.25, 0.0], [0.75, 1.0]])
    call = Recorded(causal(2), weights)
    assert draw_attention(call, head=0).splitlines() == ["@", ":#"]
    assert draw_attention(call, ["a", "bcd"], head=1).splitlines() == ["a   +", "bcd  @"]
    assert draw_attention(Recorded(causal(2), weights.expand(4, 3, 2)), head=0) == draw_attention(call, head=0)
    with pytest.raises(ShapeError, match="3 labels, but 2 receivers"):
        draw_attention(call, ["a", "b", "c"])
    with pytest.raises(ShapeError, match="no head 2: the call has 2"):
        draw_attention(call, head=2)


def test_what_a_notebook_shows() -> None:
    assert causal(3)._repr_html_().count("<rect x=") == 6
    assert "&lt;" not in causal(3)._repr_html_()
    assert causal(65)._repr_html_() == f"<code>{causal(65)!r}</code>"
    assert "<svg" not in causal(0)._repr_html_()
    assert recorded(4)._repr_html_().count("<rect x=") >= 3
    assert plan(causal(8))._repr_html_().startswith("<pre>Graph(8 receivers")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_last_that_remains_decides(order: tuple[int, ...]) -> None:
    setting = ["before"]

    def exchange(value: str) -> str:
        setting.append(value)
        return setting.pop(0)

    overlapping = Overlapping(exchange)
    contexts = [overlapping.holding(name) for name in "abc"]
    for context in contexts:
        context.__enter__()
    assert setting == ["c"]
    left = set("abc")
    for number in order:
        contexts[number].__exit__(None, None, None)
        left.remove("abc"[number])
        assert setting == [max(left, default="before")]


@pytest.mark.parametrize("kinds", [(record, plans), (plans, lambda: gated(None))])
def test_compiled_functions_are_compiled_after_contexts_that_overlap(kinds) -> None:
    from torch._dynamo import eval_frame

    before = eval_frame._stance
    first, second = (kind() for kind in kinds)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert eval_frame._stance.stance == "force_eager"
    second.__exit__(None, None, None)
    assert eval_frame._stance == before
    with torch.compiler.set_stance("eager_on_recompile"), record():
        assert eval_frame._stance.stance == "force_eager"
    assert eval_frame._stance == before
