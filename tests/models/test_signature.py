"""A signature refuses widths that no model can have."""

import pytest

from edgewise.errors import ConfigError
from edgewise.models.signature import Signature


@pytest.mark.parametrize("wrong", [{"inputs": 0}, {"outputs": -1}, {"length": 0}])
def test_widths_below_one_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Signature(**({"inputs": 3, "outputs": 2} | wrong))


def test_length_may_be_absent() -> None:
    assert Signature(3, 2).length is None
