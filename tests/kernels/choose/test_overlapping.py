"""What contexts of several threads change of the process is undone, in whichever order they end."""

import itertools

import pytest
import torch

from edgewise import plans, record
from edgewise.kernels.choose.overlapping import Overlapping
from edgewise.kernels.gates import gated


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_last_that_remains_decides(order: tuple[int, ...]) -> None:
    setting = ["before"]

    def exchange(value: str) -> str:
        setting.append(value)
        return setting.pop(0)

    overlapping = Overlapping(exchange)
    contexts = [overlapping.holding(name) for name in "abc"]
    for context in contexts:
        context.__enter__()
    assert setting == ["c"]
    left = set("abc")
    for number in order:
        contexts[number].__exit__(None, None, None)
        left.remove("abc"[number])
        assert setting == [max(left, default="before")]


@pytest.mark.parametrize("kinds", [(record, plans), (plans, lambda: gated(None))])
def test_compiled_functions_are_compiled_after_contexts_that_overlap(kinds) -> None:
    from torch._dynamo import eval_frame

    before = eval_frame._stance
    first, second = (kind() for kind in kinds)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert eval_frame._stance.stance == "force_eager"
    second.__exit__(None, None, None)
    assert eval_frame._stance == before
    with torch.compiler.set_stance("eager_on_recompile"), record():
        assert eval_frame._stance.stance == "force_eager"
    assert eval_frame._stance == before
