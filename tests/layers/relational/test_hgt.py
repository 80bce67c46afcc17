"""The heterogeneous graph transformer against PyTorch Geometric's, against its equation, and in its several forms."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from edgewise import Graph
from edgewise.errors import ConfigError, GraphError, ShapeError
from edgewise.graphs import Partition
from edgewise.layers import HGT, SparseFeatures
from layers.relational.typed import EDGES, NODES, RELATIONS, drawn

pyg = pytest.importorskip("torch_geometric.nn")
TYPES = {"author": 5, "paper": 7, "venue": 2}
LINKS = [("author", "writes", "paper"), ("paper", "by", "author"), ("paper", "in", "venue"), ("venue", "of", "paper")]


class Part(Partition):
    num_receivers, device = 0, torch.device("cpu")


def pair(inputs: int) -> tuple[HGT, Any, Any]:
    """A layer, its peer, and for each weight of the layer the peer's that are the same."""
    layer = HGT(inputs, 8, len(LINKS), len(TYPES), heads=2).double()
    peer = pyg.HGTConv(inputs, 8, (list(TYPES), LINKS), heads=2).double()
    torch.nn.init.normal_(layer.prior), torch.nn.init.normal_(layer.projection.bias)

    def shared(which: Any = lambda p: p) -> dict[str, torch.Tensor]:
        """The peer's weights, or their gradients, as the layer's are laid out."""
        k_rel, v_rel = (
            which(lin.weight).unflatten(0, (2, len(LINKS))).transpose(0, 1).transpose(-1, -2)
            for lin in (peer.k_rel, peer.v_rel)
        )
        found = {"attention": k_rel, "message": v_rel}
        found["prior"] = torch.cat([which(peer.p_rel["__".join(kind)]) for kind in LINKS])
        for own, theirs in (("projection", peer.kqv_lin), ("output", peer.out_lin)):
            for part in ("weight", "bias"):
                found[f"{own}.{part}"] = torch.stack([which(getattr(theirs.lins[kind], part)) for kind in TYPES])
        if layer.skip is not None:
            found["skip"] = torch.cat([which(peer.skip[kind]) for kind in TYPES])
        return found

    layer.load_state_dict({name: value.detach().clone() for name, value in shared().items()})
    for own in (layer.prior, layer.projection.bias):
        torch.nn.init.normal_(own)
    with torch.no_grad():
        for number, kind in enumerate(LINKS):
            peer.p_rel["__".join(kind)].copy_(layer.prior[number : number + 1])
        for number, kind in enumerate(TYPES):
            peer.kqv_lin.lins[kind].bias.copy_(layer.projection.bias[number])
    return layer, peer, shared


@pytest.mark.parametrize("inputs", [8, 6])
def test_outputs_and_gradients_are_those_of_pytorch_geometric(inputs: int) -> None:
    layer, peer, shared = pair(inputs)
    draw = torch.Generator().manual_seed(0)
    counts, first = list(TYPES.values()), {"author": 0, "paper": 5, "venue": 12}
    x = torch.randn(sum(counts), inputs, dtype=torch.float64, generator=draw)
    edges = {
        (a, r, b): torch.stack([torch.randint(TYPES[end], (9,), generator=draw) for end in (a, b)]) for a, r, b in LINKS
    }
    flat = torch.cat([index + torch.tensor([[first[a]], [first[b]]]) for (a, _, b), index in edges.items()], 1)
    graph = Graph.from_edge_index(flat, sum(counts))
    e = graph.sort_edges(torch.arange(len(LINKS)).repeat_interleave(9))
    types = torch.arange(3).repeat_interleave(torch.tensor(counts))
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = layer(graph, mine, e, types)
    right = torch.cat(list(peer(dict(zip(TYPES, theirs.split(counts), strict=True)), edges).values()))
    torch.testing.assert_close(y, right, rtol=1e-9, atol=1e-9)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (right * weight).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-6, atol=1e-9)
    found = shared(lambda p: p.grad)
    assert set(found) == {name for name, _ in layer.named_parameters()}
    for name, own in layer.named_parameters():
        torch.testing.assert_close(own.grad, found[name], rtol=1e-6, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


def made(seed: int) -> tuple[HGT, Graph, torch.Tensor, torch.Tensor, torch.Tensor]:
    index, kinds, x = drawn(seed)
    graph = Graph.from_edge_index(index, NODES)
    types = torch.randint(3, (NODES,), generator=torch.Generator().manual_seed(seed))
    layer = HGT(3, 4, RELATIONS, 3, heads=2).double()
    torch.nn.init.normal_(layer.prior)
    return layer, graph, x, graph.sort_edges(kinds), types


def test_nodes_in_any_order_are_the_equation() -> None:
    layer, graph, x, e, types = made(1)
    W, b = layer.projection.weight[types], layer.projection.bias[types]
    k, q, v = ((W @ x.unsqueeze(-1)).squeeze(-1) + b).unflatten(-1, (3, 2, 2)).unbind(1)
    h = torch.zeros(NODES, 2, 2, dtype=torch.float64)
    for i in range(NODES):
        edges = (graph.receivers == i).nonzero().flatten()
        r, j = e[edges], graph.senders[edges]
        keys = torch.einsum("nhdc,nhc->nhd", layer.attention[r], k[j])
        s = layer.prior[r] * (keys * q[i]).sum(-1) / 2**0.5
        values = torch.einsum("nhdc,nhc->nhd", layer.message[r], v[j])
        h[i] = (s.softmax(0).unsqueeze(-1) * values).sum(0)
    y = (layer.output.weight[types] @ functional.gelu(h.flatten(1)).unsqueeze(-1)).squeeze(-1)
    y = y + layer.output.bias[types]
    torch.testing.assert_close(layer(graph, x, e, types), y, rtol=1e-10, atol=1e-12)


def test_sparse_batched_and_of_two_sides() -> None:
    layer, graph, x, e, types = made(2)
    right = layer(graph, x, e, types)
    torch.testing.assert_close(layer(graph, (x, x), e, (types, types)), right)
    torch.testing.assert_close(layer(graph, torch.stack([x, x.flip(0)]), e, types)[0], right)
    rows = torch.eye(NODES, dtype=torch.float64)
    wide = HGT(NODES, 4, RELATIONS, 3).double()
    sparse = SparseFeatures(Graph.from_csr(torch.arange(NODES + 1), torch.arange(NODES), NODES), rows.diag())
    torch.testing.assert_close(wide(graph, sparse, e, types), wide(graph, rows, e, types))
    inner = graph.receivers < 5
    hop = Graph.from_edge_index(graph.edge_index()[:, inner], NODES, 5)
    gated = HGT(3, 3, RELATIONS, 3).double()
    for one in (layer, gated):
        whole = one(graph, x, e, types)
        torch.testing.assert_close(one(hop, x, e[inner], types), whole[:5])
        torch.testing.assert_close(one(hop, (x[:5], x), e[inner], (types[:5], types)), whole[:5])


def test_what_does_not_fit_is_said() -> None:
    layer, graph, x, e, types = made(4)
    with pytest.raises(ShapeError, match="this layer has 5 relations: hand over that of each edge"):
        layer(graph, x)
    with pytest.raises(ShapeError, match="this layer has 3 types of nodes: hand over that of each node"):
        layer(graph, x, e)
    with pytest.raises(ShapeError, match=r"types of senders are \[11\] of int64; expected \[12\] of int64"):
        layer(graph, x, e, types[1:])
    with pytest.raises(ShapeError, match="types of senders are 0 to 2, not 1 to 3"):
        layer(graph, x, e, torch.ones_like(types) + 2 * (types == 2))
    with pytest.raises(ShapeError, match="types of nodes are a pair"):
        layer(graph, (x, x), e, types)
    with pytest.raises(ShapeError, match=r"relations of edges are \[70, 5\] of float32"):
        layer(graph, x, torch.zeros(EDGES, RELATIONS), types)
    with pytest.raises(ConfigError, match="3 heads do not divide 4 outputs"):
        HGT(3, 4, heads=3)
    with pytest.raises(GraphError, match="attention over relations reads a whole graph"):
        layer(Part.__new__(Part), x, e, types)
