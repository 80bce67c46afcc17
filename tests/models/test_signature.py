"""A signature refuses sizes that no model can have, and a model the signatures that it cannot read."""

import pytest
import torch
from torch import nn

from edgewise import Graph, causal
from edgewise.errors import ConfigError
from edgewise.models import (
    MODELS,
    EncoderDecoder,
    EncoderDecoderSettings,
    Features,
    PooledTransformer,
    PooledTransformerSettings,
    TokenPairs,
    Tokens,
    Transformer,
    TransformerSettings,
    translate,
)
from edgewise.models.signature import (
    Atoms,
    MovingParticles,
    Signature,
    accepted,
    evaluating,
)
from layers.parity import each

EXAMPLES = {
    "features": Features(3, 2),
    "features of graphs": Features(4, 2, length=16, whole_graph=True),
    "edges": Features(3, 2, edges=4),
    "particles": MovingParticles(9, 3, space=3),
    "atoms": Atoms(7, 4, space=3, radius=2.0),
    "tokens": Tokens(9, 9, length=16),
    "texts": Tokens(9, 2, length=16, whole_graph=True),
    "pairs": TokenPairs(9, 9, length=16),
}


@pytest.mark.parametrize(
    ("wrong", "kind"),
    each(
        [{"inputs": 0}, {"outputs": -1}, {"length": 0}, {"inputs": 2.5}, {"outputs": "3"}],
        [Features, Tokens, TokenPairs],
    ),
)
def test_widths_below_one_are_named(kind: type[Signature], wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        kind(**({"inputs": 3, "outputs": 2} | wrong))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MovingParticles(5, 3, space=3), "inputs=5 and outputs=3"),
        (lambda: MovingParticles(6, 2, space=3), "outputs=2"),
        (lambda: MovingParticles(6, 0, space=0), "outputs must be"),
        (lambda: Atoms(6, 4, space=3, radius=3.0), "inputs=6 and outputs=4"),
        (lambda: Atoms(7, 3, space=3, radius=3.0), "outputs=3"),
        (lambda: Atoms(7, 4, space=3, radius=float("inf")), "radius must be above 0 and finite"),
        (lambda: Atoms(7, 4, space=3, radius=0.0), "radius must be above 0 and finite"),
    ],
)
def test_sizes_that_do_not_fit_the_space_are_named(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("signature", "options", "message"),
    [
        ("tokens", {}, "Identity reads features of nodes, and this task has tokens: choose another model"),
        ("pairs", {}, "reads features of nodes, and this task has pairs of a source and a target"),
        ("features", {"whole_graph": True}, "has one output per graph, and this task wants one output per node"),
        ("features of graphs", {"whole_graph": False}, "has one output per node, and this task wants one output per"),
        ("features", {"length": True}, "needs graphs of a known length, and this task's have none"),
        ("edges", {}, "reads no features of edges, and this task has some"),
        ("edges", {"knows": ("whole",)}, "reads no features of edges, and this task has some"),
    ],
)
def test_what_does_not_fit_is_said_in_one_sentence(signature: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        accepted(nn.Identity(), EXAMPLES[signature], Features, **options)


READ = {
    "bart": {"pairs", "texts"},
    "bert": {"tokens"},
    "consistent": {"features"},
    "deep-sets": {"features of graphs"},
    "encoder-decoder": {"pairs"},
    "ensemble": {"features", "particles", "atoms", "tokens"},
    "gnn": {"features", "particles", "atoms", "tokens"},
    "graph-autoencoder": set(),
    "graph-network": {"features", "features of graphs", "edges", "particles", "atoms"},
    "graph-transformer": {"features", "edges", "particles", "atoms"},
    "group-cnn": {"features of graphs"},
    "light-gcn": {"features", "particles", "atoms"},
    "kernel-regression": {"features", "particles", "atoms"},
    "memory": set(),
    "mlp": {"features", "features of graphs", "particles", "atoms"},
    "pair-network": {"features", "particles", "atoms"},
    "particles": {"particles"},
    "pooled-transformer": {"features of graphs", "texts"},
    "potential": {"atoms"},
    "random-propagation": {"features", "particles", "atoms"},
    "randomized-mlp": {"features", "features of graphs", "particles", "atoms"},
    "recurrent": {"features", "features of graphs", "particles", "atoms", "tokens", "texts"},
    "recurrent-encoder-decoder": {"pairs"},
    "scale-cnn": {"features of graphs"},
    "simulator": {"particles"},
    "subgraph-network": {"features", "particles", "atoms"},
    "swin": {"features of graphs"},
    "transformer": {"features", "particles", "atoms", "tokens"},
    "variational-autoencoder": set(),
}


@pytest.mark.parametrize("name", MODELS)
def test_each_model_reads_its_kinds_and_refuses_the_others(name: str) -> None:
    settings, model = MODELS[name]
    options = {"transformer": {"positions": "none"}, "swin": {"depths": (1,), "heads": (1,), "width": 8}}.get(name, {})
    read = set()
    for kind, signature in EXAMPLES.items():
        try:
            built = model(settings(**options), signature)
        except ConfigError:
            continue
        assert built.signature is signature
        read.add(kind)
    assert read == READ[name]


PAIR, X = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2), torch.ones(2, 3)
CALLS = {
    "generate": (
        lambda: Transformer(TransformerSettings(8, 2, 2), Tokens(5, 5, length=4)),
        lambda model: model.generate(torch.tensor([1]), 2, causal),
    ),
    "translate": (
        lambda: EncoderDecoder(EncoderDecoderSettings(8, 1, 1, 2), TokenPairs(6, 6)),
        lambda model: translate(model, [torch.tensor([3, 4])], (0, 1), longest=3),
    ),
    "relevance": (
        lambda: PooledTransformer(PooledTransformerSettings(width=8, norm="batch"), Features(3, 2, whole_graph=True)),
        lambda model: model.relevance(PAIR, X, 1),
    ),
}


@pytest.mark.parametrize(("training", "name"), each([True, False], CALLS))
def test_parts_that_are_frozen_stay_so(name, training):
    made, call = CALLS[name]
    model = made().train(training)
    *_, last = model.modules()
    last.train(not training)
    before = {name: part.training for name, part in model.named_modules()}
    call(model)
    assert {name: part.training for name, part in model.named_modules()} == before


def test_modes_come_back_after_an_error_and_a_part_hears_of_them():
    class Own(nn.Linear):
        def train(self, mode: bool = True) -> nn.Module:
            modes.append(mode)
            return super().train(mode)

    modes: list[bool] = []
    model = nn.Sequential(Own(1, 1), nn.Dropout().eval())
    with pytest.raises(ZeroDivisionError), evaluating(model):
        model(torch.ones(1 // int(model.training)))
    assert [part.training for part in model.modules()] == [True, True, False] and modes == [False, True]
