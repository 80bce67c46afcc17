"""What contexts of several threads change of the process is undone, in whichever order they end."""

import itertools
from threading import Event, Thread

import pytest
import torch

from edgewise import plans, record, use_backend
from edgewise.kernels.choose import dispatch
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


def test_one_that_cannot_begin_changes_nothing() -> None:
    def refuse(value: int) -> int:
        raise RuntimeError("inside a compiled function")

    overlapping = Overlapping(refuse)
    with pytest.raises(RuntimeError, match="compiled function"), overlapping.holding(1):
        pass
    assert not overlapping.open


def test_backends_of_threads_that_overlap_are_forced_no_longer() -> None:
    inside, other_inside, outside = Event(), Event(), Event()

    def first() -> None:
        with use_backend("segment"):
            inside.set()
            other_inside.wait(10)
        outside.set()

    def second() -> None:
        inside.wait(10)
        with use_backend("tiled"):
            other_inside.set()
            outside.wait(10)
            seen.append(dispatch._forced_for_compiler)

    seen: list[object] = []
    threads = [Thread(target=run) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["tiled"]
    assert dispatch._forced_for_compiler is None


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
