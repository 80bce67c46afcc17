"""Blocks that store their inputs alone and compute the rest again in the backward pass: less memory."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from edgewise.layers.plain.recomputation import restored
from edgewise.training.ranks.shards import blocks_of


@contextmanager
def recomputed(model: nn.Module) -> Iterator[None]:
    """Within, each block of a model stores its inputs alone while it trains; backward computes the rest once more."""
    with ExitStack() as undone:
        for block in dict.fromkeys(blocks_of(model)):  # one that is stacked twice has one forward
            undone.callback(_restore, block, vars(block).get("forward"))
            again = partial(_contexts, block)
            block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=again)
        yield


def _restore(block: nn.Module, own: Any) -> None:
    """Give a block the forward of its class again, or the one that it had itself."""
    if own is None:
        del block.forward
    else:
        block.forward = own


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Those of a block's forward pass and of its recomputation, which begins with the same buffers."""
    return restored(), _Before(block) if torch.is_grad_enabled() else nullcontext()


class _Before:
    """A context, which may be entered many times, in which a block has copies of the buffers that it had at first."""

    def __init__(self, block: nn.Module) -> None:
        self.owners = [part._buffers for part in block.modules()]
        self.first = [{n: t.clone() for n, t in own.items() if t is not None} for own in self.owners]

    def __enter__(self) -> None:
        self.within = restored()
        self.within.__enter__()
        self.present = [dict(own) for own in self.owners]
        for own, first in zip(self.owners, self.first, strict=True):
            own.update({name: value.clone() for name, value in first.items()})

    def __exit__(self, *_: object) -> None:
        for own, present in zip(self.owners, self.present, strict=True):
            own.update(present)
        self.within.__exit__(None, None, None)
