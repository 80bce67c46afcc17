"""The parts that several models choose from: what is built, and which options each takes."""

import pytest
import torch
from torch import nn

from edgewise.configuration import Choice, OneOf, chosen
from edgewise.layers import GatedFeedForward, PostNormBlock, PreNormBlock
from edgewise.models.parts import BLOCKS, FEED_FORWARDS


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_a_feed_forward_network_is_four_times_as_wide_unless_told(name: str) -> None:
    usual = FEED_FORWARDS[name](4, True)
    narrow = chosen("feed_forward", Choice(name, {"hidden": 5}), FEED_FORWARDS)(4, False)
    assert usual.down.in_features == 16
    assert narrow.down.in_features == 5
    assert [name for name, _ in narrow.named_parameters() if name.endswith("bias")] == []
    assert isinstance(usual, GatedFeedForward) == (name in ("swiglu", "geglu"))
    assert narrow(torch.zeros(3, 4)).shape == (3, 4)


def test_a_block_normalises_before_or_after_its_stages() -> None:
    pre, post = (BLOCKS[name](norm="batch") for name in ("pre-norm", "post-norm"))
    assert (pre.encoder, post.encoder) == (PreNormBlock, PostNormBlock)
    assert (pre.last, post.last) == ("batch", "none")
    block = pre.encoder(4, nn.Identity(), nn.Identity(), pre.norm, 0.0)
    assert type(block.norm_1).__name__ == "BatchNorm"
    assert list(OneOf(BLOCKS).options("pre-norm")) == ["norm", "bias"]
