import pytest

from edgewise import ConfigError
from edgewise.layers import chosen


def test_a_known_name_is_found_and_an_unknown_one_lists_what_there_is():
    table = {"layer": 1, "none": 2}
    assert chosen("norm", "none", table) == 2
    with pytest.raises(ConfigError, match="norm 'nine' is unknown: choose one of layer, none"):
        chosen("norm", "nine", table)
