"""One contender in its own process: it makes its inputs, is checked, and then runs rounds when it is told to."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import memory

TOLERANCE = 1e-4  # of the largest exact entry: float32 sums of ten thousand terms keep this
# Seconds that a round lasts at least, so that neither the clock's grain nor cold caches matter.
ROUND, ROUND_QUICK = 0.1, 0.02
LAZY = ("torch.fx.experimental.symbolic_shapes",)  # PyTorch loads it with the first gradient: 40 MB that no step needs
COMPARED = 5  # losses of a small GPT, or of particles
# Epochs, and the share of Cora's validation nodes that must then be right: a model that does not learn is no contender.
LEARNT, LEARNT_QUICK = (100, 0.70), (20, 0.3)


@dataclass(frozen=True)
class Order:
    """What a process shall run: one part of a case, by one contender, on so many threads."""

    case: str
    part: str
    contender: str
    threads: int
    size: float
    exact: str  # the file of the oracle's answer
    gigabytes: float
    by_clock: bool  # else by the processor's time


def write_exact(order: Order) -> None:
    """Solve a part in float64 and write the answer; nothing for a part that has no oracle."""
    from safetensors.torch import save_file

    from benchmarks.contenders import gpt, particles, tensor_field
    from benchmarks.exact import solve
    from benchmarks.inputs import Attention, Particles, Product, SmallGPT, TensorField

    inputs = _inputs(order)
    if isinstance(inputs, SmallGPT):
        save_file({"losses": gpt.exact(COMPARED)}, order.exact)
    elif isinstance(inputs, TensorField):
        save_file({name: t.contiguous() for name, t in tensor_field.exact(inputs).items()}, order.exact)
    elif isinstance(inputs, Particles):
        save_file({"losses": particles.exact(inputs, COMPARED)}, order.exact)
    elif isinstance(inputs, Attention | Product):
        save_file({name: t.contiguous() for name, t in solve(inputs).items()}, order.exact)


def serve(order: Order, pipe: Connection) -> None:
    """Answer ready, refused or failed, then one answer for every request until the request is None."""
    try:
        contestant = _prepare(order)
        if isinstance(contestant, str):
            pipe.send({"refused": contestant})
            return
        pipe.send({"ready": contestant.check()})
        while (request := pipe.recv()) is not None:
            pipe.send(contestant.answer(*request))
    except Exception as error:
        pipe.send({"refused": reason(error)})


def reason(error: BaseException) -> str:
    """An error in one line; the many ways to run out of memory in three words."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "can't allocate memory" in text or "bad_alloc" in text:
        return "runs out of memory"
    return f"{type(error).__name__}: {text[:200]}"


def _inputs(order: Order) -> Any:
    from benchmarks.cases import CASES

    return CASES[order.case].parts[order.part].make(order.size)


def _prepare(order: Order) -> Contestant | str:
    import torch

    warnings.simplefilter("ignore")  # those of contenders, such as PyTorch's about its CSR layout
    torch.set_num_threads(order.threads)
    torch.manual_seed(0)
    memory.cap(order.gigabytes)
    from benchmarks.contenders import CONTENDERS

    for module in LAZY:
        importlib.import_module(module)
    contender = CONTENDERS[order.contender]
    inputs = _inputs(order)
    refusal = contender.refuses(inputs)
    if refusal is not None:
        return refusal
    return Contestant(order, inputs, contender.prepare(inputs), forward_only=contender.forward_only)


class Contestant:
    """A prepared contender: its forward pass, and its step where the case is differentiated."""

    def __init__(self, order: Order, inputs: Any, run: Callable[[], Any], *, forward_only: bool) -> None:
        from benchmarks.inputs import Differentiated

        self.order, self.inputs, self.run = order, inputs, run
        self.differentiated = isinstance(inputs, Differentiated)
        self.leaves = list(inputs.leaves.values()) if self.differentiated else []
        if self.differentiated:
            inputs.gradient  # noqa: B018 (made here, so that it belongs to the inputs)
        self.forward_only = forward_only

    def forward(self) -> Any:
        """The output alone, as in inference; a whole epoch or sample for the cases that have no gradient."""
        import torch

        if not self.differentiated:
            return self.run()
        with torch.no_grad():
            return self.run()

    def step(self) -> Any:
        """The output and the gradients of all inputs."""
        return self.differentiate(self.inputs.gradient)

    def differentiate(self, gradient: Any) -> Any:
        """The output, and the gradients for a given dL/dy."""
        import torch

        y = self.run()
        return y, torch.autograd.grad(y, self.leaves, gradient)

    def check(self) -> dict[str, Any]:
        """Warm up and compare with the oracle: errors by tensor; ValueError for a contender that is wrong."""
        if not self.differentiated:
            return {"errors": self._check_effect(), "kinds": ["forward"]}
        from safetensors.torch import load_file

        from benchmarks import exact

        truth = load_file(self.order.exact)
        plain = self.forward()
        found, grads = plain, {}
        if not self.forward_only:
            found, several = self.differentiate(exact.checked_gradient(self.inputs))
            grads = dict(zip(self.inputs.leaves, several, strict=True))
        errors = exact.errors(self.inputs, found, grads, truth)
        errors["y"] = max(errors["y"], exact.errors(self.inputs, plain, {}, truth)["y"])
        refuse_wrong(errors)
        kinds = ["forward"] if self.forward_only else ["forward", "step"]
        return {"errors": errors, "kinds": kinds}

    def _check_effect(self) -> dict[str, float]:
        from benchmarks.inputs import Particles, Sampling, SmallGPT

        if isinstance(self.inputs, Sampling):
            self.run()
            return {}
        if isinstance(self.inputs, SmallGPT | Particles):
            return self._check_losses()
        epochs, least = LEARNT if self.order.size >= 1 else LEARNT_QUICK
        accuracy = max([self.run()[1] for _ in range(epochs)][-5:])
        if accuracy < least:
            raise ValueError(f"wrong: validation accuracy {accuracy:.2f} after {epochs} epochs")
        return {"validation error": 1 - accuracy}

    def _check_losses(self) -> dict[str, float]:
        from safetensors.torch import load_file

        truth = load_file(self.order.exact)["losses"].tolist()
        errors = {f"the loss of step {n}": abs(self.run() / loss - 1) for n, loss in enumerate(truth, 1)}
        refuse_wrong(errors)
        return errors

    def answer(self, what: str, kind: str, repeats: int) -> Any:
        """Seconds of one step, the number of steps that fill a round, or megabytes."""
        run = self.step if kind == "step" else self.forward
        if what == "memory":
            start = time.perf_counter()
            return {"megabytes": memory.peak_above(run), "seconds": time.perf_counter() - start}
        run()  # caches and freed pages are as in the middle of a training loop, not as after another contender's turn
        if what == "calibrate":
            least = ROUND if self.order.size >= 1 else ROUND_QUICK
            return max(1, round(least / max(self._seconds(run, 1), 1e-7)))
        return self._seconds(run, repeats)

    def _seconds(self, run: Callable[[], Any], repeats: int) -> float:
        # Of the processor's time, what other programs take is no part; it tells nothing of several threads.
        clock = time.perf_counter if self.order.by_clock else time.process_time
        start = clock()
        for _ in range(repeats):
            run()
        return (clock() - start) / repeats


def refuse_wrong(errors: dict[str, float], tolerance: float = TOLERANCE) -> None:
    """ValueError with the worst tensor where a contender is wrong beyond the tolerance."""
    worst = max(errors, key=lambda name: float("inf") if errors[name] != errors[name] else errors[name])
    if not errors[worst] <= tolerance:
        what = worst if worst == "y" or " " in worst else f"the gradient of {worst}"
        raise ValueError(f"wrong: {what} differs from the float64 oracle by {errors[worst]:.1e} of its largest entry")


def exact_file(folder: Path) -> str:
    """Where a part's oracle answers."""
    return str(folder / "exact.safetensors")
