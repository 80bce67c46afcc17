import pytest
import torch
from torch import nn

from edgewise import Graph, collect, ends
from edgewise.layers import GAT, GCN, MLP, EdgeUpdate, GraphNetwork, NodeUpdate, WholeUpdate, renormalised
from layers.parity import assert_parity, each, leaf, messy_graph

BATCH = Graph.batch([messy_graph(), Graph.from_edge_index([[0, 1, 2], [1, 2, 1]], num_nodes=3)])
MEMBER = torch.tensor([0] * 7 + [1] * 3)
SIZES = {"edge": [3 + 5 + 5 + 4, 8, 6], "node": [5 + 6 + 4, 8, 5], "whole": [6 + 5 + 4, 8, 2]}


class Call(nn.Module):
    """A function as a module: an update that needs no weights, or one of PyTorch Geometric's models."""

    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.modules_ = function, nn.ModuleList(modules)

    def forward(self, *arguments):
        return self.function(*arguments)


class Part(nn.Module):
    """One of the three results of a block."""

    def __init__(self, block, part):
        super().__init__()
        self.edge, self.node, self.whole, self.part = block.edge, block.node, block.whole, part

    def forward(self, *arguments):
        return GraphNetwork(self.edge, self.node, self.whole).update(*arguments)[self.part]


@pytest.mark.parametrize(("part", "reduce"), each([0, 1, 2], ["sum", "mean"]))
def test_the_block_is_pygs_meta_layer(part, reduce):
    pyg = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.utils import scatter

    net = {
        name: nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, c)).double() for name, (a, b, c) in SIZES.items()
    }

    def whole(x, index, e, u, batch):
        edges, nodes = scatter(e, batch[index[0]], 0, 2, reduce), scatter(x, batch, 0, 2, reduce)
        return net["whole"](torch.cat([edges, nodes, u], 1))

    peer = pyg.MetaLayer(
        Call(lambda x_j, x_i, e, u, batch: net["edge"](torch.cat([e, x_i, x_j, u[batch]], 1))),
        Call(
            lambda x, index, e, u, batch: net["node"](
                torch.cat([x, scatter(e, index[1], 0, len(x), reduce), u[batch]], 1)
            )
        ),
        Call(whole),
    )
    x, e, u = leaf(10, 5), leaf(BATCH.num_edges, 3, seed=1), leaf(2, 4, seed=2)
    expected = peer(x, BATCH.edge_index(), e, u, MEMBER)[part]
    block = GraphNetwork(
        EdgeUpdate(MLP(SIZES["edge"])),
        NodeUpdate(MLP(SIZES["node"]), reduce),
        WholeUpdate(MLP(SIZES["whole"]), reduce),
    )
    weights = {
        f"{name}.mlp.linears.{number}.{key}": value
        for name, network in net.items()
        for number, linear in enumerate((network[0], network[2]))
        for key, value in linear.named_parameters()
    }
    reached = {0: ("edge", "node"), 1: ("edge",), 2: ("edge", "node", "whole")}[part]
    leaves = [x, e, u, *(p for name in reached for p in net[name].parameters())]
    assert_parity(Part(block.double(), part), weights, (BATCH, x, e, u), expected, leaves)


def test_gcn_is_a_graph_network():
    """φ_e = Â_ij x_j, φ_v = W Σ_j e_ij + b, and no whole."""
    graph, x = messy_graph(), leaf(7, 5)
    gcn = GCN(5, 3).double()
    loops, entries = renormalised(graph, torch.float64)
    block = GraphNetwork(
        Call(lambda graph, x, e, u: entries[:, None] * ends(graph, x)[1]),
        Call(lambda graph, x, e, u: collect(graph, e) @ gcn.linear.weight.T + gcn.bias),
        None,
    )
    assert torch.allclose(block(loops, x), gcn(graph, x), atol=1e-12)


def test_gat_is_a_graph_network():
    """φ_e = (exp of the score, W x_j), φ_v divides the sum of their products by the sum of the first."""
    graph, x = messy_graph(), leaf(7, 5)
    gat = GAT(5, 3).double()

    def edge(graph, x, e, u):
        W_i, W_j = ends(graph, x @ gat.W.weight.T)
        score = torch.nn.functional.leaky_relu(W_i @ gat.a_receiver[0] + W_j @ gat.a_sender[0], 0.2)
        return torch.cat([score.exp()[:, None], W_j], 1)

    def node(graph, x, e, u):
        return collect(graph, e[:, :1] * e[:, 1:]) / collect(graph, e[:, :1]) + gat.bias

    assert torch.allclose(GraphNetwork(Call(edge), Call(node), None)(graph.add_self_loops(), x), gat(graph, x))
