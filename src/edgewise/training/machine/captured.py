"""A training step as one CUDA graph: where each step is the same work on tensors of the same shapes, the card is asked
for all of it at once, instead of kernel by kernel.

A small model's kernels take microseconds each, and asking for one takes as long: captured, its step takes what they
compute. Nothing is trusted: a step is captured only where the host takes no part in it, and replayed only after it has
twice computed what the steps themselves did.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.graphs import Graph
from edgewise.tasks.core.batch import Batch
from edgewise.training.distributed import World
from edgewise.training.loss import Weights
from edgewise.training.seeds import seed
from edgewise.training.settings import MachineSettings

Parts = Sequence[tuple[Weights, Batch]]  # micro-batches, each with its weights in the mean loss
# Adds the gradients of a step's loss to those of the weights, and returns the loss.
Gradient = Callable[[Parts], Tensor]
WARM, CHECKS = 3, 2  # steps before the capture, which fill caches; and after it, which are computed both ways
CHANGES = 8  # steps that are unlike the one before, after which no more are captured
SHARE = 0.3  # of the card's memory: a step that takes more is long enough to ask for as it runs
SYNC = "synchronizing CUDA operation"  # as PyTorch's sync_debug_mode names it
DEPTH, FEW = 3, 64  # of what is looked into beside tensors, and how many parts of a container
CLOSE = 1e-2  # ‖x − x*‖ / ‖x*‖ of losses and gradients, where kernels add up in any order


def captured(
    gradient: Gradient, model: nn.Module, task: object, world: World, settings: MachineSettings
) -> Captured | None:
    """What captures the steps of a process alone on a GPU, where that is asked for."""
    alone = world.device.type == "cuda" and world.size == 1
    if not settings.capture or not alone or settings.precision == "float16":  # whose scale the host decides
        return None
    stream = None
    if settings.compile:
        stream = torch.cuda.Stream(world.device)
        gradient = aside(gradient, stream)
    return Captured(gradient, model, task, world.device, settings.deterministic, stream)


def aside(gradient: Gradient, stream: torch.cuda.Stream) -> Gradient:
    """The same on a stream of its own, the one that is captured. Compiled code keeps what adds up a weight's gradient,
    which works on the stream of its first use, and a capture that another stream takes part in fails."""

    def run(parts: Parts) -> Tensor:
        here = torch.cuda.current_stream(stream.device)
        if here == stream:
            return gradient(parts)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            loss = gradient(parts)
        here.wait_stream(stream)
        return loss

    return run


class Captured:
    """Gradients of steps, from a CUDA graph where they can be.

    Symbols     gradient = what computes them; exact = whether its kernels repeat to the bit; reason = why it is not
                captured any more, or ""; stream = that on which it is captured, if not one of PyTorch's choice
    """

    def __init__(
        self,
        gradient: Gradient,
        model: nn.Module,
        task: object,
        device: torch.device,
        exact: bool,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self.gradient, self.model, self.task, self.device, self.exact = gradient, model, task, device, exact
        self.stream = stream
        self.weights, self.buffers = list(model.parameters()), list(model.buffers())
        self.reason = ""
        self.seen = self.changes = 0  # steps of this signature, and signatures
        self.signature: tuple[Any, ...] = ()
        self.held: list[Any] = []  # what the signature names by its address
        self.parts: Parts = ()  # those that the graph reads
        self.last: Parts = ()
        self.plain: list[Any] = []  # of model and task, at the end of the step before the last of those that warm up
        self.replay: Callable[[], None] | None = None
        self.loss, self.gradients = torch.zeros(()), list[Tensor | None]()

    def __call__(self, parts: Parts, value: int) -> Tensor:
        """The loss of a step whose random numbers have this seed; its gradients are those of the weights."""
        if self.reason:
            return self.gradient(parts)
        self.look(parts)
        self.seen += 1
        if self.seen < WARM:
            loss = self.gradient(parts)
            self.plain = self.state() if self.seen == WARM - 1 else []
            return loss
        if self.seen == WARM:
            return self.watched(parts)
        if self.replay is None:
            self.capture(parts, value)
        if self.replay is None:
            return self.gradient(parts)
        return self.checked(parts, value) if self.seen <= WARM + CHECKS else self.replayed(parts)

    def state(self) -> list[Any]:
        """What has to stay from step to step. Of its tensors a task may keep a step's batch, which it makes outside."""
        return plain_state(self.model) + plain_state(self.task, tensors=False)

    def look(self, parts: Parts) -> None:
        """Begin anew where a step is unlike the last one."""
        held: list[Any] = []
        alike = len(parts) == len(self.last)
        before = self.last if alike else parts
        batches = [_of(part, last if alike else None, held) for part, (_, last) in zip(parts, before, strict=True)]
        signature = *batches, *((w.data_ptr(), w.requires_grad) for w in self.weights)
        self.last = parts
        if signature != self.signature:
            self.forget()
            self.signature, self.held, self.seen = signature, held, 0
            self.changes += 1
            if self.changes > CHANGES:
                self.reason = "the shapes or graphs of batches change"

    def forget(self) -> None:
        self.replay, self.parts, self.gradients = None, (), []

    def watched(self, parts: Parts) -> Tensor:
        """A step, and whether the host takes part in it: waits for numbers, draws or keeps some, or calls hooks."""
        random_before, before, of_task = host_state(), self.plain, plain_state(self.task)
        loss, waits = waiting(lambda: self.gradient(parts))
        if waits:
            self.reason = "the host waits for numbers of the card in a step"
        elif random_before != host_state():
            self.reason = "the host draws random numbers in a step"
        elif before != self.state() or of_task != plain_state(self.task):
            self.reason = "attributes of the model or the task change from step to step"
        elif has_hooks(self.model):
            self.reason = "hooks are called in a step"
        elif memory_share(self.device) > SHARE:
            self.reason = "a step takes much of the card's memory"
        return loss

    def capture(self, parts: Parts, value: int) -> None:
        kept = set(map(id, self.held))
        self.parts = [(weight, _copied(part, kept)) for weight, part in parts]
        try:
            self.loss, self.replay = record(lambda: self.gradient(self.parts), self.device, self.stream)
            self.gradients = [w.grad for w in self.weights]
        except Exception as error:  # whatever a step does that a graph cannot hold
            self.reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            self.forget()
        self._clear()
        seed(value, self.device)

    def replayed(self, parts: Parts) -> Tensor:
        for (_, own), (_, part) in zip(self.parts, parts, strict=True):
            _fill(own, part)
        assert self.replay is not None
        self.replay()
        for w, gradient in zip(self.weights, self.gradients, strict=True):
            w.grad = gradient
        return self.loss

    def checked(self, parts: Parts, value: int) -> Tensor:
        """A step both ways: captured no more where they differ, and then as it was computed by itself."""
        before = [x.clone() for x in self.buffers]
        loss = self.gradient(parts)
        expected = [loss, *(w.grad for w in self.weights), *(x.clone() for x in self.buffers)]
        gradients = expected[1 : 1 + len(self.weights)]
        self._restore(before)
        self._clear()
        seed(value, self.device)
        replayed = self.replayed(parts)
        found = [replayed, *(w.grad for w in self.weights), *self.buffers]
        if all(same(x, y, self.exact) for x, y in zip(found, expected, strict=True)):
            return replayed
        self.reason = "replayed, a step did not compute the same"
        self.forget()
        self._restore([x for x in expected[1 + len(self.weights) :] if x is not None])
        for w, gradient in zip(self.weights, gradients, strict=True):
            w.grad = gradient
        return loss

    def _restore(self, values: Sequence[Tensor]) -> None:
        for x, value in zip(self.buffers, values, strict=True):
            x.copy_(value)

    def _clear(self) -> None:
        for w in self.weights:
            w.grad = None


def _of(part: tuple[Weights, Batch], last: Batch | None, held: list[Any]) -> tuple[Any, ...]:
    """What has to stay for a graph to serve: shapes of tensors that are new in each step, numbers, and all else itself.

    Symbols     last = this batch in the step before, if there was one; held = grows by what stays itself
    """
    weight, batch = part
    found: list[Any] = [weight, type(batch)]
    for name in _fields(batch):
        value = getattr(batch, name)
        if value is None or isinstance(value, int | float | str):
            found.append(value)
        elif isinstance(value, Graph) and value.rule is not None:  # as good as another that is equal
            found.append((value.device, value.num_receivers, value.num_senders, value.offset, value.rule))
        elif isinstance(value, Tensor) and (last is None or getattr(last, name, None) is not value):
            found.append((value.shape, value.stride(), value.dtype, value.device))
        else:
            held.append(value)
            found.append(id(value))
    return tuple(found)


def _fields(batch: Batch) -> list[str]:
    return [field.name for field in fields(batch) if field.init]


def _copied(batch: Batch, kept: set[int]) -> Batch:
    """The batch with tensors of its own, into which later ones are copied, but for those that stay."""
    values = {name: getattr(batch, name) for name in _fields(batch)}
    own: dict[str, Any] = {
        name: x.clone() if isinstance(x, Tensor) and id(x) not in kept else x for name, x in values.items()
    }
    return type(batch)(**own)


def _fill(own: Batch, batch: Batch) -> None:
    for name in _fields(batch):
        value, place = getattr(batch, name), getattr(own, name)
        if isinstance(value, Tensor) and value is not place:
            place.copy_(value)


def same(x: Tensor | None, y: Tensor | None, exact: bool) -> bool:
    """Whether two results are equal, or as close as kernels that add up in any order come."""
    if x is None or y is None:
        return x is y
    if exact or not x.is_floating_point():
        return bool(((x == y) | ((x != x) & (y != y))).all())
    return bool((x.double() - y.double()).norm() <= CLOSE * y.double().norm() + 1e-12)


def host_state() -> tuple[Any, ...]:
    """Of the generators of random numbers that the host draws from."""
    numpy = sys.modules.get("numpy")
    drawn = None if numpy is None else repr(numpy.random.get_state(legacy=False))
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), drawn


class Itself:
    """A tensor that is equal to no other: one that a step puts in its place would not be read by a graph."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor  # held, so that no other can have its address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.tensor is other.tensor

    __hash__ = None  # type: ignore[assignment]


def plain_state(thing: object, tensors: bool = True) -> list[Any]:
    """What an object holds, in its parts too: numbers, words, the sizes of containers, and which tensors; no graphs."""
    found: list[Any] = []
    seen: set[int] = set()

    def look(name: str, value: object, depth: int) -> None:
        if value is None or isinstance(value, int | float | str):
            found.append((name, value))
        elif isinstance(value, Tensor):
            found.append((name, Itself(value) if tensors else None))
        elif isinstance(value, list | tuple | dict | set):
            found.append((name, len(value)))
            if depth and len(value) <= FEW:
                for n, part in value.items() if isinstance(value, dict) else enumerate(value):
                    look(f"{name}.{n}", part, depth - 1)
        elif depth and id(value) not in seen and not isinstance(value, Graph | type | ModuleType):
            seen.add(id(value))
            for n, part in vars(value).items() if hasattr(value, "__dict__") else ():
                look(f"{name}.{n}", part, depth - 1)

    for name, part in thing.named_modules() if isinstance(thing, nn.Module) else [("", thing)]:
        seen.discard(id(part))
        look(name, part, DEPTH)
    return found


def has_hooks(model: nn.Module) -> bool:
    """Whether a step calls functions that were hung into modules or weights."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    of_weights = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return any(getattr(module, name, None) for module in model.modules() for name in names) or any(
        getattr(weight, name, None) for weight in model.parameters() for name in of_weights
    )


def waiting(work: Callable[[], Tensor]) -> tuple[Tensor, bool]:
    """A result, and whether the host waited for the card to compute it."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            result = work()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    waited = False
    for one in said:
        waited |= SYNC in str(one.message)
        if SYNC not in str(one.message) and "prototype" not in str(one.message):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return result, waited


def memory_share(device: torch.device) -> float:
    """The most that was allocated at a time, of the card's memory."""
    return torch.cuda.max_memory_allocated(device) / torch.cuda.get_device_properties(device).total_memory


def record(
    work: Callable[[], Tensor], device: torch.device, stream: torch.cuda.Stream | None = None
) -> tuple[Tensor, Callable[[], None]]:
    """The result of work that is captured, which a call of the second computes.

    cuBLAS keeps memory for each stream that it has worked on, which whoever compiles with CUDA graphs gives back: the
    graph takes memory of its own, and leaves none of that to others.

    Errors      whatever the work does that cannot be captured; the generator of random numbers is made anew then, as
                it would go on counting for the graph that never was
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize(device)
    torch._C._cuda_clearCublasWorkspaces()
    try:
        with torch.cuda.device(device), torch.cuda.graph(graph, stream=stream):
            result = work()
    except Exception:
        torch.cuda.synchronize(device)
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
        raise
    finally:
        torch._C._cuda_clearCublasWorkspaces()
    return result, graph.replay
