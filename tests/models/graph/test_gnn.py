import math

import pytest
import torch
from torch.nn import functional

from edgewise import ConfigError, Graph, complete
from edgewise.configuration import Choice, OneOf
from edgewise.graphs import importance, sample_layers, sample_neighbors
from edgewise.kernels.gates import Gates, gated
from edgewise.layers import GAT, EdgeStream, renormalised
from edgewise.models import (
    GNN,
    GRAPH_LAYERS,
    Features,
    GNNSettings,
    GraphTransformer,
    GraphTransformerSettings,
)
from edgewise.models.graph.graph_layers import WEIGHTED_LAYERS
from layers.parity import each

GRAPH = Graph.from_edge_index([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]], num_nodes=5)
NODES = Features(6, 3)
GRAPHS = Features(6, 3, whole_graph=True)


@pytest.mark.parametrize(
    ("signature", "connection", "layer"),
    each([NODES, GRAPHS], ["none", "residual", "concatenate", "residual-jumping"], GRAPH_LAYERS),
)
def test_every_choice_trains(layer, connection, signature):
    if (layer, connection) == ("gcnii", "concatenate"):  # of one width only, as its refusal says
        connection = "jumping"
    readout = "sum" if signature.whole_graph else "none"
    heads = {"heads": 2} if "heads" in OneOf(GRAPH_LAYERS).options(layer) else {}
    settings = GNNSettings(Choice(layer, heads), width=8, depth=3, connection=connection, readout=readout)
    model = GNN(settings, signature)
    graph = Graph.batch([GRAPH, complete(2)])
    y = model(graph, torch.randn(7, 6))
    assert y.shape == ((2, 3) if signature.whole_graph else (7, 3))
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_velickovics_network():
    settings = GNNSettings(
        Choice("gat", {"heads": 8, "attention_dropout": 0.6}), width=64, depth=2, dropout=0.6, activation="elu"
    )
    model = GNN(settings, NODES).eval()
    hidden, output = model.hidden[0], model.output
    assert isinstance(hidden, GAT)
    assert hidden.a_sender.shape == (8, 8)
    assert output.a_sender.shape == (1, 3)
    assert not output.concatenate
    assert hidden.dropout == output.dropout == 0.6
    x = torch.randn(5, 6)
    assert torch.equal(model(GRAPH, x), output(GRAPH, functional.elu(hidden(GRAPH, x))))


def test_dropout_acts_on_the_inputs_of_every_layer():
    model, seen = GNN(GNNSettings("gcn", depth=3, dropout=0.9, activation="tanh"), NODES), []
    for layer in (*model.hidden, model.output):
        layer.register_forward_pre_hook(lambda _, inputs: seen.append((inputs[1] == 0).double().mean().item()))
    model(GRAPH, torch.ones(5, 6))
    assert all(share > 0.5 for share in seen)
    seen.clear()
    model.eval()(GRAPH, torch.ones(5, 6))
    assert seen[0] == 0


@pytest.mark.parametrize(
    ("signature", "options", "message"),
    [
        (NODES, {"layer": Choice("gat", {"heads": 3})}, "3 heads do not divide a width of 16"),
        (NODES, {"layer": "gcnii", "connection": "concatenate", "depth": 4}, "gcnii' keeps its width"),
        (NODES, {"layer": Choice("gcnii", {"decay": -1.0}), "depth": 3}, "decay=-1.0 must be at least 0"),
        (NODES, {"layer": Choice("gcnii", {"alpha": 2.0}), "depth": 3}, "alpha must be .* at most 1, not 2.0"),
        (NODES, {"readout": "mean"}, "one output per node"),
        (GRAPHS, {}, "choose a readout"),
    ],
)
def test_impossible_settings_are_refused(signature, options, message):
    with pytest.raises(ConfigError, match=message):
        GNN(GNNSettings(**options), signature)


@pytest.mark.parametrize(("connection", "layer"), each(["none", "residual", "concatenate"], ["sage-mean", "sage-pool"]))
def test_a_sample_of_all_neighbours_gives_what_the_whole_graph_gives(layer, connection):
    settings = GNNSettings(layer, width=4, depth=3, connection=connection, norm="layer", dropout=0.0)
    model, x, seeds = GNN(settings, NODES).double(), torch.randn(5, 6, dtype=torch.float64), [2, 4, 0]
    sample = sample_neighbors(GRAPH, seeds, [-1, -1, -1])
    found, expected = model(sample, x[sample.nodes]), model(GRAPH, x)[seeds]
    assert torch.allclose(found, expected, atol=1e-12)
    weights = list(model.parameters())
    pairs = zip(*(torch.autograd.grad(y.square().sum(), weights) for y in (found, expected)), strict=True)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in pairs)


def test_layers_sampled_by_importance_are_weighted_sums():
    """The equation with dense matrices, layer by layer, and its gradient."""
    model, x = (
        GNN(GNNSettings("fast-gcn", width=4, dropout=0.0), NODES).double(),
        torch.randn(5, 6, dtype=torch.float64),
    )
    loops, entries = renormalised(GRAPH, torch.float64)
    sample = sample_layers(loops, entries, importance(loops, entries), [2, 0], [6, 6])
    first, second = (torch.tensor(g.to_scipy(w).toarray()) for g, w in zip(sample.graphs, sample.weights, strict=True))
    hidden, output = model.hidden[0], model.output
    h = torch.relu(first @ x[sample.nodes] @ hidden.linear.weight.T + hidden.bias)
    expected = second @ h @ output.linear.weight.T + output.bias
    found = model(sample, x[sample.nodes])
    assert torch.allclose(found, expected, atol=1e-12)
    weights = list(model.parameters())
    pairs = zip(*(torch.autograd.grad(y.square().sum(), weights) for y in (found, expected)), strict=True)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in pairs)
    with pytest.raises(ConfigError, match="need the layer 'fast-gcn'"):
        GNN(GNNSettings("gcn"), NODES)(sample, x[sample.nodes].float())


def test_edges_are_dropped_while_training_only():
    model = GNN(GNNSettings("gcn", dropout=0.0, edge_dropout=0.9), NODES)
    x = torch.randn(5, 6)
    assert any(not torch.equal(model(GRAPH, x), model(GRAPH, x)) for _ in range(5))
    plain = GNN(GNNSettings("gcn", dropout=0.0), NODES)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(GRAPH, x), plain(GRAPH, x))


@pytest.mark.parametrize(("connection", "combined"), [("jumping", torch.cat), ("jumping-max", torch.stack)])
@pytest.mark.parametrize("signature", [NODES, GRAPHS], ids=["nodes", "graphs"])
def test_the_output_reads_what_jumping_knowledge_makes_of_all_hidden_layers(connection, combined, signature):
    readout = "mean" if signature.whole_graph else "none"
    model = GNN(GNNSettings("gcn", width=4, depth=4, connection=connection, readout=readout), signature).eval()
    x = torch.randn(5, 6)
    states, h = [], x
    for layer in model.hidden:
        h = torch.relu(layer(GRAPH, h))
        states.append(h)
    read = combined(states, -1)
    read = read.amax(-1) if connection == "jumping-max" else read
    expected = model.output(GRAPH, read)
    assert torch.allclose(model(GRAPH, x), expected)
    grads = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (model(GRAPH, x), expected)]
    assert all(torch.allclose(ours, theirs) for ours, theirs in zip(*grads, strict=True))


def test_all_remedies_together_are_their_equation():
    """Initial residuals, residuals, norms, and an output that reads all layers; β = log(λ / l + 1)."""
    layer = Choice("gcnii", {"alpha": 0.2, "decay": 0.7})
    settings = GNNSettings(layer, width=4, depth=4, connection="residual-jumping", norm="layer", dropout=0.0)
    model, x = GNN(settings, NODES).double(), torch.randn(5, 6, dtype=torch.float64)
    h = first = torch.relu(model.norms[0](model.hidden[0](GRAPH, x)))
    states = [first]
    for number in (1, 2):
        assert model.hidden[number].beta == pytest.approx(math.log(0.7 / number + 1))
        h = h + torch.relu(model.norms[number](model.hidden[number](GRAPH, h, first)))
        states.append(h)
    expected = model.output(GRAPH, torch.cat(states, -1))
    assert torch.allclose(model(GRAPH, x), expected, atol=1e-12)
    grads = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (model(GRAPH, x), expected)]
    assert all(torch.allclose(ours, theirs, atol=1e-12) for ours, theirs in zip(*grads, strict=True))


def test_initial_residuals_read_the_first_states_of_a_samples_own_nodes():
    model = GNN(GNNSettings("gcnii", width=4, depth=4), NODES).eval()
    x, every = torch.randn(5, 6), torch.arange(5)
    sample = sample_neighbors(GRAPH, every, [10, 10, 10, 10])
    assert torch.allclose(model(sample, x[sample.nodes]), model(GRAPH, x), atol=1e-6)
    assert (model(sample_neighbors(GRAPH, [3], [10] * 4), x[sample_neighbors(GRAPH, [3], [10] * 4).nodes])).shape == (
        1,
        3,
    )


def test_unit_rows_follow_the_activation_as_algorithm_4_has_it():
    model = GNN(GNNSettings("sage-mean", width=4, depth=2, norm="unit"), NODES).eval()
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    model.double()
    h = torch.relu(model.hidden[0](GRAPH, x))
    h = h / h.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    lengths = h.norm(dim=-1)
    assert torch.allclose(lengths[lengths > 0], torch.ones_like(lengths[lengths > 0]))
    y, expected = model(GRAPH, x), model.output(GRAPH, h)
    assert torch.allclose(y, expected)
    gradients = [torch.autograd.grad(out.square().sum(), x, retain_graph=True)[0] for out in (y, expected)]
    assert torch.allclose(*gradients)


@pytest.mark.parametrize("connection", ["none", "concatenate"])
def test_a_virtual_node_follows_every_hidden_layer_and_joins_nodes_without_a_path(connection):
    model = GNN(GNNSettings("gcn", width=4, depth=3, connection=connection, virtual_node=True), NODES).eval()
    x = torch.randn(5, 6)
    h = x
    for number, (layer, virtual) in enumerate(zip(model.hidden, model.virtual, strict=True)):
        y = torch.relu(layer(GRAPH, h))
        y = torch.cat([h, y], -1) if number and connection == "concatenate" else y
        h = y + virtual.mlp(y.sum(0))
    assert torch.allclose(model(GRAPH, x), model.output(GRAPH, h), atol=1e-6)
    moved = x.clone()
    moved[4] += 1  # which has no edge
    assert not torch.allclose(model(GRAPH, moved)[0], model(GRAPH, x)[0])
    sample = sample_neighbors(GRAPH, torch.tensor([0]), [2, 2, 2])
    with pytest.raises(ConfigError, match="virtual node"):
        model(sample, x[sample.nodes])


def test_an_mlp_behind_the_mean_of_a_gcn_is_equation_5_6():
    """MLP(mean(GCN(diag(A_1, A_2), X))) with the renormalised adjacency written out densely."""
    settings = GNNSettings("gcn", width=4, depth=2, dropout=0.0, readout=Choice("mean", {"hidden": [5]}))
    model = GNN(settings, GRAPHS).double()
    both, x = Graph.batch([GRAPH, complete(3)]), torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    a = both.add_self_loops().dense_mask().double()
    scale = a.sum(1).rsqrt()
    h = x
    for layer in model.hidden:
        h = torch.relu(scale[:, None] * a * scale @ (h @ layer.linear.weight.T) + layer.bias)
    z = torch.stack([h[:5].mean(0), h[5:].mean(0)])
    first, second = model.output.mlp.linears
    expected = torch.relu(z @ first.weight.T + first.bias) @ second.weight.T + second.bias
    found = model(both, x)
    assert torch.allclose(found, expected, atol=1e-10)
    leaves = [x, *model.parameters()]
    ours, theirs = (torch.autograd.grad(y.square().sum(), leaves, retain_graph=True) for y in (found, expected))
    assert all(torch.allclose(a, b, atol=1e-9) and b.abs().max() > 0 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("whole", "edges"), each([False, True], [0, 2]))
def test_a_stream_of_edges_runs_through_the_layers(edges, whole):
    """Layer by layer, what one made of the edges is what the next one reads."""
    settings = GNNSettings(
        Choice("gated-gcn", {"stream": True}),
        width=4,
        depth=3,
        norm="batch",
        dropout=0.0,
        readout="sum" if whole else "none",
    )
    model, x = GNN(settings, Features(6, 3, edges=edges, whole_graph=whole)).eval(), torch.randn(5, 6)
    e = torch.randn(GRAPH.num_edges, edges) if edges else None
    y, read, count = x, e, 0
    for layer, norm in zip(model.hidden, model.norms, strict=True):
        if isinstance(layer, EdgeStream):
            y, read = layer(GRAPH, y, read)
            count += 1
        else:
            y = layer(GRAPH, y, read)
        y = torch.relu(norm(y))
    assert count == 2
    expected = model.output(GRAPH, y) if whole else model.output(GRAPH, y, read)
    given = (GRAPH, x) if e is None else (GRAPH, x, e)
    assert torch.equal(model(*given), expected)
    model.train()(*given).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_scaled_sum_depends_on_a_graphs_size_and_has_the_scale_of_a_mean():
    sizes = Graph.batch([complete(1), complete(3)])
    read = Choice("sum", {"scaled": True})
    model = GNN(GNNSettings("gin", width=4, dropout=0.0, readout=read), Features(2, 1, whole_graph=True))
    z = []
    model.output.mlp.register_forward_pre_hook(lambda _, given: z.append(given[0]))
    model.train()(sizes, torch.ones(4, 2))
    model.eval()(Graph.batch([complete(6), complete(1)]), torch.ones(7, 2))
    states = []
    model.output.readout.register_forward_pre_hook(lambda _, given: states.append(given[1]))
    model(sizes, torch.ones(4, 2))
    torch.testing.assert_close(z[-1], torch.stack([states[0][0], states[0][1:].sum(0)]) / 2)  # two nodes a graph
    torch.testing.assert_close(z[0], z[-1])
    torch.testing.assert_close(model.state_dict()["output.size"], torch.tensor(2.0))


@pytest.mark.parametrize("layer", WEIGHTED_LAYERS)
def test_an_edge_of_weight_two_is_two_edges(layer: str):
    ends = torch.tensor([[0, 1, 2, 2, 3, 1], [1, 0, 0, 1, 2, 1]])
    settings = GNNSettings(layer, width=6, depth=3, dropout=0.0, connection="residual-jumping", virtual_node=True)
    plain = GNN(settings, Features(4, 2)).double().eval()
    model = GNN(settings, Features(4, 2, edges=1, weighted=True)).double().eval()
    model.load_state_dict(plain.state_dict())
    often, x = torch.tensor([1, 2, 1, 3, 1, 1]), torch.randn(5, 4, dtype=torch.float64)
    graph = Graph.from_edge_index(ends, 5)
    twice = Graph.from_edge_index(ends.repeat_interleave(often, 1), 5)
    found = model(graph, x, graph.sort_edges(often.double())[:, None])
    torch.testing.assert_close(found, plain(twice, x), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(found, plain(graph, x))


def test_models_without_a_place_for_weights_say_which_have_one():
    with pytest.raises(ConfigError, match=r"layer 'gat' has no place for weights of edges.*: gcn, sage-mean, .* have"):
        GNN(GNNSettings("gat"), Features(4, 2, edges=1, weighted=True))
    settings = GraphTransformerSettings()
    with pytest.raises(ConfigError, match="GraphTransformer has no place for weights of edges"):
        GraphTransformer(settings, Features(4, 2, edges=1, weighted=True))


@pytest.mark.parametrize("layer", ["gcn", "sage-mean"])
def test_an_edge_that_counts_half_in_an_explanation_changes_no_other_s_share(layer: str):
    model = GNN(GNNSettings(layer, depth=1, dropout=0.0), Features(6, 3, edges=1, weighted=True)).double().eval()
    x, e = torch.randn(5, 6, dtype=torch.float64), torch.rand(GRAPH.num_edges, 1, dtype=torch.float64)

    def scaled(by: float) -> torch.Tensor:
        with gated(Gates(lambda call: torch.full((call.graph.num_edges,), by, dtype=torch.float64))):
            return model(GRAPH, x, e)

    torch.testing.assert_close(scaled(0.5), (scaled(0.0) + scaled(1.0)) / 2)
    assert torch.equal(scaled(1.0), model(GRAPH, x, e)) and not torch.allclose(scaled(0.0), scaled(1.0))
