"""The twin of HeteroConv: one map of the receivers for all kinds of edges that end in them."""

from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
import torch

from edgewise.interop import conversion, convert
from edgewise.interop.geometric import hetero
from interop.geometric.parity import check

pyg = pytest.importorskip("torch_geometric.nn")

SIZES = {"author": (9, 5), "paper": (14, 40), "term": (6, 3)}
KINDS = [
    ("author", "writes", "paper"),
    ("term", "in", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "by", "author"),
    ("author", "knows", "author"),
    ("paper", "has", "term"),
]


def given(kinds: Any = KINDS) -> tuple[dict[str, Any], dict[Any, Any]]:
    generator = torch.Generator().manual_seed(4)

    def ends(*names: str) -> torch.Tensor:
        return torch.stack([torch.randint(SIZES[name][0], (30,), generator=generator) for name in names])

    x = {name: torch.randn(*size, generator=generator) for name, size in SIZES.items()}
    return x, {kind: ends(kind[0], kind[2]) for kind in kinds}


def made(kinds: Any = KINDS, aggr: Any = "sum", **options: Any) -> Any:
    torch.manual_seed(6)
    return pyg.HeteroConv(
        {(a, r, b): pyg.SAGEConv((SIZES[a][1], SIZES[b][1]), 4, **options) for a, r, b in kinds}, aggr=aggr
    )


@pytest.mark.parametrize("aggr", ["sum", "mean", "min", "max", "cat", None])
def test_what_kinds_of_edges_say_together(aggr: Any) -> None:
    x, edge_index = given()
    check(made(aggr=aggr), x, edge_index)
    check(made(aggr=aggr), x, {kind: index for kind, index in edge_index.items() if kind[1] not in ("cites", "by")})
    check(made(aggr=aggr), x, {kind: index[:, :0] for kind, index in edge_index.items()})
    check(made(KINDS[4:5], aggr), x, edge_index)


@pytest.mark.parametrize(
    "options",
    [{"aggr": "max"}, {"aggr": "sum"}, {"root_weight": False}, {"bias": False}, {"normalize": True}, {"project": True}],
)
def test_options_of_the_convolutions(options: Any) -> None:
    own = dict(options)
    convs = {
        kind: pyg.SAGEConv((SIZES[kind[0]][1], SIZES[kind[2]][1]), 4, **own if number % 2 else {})
        for number, kind in enumerate(KINDS)
    }
    check(pyg.HeteroConv(convs), *given())
    check(pyg.HeteroConv(convs, aggr="mean"), *given())


def test_other_convolutions_beside_them() -> None:
    convs = dict(made().convs.items())
    convs[KINDS[0]] = pyg.GATConv((5, 40), 4, add_self_loops=False)
    convs[KINDS[4]] = pyg.GCNConv(5, 4)
    x, edge_index = given()
    check(pyg.HeteroConv(convs, aggr="mean"), x, edge_index)
    check(pyg.HeteroConv(convs), x_dict=x, edge_index_dict=edge_index)


def test_receivers_are_mapped_once_by_the_sum_of_the_weights() -> None:
    layer = convert(made())
    assert conversion(layer).twins[""] == "HeteroConv"
    x, edge_index = given()
    with mock.patch.object(hetero, "product", wraps=hetero.product) as seen:
        layer(x, edge_index)
    assert [call.args[1] is x[end] for call, end in zip(seen.mock_calls, ("paper", "author"), strict=True)] == [
        True
    ] * 2
    weights = [layer.convs[kind].lin_r.weight for kind in KINDS[:3]]
    torch.testing.assert_close(seen.mock_calls[0].args[0], sum(weights))


def test_features_of_few_words_are_multiplied_by_their_words() -> None:
    x, edge_index = given()
    x["paper"] = torch.zeros(14, 40).index_put((torch.arange(14), torch.arange(14) * 2), torch.ones(()))
    layer = made()
    ours = convert(deepcopy(layer))
    for _ in range(6):
        y = ours(x, edge_index)
    for kind, expected in layer(x, edge_index).items():
        torch.testing.assert_close(y[kind], expected)


def test_unknown_widths_are_found_at_the_first_call() -> None:
    layer = pyg.HeteroConv({kind: pyg.SAGEConv((-1, -1), 4) for kind in KINDS})
    ours = convert(deepcopy(layer))
    x, edge_index = given()
    with torch.no_grad():
        ours(x, edge_index), layer(x, edge_index)
    layer.load_state_dict(ours.state_dict())
    for kind, expected in layer(x, edge_index).items():
        torch.testing.assert_close(ours(x, edge_index)[kind], expected)


@pytest.mark.parametrize("part", ["", ".lin_r"])
def test_those_who_look_at_a_convolution_see_it(part: str) -> None:
    layer = made()
    ours, (x, edge_index), calls = convert(deepcopy(layer)), given(), list[Any]()
    names = {name for name, _ in ours.named_modules() if name.endswith(f"writes___paper>{part}")}
    assert len(names) == 1
    ours.get_submodule(names.pop()).register_forward_hook(lambda *args: calls.append(args[-1]))
    for kind, expected in layer(x, edge_index).items():
        torch.testing.assert_close(ours(x, edge_index)[kind], expected)
    assert calls


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which the compiler reads of what a graph break leaves
def test_compiled_and_autocast() -> None:
    layer = made()
    ours, (x, edge_index) = convert(deepcopy(layer)), given()
    found = torch.compile(ours, backend="eager")(x, edge_index)
    for kind, expected in layer(x, edge_index).items():
        torch.testing.assert_close(found[kind], expected)
    with torch.autocast("cpu", torch.bfloat16):
        found, right = ours(x, edge_index), layer(x, edge_index)
    for kind, expected in right.items():
        assert found[kind].dtype == expected.dtype
        torch.testing.assert_close(found[kind].float(), expected.float(), atol=5e-2, rtol=5e-2)


def test_wrong_names_are_refused_as_before() -> None:
    x, edge_index = given()
    with pytest.raises(ValueError, match="need to end with '_dict'"):
        convert(made())(x, edge_index, weights={})
