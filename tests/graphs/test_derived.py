import torch

from edgewise.graphs.derived import derived


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


def test_a_value_first_read_in_inference_mode_can_be_saved_for_backward() -> None:
    square = Square()
    with torch.inference_mode():
        assert not square.area.is_inference()
