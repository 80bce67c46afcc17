"""The public operators refuse what would let their kernels leave their tensors' memory."""

from contextlib import suppress

import pytest
import torch
from torch import Tensor

from edgewise import Graph
from edgewise.errors import ShapeError
from edgewise.kernels.backends.cpu import edges
from fuzz.operators import call_operator, examples


def right(name, without=()):
    """The arguments of a right call, by name, of which those in `without` are not given."""
    for operator, values in examples():
        schema = getattr(torch.ops.edgewise, name).default._schema
        arguments = dict(zip([argument.name for argument in schema.arguments], values, strict=False))
        if operator == f"edgewise::{name}" and all(
            (arguments[field] is None) == (field in without) for field in ("bias", "a")
        ):
            return arguments
    raise AssertionError(name)


def call(name, arguments):
    return getattr(torch.ops.edgewise, name).default(*arguments.values())


@pytest.mark.parametrize("name", ["attend_edges", "attend_edges_gradient"])
@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        ("score", 1, r"q is .* must be \[1, 5, 2, 1\]"),
        ("k", torch.zeros(1, 5, 2, 3), r"k is .* must be \[1, 5, 2, 4\]"),
        ("v", torch.zeros(1, 5, 2, 3, dtype=torch.float16), "v is torch.float16"),
        ("bias", torch.zeros(6, 2), r"bias is .* must be \[1, 6, 2\]"),
        ("structure", [], "structure has 0 tensors"),
        ("dropout", 1.5, "dropout is a probability"),
        ("seed", torch.zeros(1), "seed must be"),
        ("keys", torch.zeros(1, 6, 2, 4), "no keys and values of edges"),
    ],
)
def test_attention_refuses_wrong_arguments(name, field, wrong, message):
    arguments = right(name, without=("bias", "a"))
    call(name, arguments)
    with pytest.raises(ShapeError, match=message):
        call(name, arguments | {field: wrong})


@pytest.mark.parametrize("field", ["structure", "reverse"])
@pytest.mark.parametrize("number", range(2))
def test_a_structure_that_leads_elsewhere_is_refused(field, number):
    arguments = right("attend_edges_gradient", without=("bias", "a"))
    structure = [x.clone() for x in arguments[field]]
    structure[number][-1] = 99
    with pytest.raises(ShapeError, match="must"):
        call("attend_edges_gradient", arguments | {field: structure})


def test_the_places_of_the_transpose_are_checked():
    arguments = right("attend_edges_gradient", without=("bias", "a"))
    *edges, places = arguments["reverse"]
    with pytest.raises(ShapeError, match="index must lie"):
        call("attend_edges_gradient", arguments | {"reverse": [*edges, places + 1]})


@pytest.mark.parametrize("number", range(len(examples())))
def test_an_operator_survives_whatever_one_argument_becomes(number):
    for argument in range(len(examples()[number][1])):
        for kind in range(12):
            first = number + 128 * (kind % 2)  # alone, or with its backward pass
            with suppress(ShapeError):
                call_operator(bytes([first, argument, kind, kind % 6]))


def transposes():
    return [
        (n, place)
        for n, (name, _) in enumerate(examples())
        for place, argument in enumerate(getattr(torch.ops.edgewise, name.split("::")[1]).default._schema.arguments)
        if argument.name == "reverse"
    ]


@pytest.mark.parametrize(("number", "place"), transposes())
def test_a_gradient_refuses_a_transpose_that_lacks_a_part(number, place):
    for left_out in (None, 0, 1, 2, 3):
        _without(number, place, left_out)


def _without(number, place, left_out):
    name, values = examples()[number]
    reverse = [] if left_out is None else list(values[place])
    if left_out is not None:
        if left_out >= len(reverse):
            return
        reverse[left_out] = reverse[left_out][:0]
    learns = torch._C._dispatch_has_kernel_for_dispatch_key(name, "Autograd")
    values = [
        x.detach().requires_grad_(learns and x.is_floating_point()) if isinstance(x, Tensor) else x for x in values
    ]
    values[place] = reverse
    results = reached = None
    with suppress(ShapeError):
        results = getattr(torch.ops.edgewise, name.split("::")[1]).default(*values)
        first = results if isinstance(results, Tensor) else results[0]
        if first.requires_grad:
            first.sum().backward()
        reached = True
    # What is not read may be absent: the places; and a product's edges have their own numbers where none are given.
    unread = left_out == 3 or (left_out == 2 and ("product" in name or "extreme" in name))
    unread |= left_out is None and name == "edgewise::edge_additive_gradient"  # it sums by receivers alone
    assert reached is None or unread


def test_offsets_that_lie_where_right_ones_lay_are_checked():
    arguments = right("attend_edges", without=("bias", "a"))
    offsets, index, *more = arguments["structure"]
    place = offsets.numpy().copy()
    call("attend_edges", arguments | {"structure": [torch.from_numpy(place), index, *more]})
    place[-1] = 99
    with pytest.raises(ShapeError, match="offsets must ascend"):
        call("attend_edges", arguments | {"structure": [torch.from_numpy(place), index, *more]})


def test_numbers_of_edges_are_as_many_as_edges():
    offsets, index = torch.tensor([0, 1, 3]), torch.tensor([0, 1, 0], dtype=torch.int32)
    x, weight = torch.ones(1, 2, 1, 3), torch.ones(1, 3, 1)
    for number in (index[:0], torch.tensor([2, 1, 0], dtype=torch.int32)):
        assert torch.ops.edgewise.product(x, weight, [offsets, index, number], [], 0).shape == (1, 2, 1, 3)
    with pytest.raises(ShapeError, match="edge has 1 numbers for 3 edges"):
        torch.ops.edgewise.product(x, weight, [offsets, index, index[:1].clone()], [], 0)


def test_scores_have_both_ends_of_all_edges_and_an_order_is_of_64_bits():
    """An end for each receiver was written where there was room for one; an order was checked in 32 bits."""
    n, ops = 64, torch.ops.edgewise
    graph = Graph.from_edge_index([list(range(n))] * 2, n)
    structure, reverse = list(edges.structure_of(graph)), list(edges.reverse_of(graph))
    a, b, r = torch.randn(1, 1, 1, 8), torch.randn(1, n, 1, 8), torch.randn(1, 8)
    with pytest.raises(ShapeError, match="both ends of all edges"):
        ops.edge_scores(a, b, None, None, structure, reverse, r, 0.2)
    starts, stops = torch.zeros(n, 1).long(), torch.full((n, 1), n)
    order = torch.arange(n)
    order[5] += 2**32
    q, seed = torch.randn(1, n, 1, 8), torch.zeros(1).long()
    with pytest.raises(ShapeError, match=r"order must lie in 0, \.\.\., 63"):
        ops.attend_tiles(q, q, q, None, starts, stops, order, None, 1.0, 0.0, seed)
