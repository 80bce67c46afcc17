import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from edgewise.layers.plain.running import CALLS, States, uncompiled

seen = []


@uncompiled
def doubled(x: Tensor) -> Tensor:
    """Twice x."""
    seen.append(torch.compiler.is_compiling())
    return inner(x) * 2


def inner(x: Tensor) -> Tensor:
    seen.append(torch.compiler.is_compiling())
    return x


def test_the_compiler_leaves_it_and_what_it_calls_alone() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    @torch.compile(backend=backend)
    def around(x: Tensor) -> Tensor:
        return doubled(x + 1) - 1

    for n in range(3):
        seen.clear()
        assert torch.equal(around(torch.tensor([1.0 * n])), torch.tensor([2.0 * n + 1]))
        assert seen == [False, False]
    assert len(graphs) == 2, "one before it, one after"


@pytest.mark.parametrize("reentrant", [False, True])
def test_every_recent_call_of_a_checkpoint_finds_its_own_state(reentrant):
    states, seen, x = States[int](), [], torch.ones(1, requires_grad=True)
    numbers = iter(range(CALLS + 2))

    def call(x: torch.Tensor) -> torch.Tensor:
        known = states.first()
        seen.append(known)
        if known is None:
            number = next(numbers)
            states.keep(lambda: number)
        return x.cos()

    y = x
    for _ in range(CALLS + 1):
        y = checkpoint(call, y, use_reentrant=reentrant)
    y.backward()
    assert seen[CALLS + 1 :] == [*range(CALLS, 0, -1), None]  # one call too many ago


def test_other_calls_draw_no_numbers_and_keep_nothing():
    states, before = States[int](), torch.get_rng_state()
    assert states.first() is None
    states.keep(lambda: 1 / 0)
    assert torch.equal(torch.get_rng_state(), before)
