"""Kernels of a GPU are trusted on a card once they have computed there what `reference` does.

The first call of each kind (a verb with its score or reduction, in a dtype) that a kernel is to run on a card checks it
on small graphs, forward and backward. What came out is cached for the card, its driver, PyTorch, Triton and the
kernels' sources; a kernel that failed is refused for that kind of call from then on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from edgewise.graphs import Graph, complete, window
from edgewise.kernels.backend import Backend
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.torch import reference
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.scores import Additive, Dot, EdgeBias, EdgeVectors, GatedAdditive, Score, SenderBias

# The largest error beside the largest result, or beside 1: float32 products of tensor cores and sums over 600 edges
# stay below 1e-5, those of 8 bits of mantissa below 3e-2, in the interpreter.
TOLERANCES = {torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}

CHECKED: dict[str, Backend] = {}  # what needs a check, by name; `edgewise.kernels.backends` fills it
_verdicts: dict[tuple[int, str], str] = {}  # by card, kernel and kind: "" where it passed, else what failed
_checking: set[tuple[int, str]] = set()

Make = Callable[[Graph, Sequence[Tensor]], Call]
Kind = tuple[str, torch.dtype]  # what is checked at once: a verb and its score or reduction, and a dtype


def refusal(name: str, call: Call) -> str | None:
    """Why a kernel is not to be trusted with a call on its device, or None; the first time on a card this checks it."""
    device = call.graph.device
    if device.type != "cuda" or not gpu.INSTALLED:
        return None
    failed = verdict(name, device.index, *kind_of(call))
    return f"it failed its self-check on this GPU ({failed}); `edgewise doctor` says more" if failed else None


def kind_of(call: Call) -> Kind:
    """Which of the cases tell of a call: those of its verb and its score or reduction, or what is most like it."""
    if isinstance(call, Aggregate):
        return f"aggregate, {call.reduce}", call.dtype
    if not isinstance(call, Attend):
        return f"collect, {'max' if call.reduce in ('max', 'min') else 'sum'}", call.dtype
    score = call.score
    if isinstance(score, Additive | GatedAdditive):
        return f"attend, {type(score).__name__}", call.dtype
    by_sender = any(isinstance(bias, SenderBias) for bias in score.biases)
    beside = " + EdgeVectors" if score.vectors else " + SenderBias" if by_sender else " + EdgeBias"
    return f"attend, Dot{beside if score.vectors or score.biases else ''}", call.dtype


def verdict(name: str, index: int | None, what: str, dtype: torch.dtype) -> str:
    """What failed in the self-check of a kernel on a card, or "": measured now, or by an earlier process."""
    index = torch.cuda.current_device() if index is None else index
    entry = f"{name}, {what}, {_word(dtype)}"
    key = index, entry
    if key in _checking:  # the check itself plans nothing, but asks whether its calls are taken
        return ""
    if key not in _verdicts and isinstance(cached := gpu.remembered("selfcheck", index).get(entry), str):
        _verdicts[key] = cached
    if key not in _verdicts:
        if torch.cuda.is_current_stream_capturing():
            return "not run yet, and it cannot run while a CUDA graph is captured"
        _checking.add(key)
        try:
            _verdicts[key] = check(CHECKED[name], torch.device("cuda", index), (what, dtype))
        finally:
            _checking.discard(key)
        gpu.remember("selfcheck", index, entry, _verdicts[key])
        if _verdicts[key]:
            said = f"{name!r} is not used for such calls ({what}, {_word(dtype)}) on this GPU: {_verdicts[key]}"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
    return _verdicts[key]


verdict._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile runs it while it traces


def known(index: int) -> dict[str, str]:
    """The verdicts that there are for a card, by kernel and kind of call, without checking anything."""
    earlier = {entry: failed for entry, failed in gpu.remembered("selfcheck", index).items() if isinstance(failed, str)}
    return earlier | {entry: failed for (card, entry), failed in _verdicts.items() if card == index}


def check(backend: Backend, device: torch.device, kind: Kind | None = None) -> str:
    """The first case in which a backend does not compute what `reference` does, and how; or "".

    Symbols     kind = the cases of these alone
    Cost        a second of computing; on a card, beside half a second for each kernel that was never compiled
    """
    with _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
        for what, where, dtypes, graph, shapes, make in _cases():
            if kind is not None and (what != kind[0] or kind[1] not in dtypes):
                continue
            generator = torch.Generator().manual_seed(0)
            drawn = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
            for dtype in dtypes if kind is None else (kind[1],):
                try:
                    failed = _compared(backend, graph, make, [x.to(dtype) for x in drawn], device)
                except Exception as error:  # of a compiler, a driver or a kernel: any of them is a failure
                    failed = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                if failed:
                    return f"{what}, {where} in {_word(dtype)}: {failed}"
    return ""


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _compared(backend: Backend, graph: Graph, make: Make, tensors: Sequence[Tensor], device: torch.device) -> str:
    """What is wrong with the result or a gradient; "" where nothing is, or where the backend does not take the case."""
    leaves = [x.to(device).requires_grad_() for x in tensors]
    call = make(graph.to(device), leaves).lowered()
    if backend.refusal(call) is not None:
        return ""
    wide = [x.double().requires_grad_() for x in tensors]
    expected = _values(reference.run(make(graph, wide)), wide)
    for n, (value, right) in enumerate(zip(_values(backend.run(call), leaves), expected, strict=True)):
        error = (value.cpu().double() - right).abs().amax().item() / max(1.0, right.abs().amax().item())
        if not error <= TOLERANCES[tensors[0].dtype]:  # nor is NaN
            return f"{'the result' if n == 0 else f'the gradient of tensor {n}'} is off by {error:.1e}"
    return ""


def _values(y: Tensor | tuple[Tensor, ...], leaves: Sequence[Tensor]) -> list[Tensor]:
    """The result, and the gradients of a weighted sum of it."""
    assert isinstance(y, Tensor)
    dy = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy.to(y.device, y.dtype))]


Case = tuple[str, str, tuple[torch.dtype, ...], Graph, list[tuple[int, ...]], Make]


def _cases() -> Iterator[Case]:
    """Kind, the graph's name, dtypes, graph, the shapes of the tensors that are drawn, and the call on them."""
    every, single = tuple(TOLERANCES), (torch.float32,)
    for where, graph in _graphs().items():
        receivers, senders, edges = graph.num_receivers, graph.num_senders, graph.num_edges
        ends: list[tuple[int, ...]] = [(receivers, 2, 16), (senders, 2, 16), (senders, 2, 24)]
        yield "attend, Dot", where, every, graph, ends, _attends(Dot)
        more = [*ends, (edges, 2)]
        yield "attend, Dot + EdgeBias", where, every, graph, more, _attends(lambda b: Dot() + EdgeBias(b))
        more = [*ends, (senders, 2)]
        yield "attend, Dot + SenderBias", where, every, graph, more, _attends(lambda b: Dot() + SenderBias(b))
        more = [*ends, (edges, 2, 16), (edges, 2, 24)]
        vectors = _attends(lambda k, v: Dot() + EdgeVectors(k, v))
        yield "attend, Dot + EdgeVectors", where, every, graph, more, vectors
        yield "attend, GatedAdditive", where, every, graph, [*ends, (2, 16)], _attends(GatedAdditive)
        numbers = [(receivers, 2, 1), (senders, 2, 1), ends[2]]
        yield "attend, Additive", where, every, graph, numbers, _attends(Additive)
        for reduce in ("sum", "mean", "max", "min"):
            # Rounded products may be equal where exact ones are not, and then share the gradient of an extreme.
            dtypes = every if reduce in ("sum", "mean") else single
            yield f"aggregate, {reduce}", where, dtypes, graph, [ends[2], (edges, 2)], partial(_aggregates, reduce)
            yield f"aggregate, {reduce}", where, every, graph, [(senders, 48)], partial(_aggregates, reduce)
        for reduce in ("sum", "max"):
            yield f"collect, {reduce}", where, every, graph, [(edges, 24)], partial(_collects, reduce)


def _attends(score: Callable[..., Score]) -> Make:
    return lambda graph, t: Attend(graph, t[0], t[1], t[2], score(*t[3:]))


def _aggregates(reduce: str, graph: Graph, t: Sequence[Tensor]) -> Call:
    return Aggregate(graph, t[0], t[1] if len(t) > 1 else None, reduce)


def _collects(reduce: str, graph: Graph, t: Sequence[Tensor]) -> Call:
    return Collect(graph, t[0], reduce)


def _graphs() -> dict[str, Graph]:
    """A hub of 600 senders, which is cut into chunks, and one of 600 receivers; a batch of blocks; a window."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(20, 600, generator=generator) < 0.02
    mask[0], mask[1] = True, False
    return {
        "a hub": Graph.from_edge_index(mask.nonzero().T.flip(0), 600, 20),
        "a hub of receivers": Graph.from_edge_index(mask.nonzero().T, 20, 600),
        "blocks": Graph.batch([complete(5), complete(33), complete(70)]),
        "a window": window(48, 4),
    }
