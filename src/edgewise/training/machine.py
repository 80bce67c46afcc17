"""How a step uses the machine: threads, batches made ahead, CUDA graphs, blocks that are recomputed to save memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from math import prod
from threading import Barrier
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from edgewise.graphs import Graph
from edgewise.layers.plain.running import restored
from edgewise.training.ranks import blocks_of

# A region of two threads begins and ends in 5 to 15 µs on two cores of an AMD EPYC, and in milliseconds where other
# programs use them: a thread must have this much of the mean operation to do.
WORTH = 25e-6  # seconds
FLOPS, BYTES = 8e10, 1e10  # a second, of one such core in float32: matrix products, and all other operations


def worthwhile(compute: Callable[[], object], most: int) -> int:
    """The number of threads, from 1 to `most`, of which each has WORTH of a computation's mean operation to do.

    Edge cases  one pass is carried out to count its operations: it follows from shapes alone, whatever else runs
    Example
        >>> small, large = torch.zeros(8, 8), torch.zeros(1000, 1000)
        >>> worthwhile(lambda: small @ small, most=4), worthwhile(lambda: large @ large, most=4)
        (1, 4)
    """
    if most == 1:
        return 1
    with _Work() as work, torch.no_grad(), torch.random.fork_rng(devices=[]):
        compute()
    return max(1, min(most, int(work.seconds / max(1, work.operations) / WORTH)))


class _Work(TorchDispatchMode):
    """Counts what is carried out inside: operations, and the seconds that they would take on one thread."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.seconds = 0, 0.0


def _count(work: _Work, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    y = func(*args, **(kwargs or {}))
    if not func.is_view:
        moved = sum(x.numel() * x.element_size() for x in tree_leaves((args, kwargs, y)) if isinstance(x, Tensor))
        work.operations += 1
        work.seconds += moved / BYTES + _flops(func.__name__.split(".")[0], args, y) / FLOPS
    return y


# Outside of the class: what is defined inside, PyTorch wraps so that the first operation imports the compiler (1.1 s).
_Work.__torch_dispatch__ = _count  # type: ignore[assignment, method-assign]


def _flops(name: str, args: Any, y: Any) -> int:
    """Multiplications and additions of a product; 0 of any other operation, whose bytes count."""
    if name in ("mm", "bmm"):
        return 2 * y.numel() * args[0].shape[-1]
    if name in ("addmm", "baddbmm"):
        return 2 * y.numel() * args[1].shape[-1]
    if name == "convolution":
        return 2 * y.numel() * prod(args[1].shape[1:])
    if name.startswith("_scaled_dot_product"):
        return 4 * args[0].numel() * args[1].shape[-2]
    return 0


T = TypeVar("T")


class Prefetch(Generic[T]):
    """`prefetch(step)` is `make(step)`, for steps requested in turn; threads have made it by then.

    Symbols     make = what makes the batch of a step; last = the last step; workers = number of threads, at least 1
    Errors      what `make` raised, when its step is requested
    Edge cases  the first step is made at once, so that what `make` caches is there before several threads need it
    Cost        memory of 2 * workers - 1 batches beside the one that trains. A worker runs PyTorch and the C++ kernels
                on one thread; both let go of Python's lock

    `make` may be called by several threads at once, for different steps, and must give the same whoever calls it.

    Example
        >>> from contextlib import closing
        >>> with closing(Prefetch(lambda step: f"batch {step}", last=3, workers=2)) as prefetch:
        ...     [prefetch(step) for step in (1, 2, 3)]
        ['batch 1', 'batch 2', 'batch 3']
    """

    def __init__(self, make: Callable[[int], T], last: int, workers: int) -> None:
        self.make, self.last, self.ahead = make, last, 2 * workers - 1
        self.waiting: dict[int, Future[T]] = {}
        self.pool = ThreadPoolExecutor(workers, "batches")
        count, together = torch.get_num_threads(), Barrier(workers, timeout=60)
        for job in [self.pool.submit(_keep_to_one_thread, together) for _ in range(workers)]:
            job.result()
        torch.set_num_threads(count)  # MKL has one number for all threads, which the workers have just set

    def __call__(self, step: int) -> T:
        made = self.waiting.pop(step, None)
        if made is None:
            made = Future[T]()
            made.set_result(self.make(step))
        for later in range(step + 1, min(step + self.ahead, self.last) + 1):
            if later not in self.waiting:
                self.waiting[later] = self.pool.submit(self.make, later)
        return made.result()

    def close(self) -> None:
        """Wait for the batches that are being made, make no more, and end the threads."""
        self.pool.shutdown(cancel_futures=True)


def _keep_to_one_thread(together: Barrier) -> None:
    """In a worker: once every worker is here, each with its own number of threads for OpenMP."""
    together.wait()
    torch.get_num_threads()  # PyTorch gives a new thread the common number here, so later it would undo the next line
    torch.set_num_threads(1)


CHANGES = 8  # kinds of inputs after which no more are captured


class Captured:
    """`model(*inputs)` in training: from the second call in a row with inputs of one kind on, by CUDA graphs.

    Symbols     autocast = the context in which it is captured; refused = why it is not captured any more, or ""
    Edge cases  inputs are of one kind if their tensors have the same shapes and all else is the same, or a graph of an
                equal rule. A model whose outputs are no tensor, that draws random numbers on the host or waits for
                numbers of the card runs as it is
    """

    def __init__(self, model: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self.model, self.autocast = model, autocast
        self.kind: tuple[Any, ...] = ()
        self.held: tuple[Any, ...] = ()  # what the kind names by its address
        self.replay: Callable[..., Any] | None = None
        self.changes, self.refused = 0, ""

    def __call__(self, *inputs: Any) -> Any:
        if self.refused:
            return self.model(*inputs)
        if (kind := _kind(inputs)) != self.kind:
            self.kind, self.held, self.replay = kind, inputs, None
            self.changes += 1
            if self.changes > CHANGES:
                self.refused = "the shapes or graphs of batches change"
            return self.watched(inputs)
        if self.replay is None:
            self.replay = self.capture(inputs)
        return self.model(*inputs) if self.replay is None else self.replay(*_tensors(inputs))

    def watched(self, inputs: tuple[Any, ...]) -> Any:
        """An ordinary pass, and whether one like it can be captured."""
        before = torch.get_rng_state()
        outputs = self.model(*inputs)
        if not isinstance(outputs, Tensor):
            self.refused = "its outputs are more than a tensor"
        elif not torch.equal(before, torch.get_rng_state()):
            self.refused = "the host draws random numbers in a step"
        return outputs

    def capture(self, inputs: tuple[Any, ...]) -> Callable[..., Any] | None:
        """The pass as a function of its tensors; rehearsals move neither buffers nor random numbers."""
        buffers, drawn = [b.clone() for b in self.model.buffers()], torch.cuda.get_rng_state()
        try:
            with self.autocast():
                sample = tuple(x.detach().clone().requires_grad_(x.requires_grad) for x in _tensors(inputs))
                made: Any = torch.cuda.make_graphed_callables(_OfTensors(self.model, inputs), sample, 3, True)
        except RuntimeError as error:  # of whatever a graph cannot hold
            self.refused = " ".join(str(error).split())[:200]
            torch.cuda.synchronize()
            generator = torch.cuda.default_generators[torch.cuda.current_device()]  # counts on for the failed graph
            generator.graphsafe_set_state(torch.Generator("cuda").graphsafe_get_state())
            made = None
        torch.cuda.set_rng_state(drawn)
        with torch.no_grad():
            for buffer, value in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(value)
        return made if made is None else lambda *tensors: made(*tensors)


class _OfTensors(nn.Module):
    """A model as a function of its inputs' tensors; all else stays as it is."""

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, *tensors: Tensor) -> Any:
        rest = iter(tensors)
        return self.model(*(next(rest) if isinstance(x, Tensor) else x for x in self.inputs))


def _tensors(inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return tuple(x for x in inputs if isinstance(x, Tensor))


def _kind(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What has to stay for a CUDA graph to serve."""
    found: list[Any] = []
    for x in inputs:
        if isinstance(x, Tensor):
            found.append((x.shape, x.stride(), x.dtype, x.device))
        elif isinstance(x, Graph) and x.rule is not None:  # as good as another that is equal
            found.append((x.device, x.num_receivers, x.num_senders, x.offset, x.rule))
        else:
            found.append(id(x))
    return tuple(found)


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
