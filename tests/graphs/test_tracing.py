import copy

import pytest
import torch

from edgewise import Graph, GraphError, aggregate, collect, radius_graph
from edgewise.graphs.tracing import constant, is_real, is_traced, is_transformed, untransformed
from edgewise.kernels import ends

N = 12


def test_transforms_are_noticed_while_they_last():
    noticed = []

    def look(x):
        noticed.append((is_transformed(), is_traced(), is_real(x)))
        with untransformed(()):
            noticed.append((is_transformed(), is_traced(), is_real(torch.ones(1))))
        return x.sum()

    torch.func.grad(look)(torch.ones(2))
    torch.func.vmap(look)(torch.ones(2, 2))
    look(torch.ones(2))
    inside, outside = (True, True, False), (False, False, True)
    assert noticed == [inside, outside, inside, outside, outside, outside]


def test_a_graph_built_inside_a_transform_is_a_plain_graph():
    made = []

    def stretched(x):
        made.append(radius_graph(x, 2.0))
        d = x[made[-1].senders] - x[made[-1].receivers]
        return collect(made[-1], (d * d).sum(-1, keepdim=True)).sum()

    x = torch.randn(N, 3, dtype=torch.float64)
    found = torch.func.grad(stretched)(x)
    leaf = x.clone().requires_grad_()
    stretched(leaf).backward()
    torch.testing.assert_close(found, leaf.grad)
    assert made[0].senders.tolist() == made[1].senders.tolist()
    assert made[0].transpose()[0].senders.tolist() == made[1].transpose()[0].senders.tolist()


MADE = {
    "batch": lambda: Graph.batch([Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], 3) for _ in range(2)]),
    "symmetrise": lambda: Graph.from_edge_index([[0, 1], [1, 5]], 6).symmetrise(),
    "coalesce": lambda: Graph.from_edge_index([[0, 0, 2], [1, 1, 5]], 6).coalesce(),
    "subgraph": lambda: Graph.from_edge_index([[0, 6], [1, 5]], 7).subgraph(range(6)),
    "from_csr": lambda: Graph.from_csr([0, 1, 2, 2, 2, 2, 2], [1, 0], 6),
    "deepcopy": lambda: copy.deepcopy(Graph.from_edge_index([[0, 1], [1, 5]], 6)),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_graph_that_inference_mode_has_made_can_be_trained_on(make):
    with torch.inference_mode():
        graph = make()
        graph.receivers, graph.sizes, graph.transpose()
    x = torch.randn(6, 2, requires_grad=True)
    sum(end.square().sum() for end in ends(graph, x)).backward()
    assert x.grad is not None and not any(
        value.is_inference() for value in vars(graph).values() if isinstance(value, torch.Tensor)
    )


def test_vmap_over_a_graph_is_refused_with_what_would_be_right():
    with pytest.raises(GraphError, match=r"vmap cannot batch a graph.*Graph\.batch joins several"):
        torch.func.vmap(lambda e: aggregate(Graph.from_csr(e, e[:0], 3), torch.ones(3, 1)))(torch.zeros(2, 4).long())


def test_a_constant_that_is_traced_first_has_numbers_and_is_made_once():
    made = []

    @constant
    def powers(most, dtype):
        made.append(most)
        return 2 ** torch.arange(most, dtype=dtype)

    class Scaled(torch.nn.Module):
        def forward(self, x):
            return x * powers(len(x), x.dtype)

    x = torch.ones(3)
    exported = torch.export.export(Scaled(), (x,), strict=False)
    assert exported.module()(x).tolist() == [1, 2, 4]
    assert torch.vmap(Scaled())(torch.ones(2, 4)).tolist() == [[1, 2, 4, 8]] * 2
    assert powers(3, x.dtype).tolist() == [1, 2, 4]
    assert powers(4, x.dtype).tolist() == [1, 2, 4, 8]
    assert made == [3, 4]
