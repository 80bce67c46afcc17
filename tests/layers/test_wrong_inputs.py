"""Every public layer with one input, or one argument, wrong at a time: a sentence of Edgewise's, and never an error of
PyTorch's.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import numpy
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

import edgewise.layers as public
from edgewise import Graph
from edgewise.errors import ConfigError, EdgewiseError
from edgewise.layers import LAYERS, MLP, SparseFeatures
from edgewise.layers.plain.layer import example_graph

GRAPH, NODES, EDGES = example_graph(), 5, 7
X, E, POSITIONS = torch.randn(NODES, 4), torch.randn(EDGES, 2), torch.randn(NODES, 3)
RELATIONS, TYPES = torch.tensor([0, 1, 0, 1, 0, 1, 0]), torch.tensor([0, 0, 1, 1, 0])
CELL, WHOLE = torch.full((3,), 9.0), torch.randn(1, 2)


def with_more_inputs() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Layers that read more than their examples give them: (name, layer, inputs after the graph)."""
    layers: Any = public
    for name in ("GAT", "GATv2", "GatedGCN", "EdgeStream"):
        yield name, getattr(layers, name)(4, 2, edges=2), (X, E)
    yield "GINE", layers.GINE(MLP([4, 2]), edges=2), (X, E)
    yield "GraphAttention", layers.GraphAttention(4, 2, edges=2), (X, E)
    yield "GraphormerAttention", layers.GraphormerAttention(4, 2, most=2, edges=2), (X, E)
    yield "WeightedAttention", layers.WeightedAttention(4, 2), (X, E[:, :1])
    yield "EventMemory", layers.EventMemory(4, edges=2), (X, X[:, :1], E[:, :1], E)
    yield "MessageNetwork", layers.MessageNetwork(4, 4, edges=2), (X, E)
    for name in ("EGNN", "AttentionEGNN"):
        yield name, getattr(layers, name)(4, 4, edges=2), (X, POSITIONS, E, CELL)
    yield "VelocityEGNN", layers.VelocityEGNN(4, 4, edges=2), (X, POSITIONS, POSITIONS, E, CELL)
    yield "RadialField", layers.RadialField(4, edges=2), (POSITIONS, POSITIONS, E, CELL)
    yield "SchNet", layers.SchNet(4, 4, gaussians=6, cutoff=4.0), (X, POSITIONS, CELL)
    typed = X.unsqueeze(1).expand(-1, 4, -1)
    yield "PaiNN", layers.PaiNN(4, gaussians=6, cutoff=4.0), (typed, POSITIONS, CELL)
    yield "TFN", layers.TFN(4, 4, edges=2), (typed, POSITIONS, E, CELL)
    yield "SE3Attention", layers.SE3Attention(4, 2, 4, edges=2), (typed, POSITIONS, E, CELL)
    yield "RGAT", layers.RGAT(4, 2, relations=2), (X, RELATIONS)
    yield "RGCN", layers.RGCN(4, 2, relations=2), (X, RELATIONS)
    yield "RGCN, weights", layers.RGCN(4, 2, relations=2), (X, E.abs())
    yield "HGT", layers.HGT(4, 4, relations=2, kinds=2, heads=2), (X, RELATIONS, TYPES)
    yield "MoNet", layers.MoNet(4, 2, dimensions=2), (X, E)
    yield "FastGCN", layers.FastGCN(4, 2), (X, E[:, 0])
    yield "EdgeTransformerBlock", layers.EdgeTransformerBlock(4, 2), (X, E.repeat(1, 2))
    yield "EdgeTransformerBlock, pre", layers.EdgeTransformerBlock(4, 2, order="pre"), (X, E.repeat(1, 2))
    yield "EdgeUpdate", layers.EdgeUpdate(MLP([12, 4])), (X, E, WHOLE)
    yield "NodeUpdate", layers.NodeUpdate(MLP([8, 4])), (X, E, WHOLE)
    yield "WholeUpdate", layers.WholeUpdate(MLP([8, 4])), (X, E, WHOLE)
    yield "PairProduct", layers.PairProduct(4, 2), (torch.randn(NODES**2, 4),)
    yield "MultiHeadAttention, senders", layers.MultiHeadAttention(4, 2), (X, X)
    block = layers.PreNormBlock(4, layers.GraphAttention(4, 2, edges=2), layers.FeedForward(4, 4))
    yield "PreNormBlock, edges", lambda graph, x, e, block=block: block(graph, x, e=e), (X, E)
    for norm in ("rms", "batch", "none"):
        block = layers.PreNormBlock(4, layers.MultiHeadAttention(4, 2), layers.FeedForward(4, 4), norm=norm)
        yield f"PreNormBlock, {norm}", block, (X,)
    yield "min_cut_pool", layers.min_cut_pool, (X, E[:NODES].softmax(-1), E[:, 0].abs())
    yield "dirichlet_energy", layers.dirichlet_energy, (X,)
    yield "displacements", layers.displacements, (POSITIONS, CELL)
    for name in ("GAT", "GATv2", "GCN", "SAGEMean", "SAGEPool", "SAGELSTM", "SAGEUnion", "HGT", "RGAT", "RGCN", "ACM"):
        layer = getattr(layers, name)(4, 4)
        yield f"{name}, a pair", lambda graph, x_i, x_j, layer=layer: layer(graph, (x_i, x_j)), (X, X)
    for name, mlp in (("GIN", [4, 2]), ("GINE", [4, 2]), ("EdgeConv", [8, 2])):
        layer = getattr(layers, name)(MLP(mlp))
        yield f"{name}, a pair", lambda graph, x_i, x_j, layer=layer: layer(graph, (x_i, x_j)), (X, X)


def without_graph() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Layers that read no graph: (name, layer, inputs)."""
    layers: Any = public
    yield "MLP", MLP([4, 2]), (X,)
    yield "MLP, two maps", MLP([4, 3, 2]), (X,)
    for name in ("Linear", "RandomizedLinear", "FeedForward", "GatedFeedForward"):
        yield name, getattr(layers, name)(4, 4), (X,)
    yield "RandomizedMLP", layers.RandomizedMLP([4, 3], keep=0.5), (X,)
    yield "BatchNorm", layers.BatchNorm(4), (X,)
    yield "Gate", layers.Gate(4, 1), (torch.randn(NODES, 4, 4),)
    yield "TypedLinear", lambda h: layers.TypedLinear([4, 4], [2, 2])(layers.by_type(h)), (torch.randn(NODES, 4, 4),)
    yield "PatchMerging", layers.PatchMerging(4, columns=4), (torch.randn(16, 4),)
    yield "JumpingKnowledge", lambda a, b: layers.JumpingKnowledge()([a, b]), (X, X)
    yield "JumpingKnowledge, max", lambda a, b: layers.JumpingKnowledge("max")([a, b]), (X, X)
    for name in ("PositiveFeatures", "HyperbolicFeatures", "ReLUFeatures", "TrigonometricFeatures"):
        yield name, getattr(layers, name)(4, 4), (X,)
    yield "ResidualBlock", layers.ResidualBlock(2, 3), (torch.randn(2, 2, 8, 8),)
    yield "ResNet", layers.ResNet(8), (torch.zeros(2, 8, 8, 3, dtype=torch.uint8),)
    yield "harmonics", lambda direction: layers.harmonics(1, direction), (POSITIONS,)


def of_examples() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    for name, layer in LAYERS.items():
        example, graph, inputs = layer.example()
        yield f"{name}, its example", lambda given, *x, example=example: example(given, *x), (graph, *inputs)


CASES = [
    *of_examples(),
    *((name, layer, (GRAPH, *inputs)) for name, layer, inputs in with_more_inputs()),
    *without_graph(),
]
# Parts of layers, which nothing but these calls.
PARTS = {"AngularHash", "BlockSort", "Centroids", "DegreeCoordinates", "EdgeMLP", "LowRank", "RadialWeights"}
PARTS |= {"TimeEncoding"}


def wrong(x: Tensor) -> Iterator[tuple[str, Any]]:
    """What no layer can read in the place of a tensor, then what some can."""
    yield from {"a list": x.tolist(), "an array": x.numpy(), "a name": "x", "a graph": GRAPH}.items()
    yield "wider", torch.cat([x, x[..., :1]], -1)
    yield "narrower", x[..., :-1]
    yield "less an axis", x[0]
    yield "a number", x.new_zeros(())
    yield "elsewhere", x.to("meta")
    if x.ndim == 2 and x.is_floating_point():
        yield "sparse", SparseFeatures.from_scipy(csr_matrix(x.numpy()))
    if x.ndim > 1:
        yield "a row more", torch.cat([x, x[..., :1, :]], -2)
    for dtype in (torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64):
        if dtype is not x.dtype:
            yield str(dtype), x.to(dtype)


def refusal(layer: Callable[..., Any], *inputs: Any) -> str | None:
    """What Edgewise says of inputs that it refuses; errors of others are raised."""
    try:
        layer(*inputs)
    except EdgewiseError as error:
        return str(error)
    return None


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # PyTorch's, of an RMS norm
@pytest.mark.parametrize(("name", "layer", "inputs"), CASES, ids=[name for name, *_ in CASES])
def test_each_wrong_input_is_named(name: str, layer: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    layer(*inputs)
    for number, given in enumerate(inputs):
        if isinstance(given, Graph):
            with pytest.raises(EdgewiseError, match=r"first argument must be a Graph|the features are a Graph|ignored"):
                layer(inputs[1], inputs[0], *inputs[2:])
            continue
        for what, value in (*wrong(given), ("nothing", None)):
            said = refusal(layer, *inputs[:number], value, *inputs[number + 1 :])
            assert said is None or len(said) > 20, (number, what)
            assert said is not None or what not in {"a list", "an array", "a name", "a graph"}, (number, what)


def test_every_public_layer_is_among_them() -> None:
    named = {name.split(",")[0] for name, *_ in CASES}
    modules = {n for n, v in vars(public).items() if isinstance(v, type) and issubclass(v, nn.Module)}
    assert modules - named == PARTS


@pytest.mark.parametrize("name", [name for name, layer in LAYERS.items() if list(layer.example()[0].parameters())])
def test_features_of_another_precision_than_the_weights_are_refused_or_computed_in(name: str) -> None:
    """No layer rounds wide features to its weights' precision."""
    layer, graph, inputs = LAYERS[name].example()
    layer.eval()
    wide = [x.double() for x in inputs]
    said = refusal(layer, graph, *wide)
    if said is not None:
        assert "float64" in said
    else:
        y = layer(graph, *wide)
        assert {t.dtype for t in (y if isinstance(y, tuple) else (y,))} == {torch.float64}


NETWORK, SPREAD = MLP([4, 4]), public.MultiHeadAttention(4, 2)
# What layers need beside sizes, of which each is 4 unless it stands here.
PARTS_OF: dict[str, Any] = {
    "mlp": NETWORK,
    "sizes": [4, 4],
    "keep": 1,
    "parts": lambda n: (Graph.from_edge_index(torch.zeros(2, 0), n),),
    "attention": SPREAD,
    "cross": SPREAD,
    "feed_forward": NETWORK,
    "local": NETWORK,
    "layer": NETWORK,
    "group": public.PlaneGroup(),
    "patterns": torch.ones(2, 3),
    "weight": torch.ones(3, 3),
    "random": None,
}
# PyTorch's own constructors, and layers of nothing but other layers.
OTHERS = {"BatchNorm", "FactorisedAttention", "EdgeUpdate", "GraphNetwork", "Marked", "VirtualNode", "EdgeConv"}
OTHERS |= {"JumpingKnowledge", "NodeUpdate", "WholeUpdate", "GroupPooling", "MaxReadout", "MeanReadout", "SumReadout"}
WRONG = {
    "int": [2.5, -1, True, "3", [1], numpy.bool_(True), 1 << 70],
    "float": ["0.5", True, math.nan, math.inf, [1.0]],
}
WRONG["dropout"] = [*WRONG["float"], 1.0, 1.5, -0.1]


def arguments() -> Iterator[tuple[str, type, dict[str, Any], str, list[Any]]]:
    for name, layer in vars(public).items():
        known = isinstance(layer, type) and (
            issubclass(layer, nn.Module) or name in ("Buckets", "Coupling", "PlaneGroup")
        )
        if not known or name in OTHERS:
            continue
        hints, parameters = get_type_hints(layer.__init__), inspect.signature(layer).parameters.values()
        needed = [p.name for p in parameters if p.default is p.empty]
        if not all(name in PARTS_OF or hints[name] in (int, float) for name in needed):
            continue
        right = {name: PARTS_OF.get(name, 4) for name in needed}
        for p in parameters:
            for kind in (int, float):
                if hints[p.name] in (kind, kind | None):
                    wrong = WRONG[p.name if p.name in WRONG else kind.__name__]
                    yield name, layer, right, p.name, [*wrong, None] if hints[p.name] is kind else wrong


@pytest.mark.parametrize(
    ("name", "layer", "right", "argument", "values"),
    [pytest.param(*case, id=f"{case[0]}-{case[3]}") for case in arguments()],
)
def test_each_wrong_argument_is_named(
    name: str, layer: Callable[..., Any], right: dict[str, Any], argument: str, values: list[Any]
) -> None:
    layer(**right)
    for value in values:
        with pytest.raises(ConfigError, match=rf"^{name}: {argument} must be a (whole|finite) number") as raised:
            layer(**right | {argument: value})
        assert not isinstance(value, int | float | str) or value == 1 << 70 or repr(value) in str(raised.value)


def test_numbers_of_numpy_and_pytorch_are_sizes() -> None:
    for four in (numpy.int64(4), numpy.uint8(4), torch.tensor(4)):
        assert public.GAT(four, four, heads=four, dropout=numpy.float32(0.5), edges=four)(
            GRAPH, X, E.repeat(1, 2)
        ).shape


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: MLP([4, 2.5, 3]), r"MLP: sizes\[1\] must be a whole number, at least 1, not 2.5"),
        (
            lambda: public.RandomizedMLP([4, 0], 0.5),
            r"RandomizedMLP: sizes\[1\] must be a whole number, at least 1, not 0",
        ),
        (lambda: public.TypedLinear([4, -1], [2, 2]), r"TypedLinear: inputs\[1\] must be a whole number, at least 0"),
        (lambda: public.TypedLinear([4], [2, 2]), "TypedLinear: inputs has 1 types of features, and outputs 2"),
        (
            lambda: public.RGCN(4, 4, relations=2, bases=3),
            "RGCN: bases must be a whole number, at least 0 and at most 2",
        ),
        (lambda: public.GAT(4, 4, heads=0), "GAT: heads must be a whole number, at least 1, not 0"),
        (lambda: public.GAT(4, 4, edges=-1), "GAT: edges must be a whole number, at least 0, not -1"),
    ],
)
def test_sizes_among_others_are_named(make: Callable[[], Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        make()
