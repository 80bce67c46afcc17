from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apps.explorer.peer import (
    all_in_node,
    by_torch,
    close,
    content_of,
    edited,
    in_double,
    in_node,
    node_needed,
    random_edits,
)
from edgewise.apps.explorer.weights import Reading, exported, read
from edgewise.configuration import Choice
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, complete
from edgewise.graphs.refinement import refine
from edgewise.layers import dirichlet_energy
from edgewise.models import MODELS
from edgewise.models.signature import Features, Signature, Tokens

NODES = 12
TRANSFORMERS: list[dict[str, Any]] = [
    {},
    {"block": "post-norm", "feed_forward": "relu"},
    {"block": {"name": "pre-norm", "norm": "rms", "bias": False}, "feed_forward": "swiglu"},
    {"block": {"name": "pre-norm", "norm": "batch"}, "feed_forward": "gelu-tanh"},
    {"block": {"name": "post-norm", "norm": "fine-layer"}, "feed_forward": "silu"},
    {"block": {"name": "pre-norm", "norm": "none"}, "feed_forward": "tanh", "depth": 3},
    {"attention": {"name": "softmax", "key_value_heads": 2}, "feed_forward": "elu"},
    {"positions": "sinusoidal", "feed_forward": "sigmoid"},
    {"feed_forward": "geglu"},
    {"readout": "mean"},
    {"readout": "sum"},
    {"readout": "max"},
    {"readout": "class"},
]


def build(name: str, options: dict[str, Any], signature: Signature, seed: int) -> nn.Module:
    """A model whose weights are large enough for uneven attention, and whose norms are no identities."""
    torch.manual_seed(seed)
    options = {"positions": "none"} | options if name == "transformer" and isinstance(signature, Features) else options
    settings, kind = MODELS[name]
    chosen = {
        key: Choice(value.pop("name"), value) if isinstance(value, dict) else value
        for key, value in deepcopy(options).items()
    }
    model = kind(settings(**chosen), signature)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.15 * torch.randn_like(weight)
        for name, value in model.named_buffers():
            if name.endswith("running_mean"):
                value += torch.randn_like(value)
            if name.endswith("running_var"):
                value *= torch.rand_like(value) + 0.5
    return model.eval()


def case(k: int) -> tuple[nn.Module, Graph, Tensor]:
    """The k-th model, a graph with isolated nodes and without, and its features or tokens."""
    options = {"width": 16, "heads": 4, "depth": 2} | TRANSFORMERS[k % len(TRANSFORMERS)]
    whole = "readout" in options
    signature: Signature = Features(5, 3, length=NODES, whole_graph=whole)
    graph = (
        complete(NODES) if options.get("readout") == "class" else edited(complete(NODES), random_edits(NODES, 110, k))
    )
    return build("transformer", options, signature, k), graph, torch.randn(NODES, 5)


@node_needed
def test_the_page_computes_what_pytorch_does_on_13_graphs() -> None:
    cases = [case(k) for k in range(13)]
    contents = [content_of(model, *kept(read(model, graph, x)), 3) for model, graph, x in cases]
    jobs = [(content, [{"graph": content["examples"][0]["graphs"][0]["name"]}]) for content in contents]
    for (model, graph, x), (found,) in zip(cases, all_in_node(jobs), strict=True):
        assert close(found, by_torch(model, graph, x), 1e-5)
        assert close(found, in_double(model, graph, x), 1e-6)
        assert len(found["p"]) == len(model.blocks)


def kept(reading: Reading) -> tuple[Graph, Tensor]:
    """What the page has of a model's input."""
    return reading.graph, reading.features


@node_needed
@pytest.mark.parametrize("tied", [True])
def test_tokens_and_an_output_layer_that_is_the_embedding(tied: bool) -> None:
    options = {"width": 8, "heads": 2, "depth": 1, "tied": tied}
    model = build("transformer", options, Tokens(7, 7, length=NODES), 3)
    graph, tokens = edited(complete(NODES), random_edits(NODES, 60, 1)), torch.arange(NODES) % 7
    content = content_of(model, graph, read(model, graph, tokens).features, 7)
    (found,) = in_node(content, [{"graph": "given"}])
    assert close(found, by_torch(model, graph, tokens), 1e-5)


@node_needed
@pytest.mark.parametrize("attention", ["neighbors"])
def test_a_graph_transformer_is_shown_with_the_loops_that_it_adds(attention: str) -> None:
    options = {"attention": attention, "encoding": "random-walk", "width": 8, "heads": 2}
    model = build("graph-transformer", options, Features(5, 3), 4)
    graph, x = edited(complete(NODES), random_edits(NODES, 100, 5)), torch.randn(NODES, 5)
    reading = read(model, graph, x)
    content = content_of(model, reading.graph, reading.features, 3)
    (found,) = in_node(content, [{"graph": "given"}])
    assert found["edges"] == graph.add_self_loops().num_edges
    assert close(found, by_torch(model, graph, x), 1e-5)


@node_needed
def test_energy_refinement_and_hops_are_the_librarys() -> None:
    model, _, x = case(0)
    grid = edited(complete(NODES), [(i, j) for i in range(NODES) for j in range(NODES) if abs(i - j) not in (0, 1, 4)])
    content = content_of(model, grid, read(model, grid, x).features, 3)
    edits = [[], *([list(pair) for pair in random_edits(NODES, 12, seed)] for seed in range(8))]
    for found, pairs in zip(in_node(content, [{"graph": "given", "edits": e} for e in edits]), edits, strict=True):
        graph = edited(grid, [(i, j) for i, j in pairs])
        states = [torch.tensor(x, dtype=torch.float64).view(NODES, -1) for x in found["states"]]
        energy = torch.stack([dirichlet_energy(graph, x, relative=True) for x in states])
        assert torch.allclose(torch.tensor(found["energy"], dtype=torch.float64), energy, atol=1e-10)
        colours = [refine(graph, rounds=r).tolist() for r in range(len(found["colours"]))]
        assert [partition(c) for c in found["colours"]] == [partition(c) for c in colours]
        assert partition(refine(graph).tolist()) == partition(found["colours"][-1])
        reached = torch.eye(NODES)[0]
        for hop in range(NODES):
            assert ((torch.tensor(found["hops"]) <= hop) & (torch.tensor(found["hops"]) >= 0)).equal(reached > 0)
            dense = torch.zeros(NODES, NODES)
            dense[graph.receivers, graph.senders] = 1
            reached = (reached + reached @ dense).clamp(max=1)


def both(model: nn.Module, x: Tensor) -> None:
    """What the page needs of a model."""
    exported(model, [])
    read(model, complete(NODES), x)


def partition(colours: list[int]) -> set[frozenset[int]]:
    """Which nodes have one colour, whatever its number."""
    return {frozenset(i for i, c in enumerate(colours) if c == colour) for colour in set(colours)}


@pytest.mark.parametrize(
    ("name", "options", "signature", "message"),
    [
        ("gnn", {}, Features(5, 3), "no blocks"),
        ("transformer", {"positions": "rotary"}, Features(5, 3), "rotary"),
        ("transformer", {"positions": "alibi"}, Features(5, 3), "ALiBiAttention"),
        ("transformer", {"attention": "linear"}, Features(5, 3), "LinearAttention"),
        ("transformer", {"readout": "attention"}, Features(5, 3, whole_graph=True), "AttentionReadout"),
        ("graph-transformer", {"attention": "hadamard"}, Features(5, 3), "HadamardAttention"),
        ("graph-transformer", {}, Features(5, 3, edges=2), "EdgeTransformerBlock"),
        ("bert", {}, Tokens(7, 7, length=NODES), "BERT"),
    ],
)
def test_a_model_that_the_page_cannot_compute_is_refused_by_its_part(
    name: str, options: dict[str, Any], signature: Signature, message: str
) -> None:
    model = build(name, options, signature, 0)
    with pytest.raises(ConfigError, match=message):
        both(model, torch.zeros(NODES, dtype=torch.int64))


def test_a_model_that_does_more_than_block_after_block_is_refused() -> None:
    model = build("transformer", {"width": 8, "heads": 2, "depth": 2}, Features(5, 3), 0)
    x = torch.randn(NODES, 5)
    read(model, complete(NODES), x)
    model.blocks[1].register_forward_pre_hook(lambda _, given: (given[0], 2 * given[1], *given[2:]))
    with pytest.raises(ConfigError, match="more than one block after the other"):
        read(model, complete(NODES), x)
