import torch
from torch import Tensor

from edgewise.layers.plain.running import uncompiled

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
