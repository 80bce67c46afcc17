import torch

from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached, derived, per_tensor


class Square:
    side = 3

    def __init__(self) -> None:
        self.built = 0

    @derived
    def area(self) -> torch.Tensor:
        """side^2"""
        self.built += 1
        return torch.tensor(self.side) ** 2


def test_a_derived_value_is_built_once_and_is_an_attribute_then() -> None:
    square = Square()
    assert "area" not in vars(square)
    assert square.area is square.area is vars(square)["area"]
    assert square.built == 1
    assert Square.area.__doc__ == "side^2"


def test_a_value_of_tensors_first_read_in_inference_mode_can_be_saved_for_backward() -> None:
    double = per_tensor(lambda x: 2 * x)
    x = torch.ones(2)
    with torch.inference_mode():
        made = double(x)
    assert not made.is_inference() and double(x) is made
    x.add_(1)
    assert double(x) is not made and double(x).tolist() == [4.0, 4.0]


def test_a_cached_function_is_computed_once_for_each_graph_and_arguments() -> None:
    calls = []

    @cached
    def scaled(graph: Graph, factor: float) -> float:
        calls.append(factor)
        return factor * graph.num_edges

    one, other = complete(2), complete(3)
    assert [scaled(one, 2.0), scaled(one, 2.0), scaled(one, 0.5), scaled(other, 2.0)] == [8, 8, 2, 18]
    assert calls == [2.0, 0.5, 2.0]


def test_two_cached_functions_of_one_name_in_two_modules_do_not_share_values() -> None:
    first, second = (lambda graph: "first"), (lambda graph: "second")
    first.__module__, second.__module__ = "one", "other"
    graph = complete(2)
    assert (cached(first)(graph), cached(second)(graph)) == ("first", "second")
