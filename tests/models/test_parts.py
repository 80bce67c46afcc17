"""The parts that several models choose from: what is built, and which options each takes."""

import pytest
import torch

from edgewise.configuration import Choice, chosen
from edgewise.layers import GatedFeedForward
from edgewise.models.parts import FEED_FORWARDS


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_a_feed_forward_network_is_four_times_as_wide_unless_told(name: str) -> None:
    usual = FEED_FORWARDS[name](4, True)
    narrow = chosen("feed_forward", Choice(name, {"hidden": 5}), FEED_FORWARDS)(4, False)
    assert usual.down.in_features == 16
    assert narrow.down.in_features == 5
    assert [name for name, _ in narrow.named_parameters() if name.endswith("bias")] == []
    assert isinstance(usual, GatedFeedForward) == (name in ("swiglu", "geglu"))
    assert narrow(torch.zeros(3, 4)).shape == (3, 4)
