"""Attention as a problem: a graph and inputs; its float64 oracle; and a race between those who solve it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.timing import BrokenError, Device, Turns, reason, replay, sets_beyond_cache, size_of, stopped
from edgewise.graphs import Graph
from edgewise.kernels import BACKENDS, Dot, EdgeBias, attend

# ‖y − y*‖ / ‖y*‖ beyond which one is wrong: peers that add up in bfloat16 lose 2e-2 in the gradients of hubs.
LIMITS = {torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}
NUMBERS = 2**26  # of pairs and heads, or of edges and channels, that the oracle holds at once
CRASHED = "left out: by --without, or since it took the card's context down"
Leaves = dict[str, Tensor]
Row = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """y_i = Σ_j softmax_j(q_i·k_j/√C + b_ij) v_j on a graph, with a bias on its edges where `biased`."""

    name: str
    graph: Graph
    heads: int
    channels: int
    dtype: torch.dtype
    batch: tuple[int, ...] = ()
    biased: bool = False
    sizes: tuple[int, ...] = ()  # of a batch of complete graphs
    bytes: dict[str, int] = field(default_factory=dict)  # that any method must move, by kind of pass

    def leaves(self, seed: int) -> Leaves:
        """Fresh normal inputs: q, k, v, where it has one the bias, and dy, the gradient of y."""
        device, graph = self.graph.device, self.graph
        generator = torch.Generator(device).manual_seed(seed)
        shapes = {"q": graph.num_receivers, "k": graph.num_senders, "v": graph.num_senders, "dy": graph.num_receivers}
        found = {
            name: torch.randn(*self.batch, count, self.heads, self.channels, generator=generator, device=device)
            for name, count in shapes.items()
        }
        if self.biased:
            found["bias"] = torch.randn(graph.num_edges, self.heads, generator=generator, device=device)
        return {name: x.to(self.dtype) for name, x in found.items()}

    def attend(self, backend: str | None, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """By Edgewise."""
        return attend(self.graph, q, k, v, Dot() if bias is None else Dot() + EdgeBias(bias), backend=backend)

    def oracle(self, leaves: Leaves, rows: list[tuple[int, int]] | None = None) -> Leaves:
        """y and the gradients in float64, some receivers at a time; with `rows`, y on these alone."""
        exact = {name: x.double().requires_grad_(name != "dy") for name, x in leaves.items()}
        wanted = [name for name in exact if name != "dy"]
        total = {name: torch.zeros_like(exact[name]) for name in wanted}
        parts = []
        for start, stop in rows or self._chunks():
            graph = self.graph.rows(start, stop)
            q, dy = (exact[name][..., start:stop, :, :] for name in ("q", "dy"))
            score = Dot()
            if self.biased:
                first, last = self.graph.offsets[torch.tensor([start, stop], device=graph.device)].tolist()
                score = score + EdgeBias(exact["bias"][first:last])
            with torch.set_grad_enabled(rows is None):
                if self.graph.rule is not None and not self.sizes:
                    y = of_pairs(graph, q, exact["k"], exact["v"])
                else:
                    y = attend(graph, q, exact["k"], exact["v"], score, backend="segment")
            parts.append(y.detach())
            if rows is None:
                grads = torch.autograd.grad(y, [exact[name] for name in wanted], dy)
                for name, grad in zip(wanted, grads, strict=True):
                    total[name] += grad
        return {"y": torch.cat(parts, -3)} | (total if rows is None else {})

    def _chunks(self) -> list[tuple[int, int]]:
        """Receivers whose pairs or edges fit together."""
        count = self.graph.num_receivers
        if self.graph.rule is not None and not self.sizes:  # every pair is held
            row = torch.Size(self.batch).numel() * self.heads * self.graph.num_senders
        else:
            row = self.graph.num_edges * self.heads * self.channels // max(1, count)
        step = max(1, NUMBERS // max(1, row))
        return [(start, min(count, start + step)) for start in range(0, count, step)]


def of_pairs(graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax over all pairs of a graph in which every receiver has a sender, by products of matrices."""
    s = torch.einsum("...ihc,...jhc->...hij", q, k) / q.shape[-1] ** 0.5
    p = s.masked_fill(~graph.dense_mask(), float("-inf")).softmax(-1)
    return torch.einsum("...hij,...jhc->...ihc", p, v)


@dataclass(frozen=True)
class Prepared:
    """A contender that is ready: a function of its own leaves, and how they come from the problem's and go back."""

    run: Callable[..., Tensor]
    adapt: Callable[[str, Tensor], Tensor] = lambda name, x: x
    restore: Callable[[str, Tensor], Tensor] = lambda name, x: x
    without: tuple[str, ...] = ()  # leaves of the problem that it does not take
    checked: bool = True  # False: it solves an easier problem on purpose


@dataclass(frozen=True)
class Contender:
    """Whose solution it is, and how it prepares."""

    name: str
    prepare: Callable[[Problem, Device], Prepared]


class Refusal(Exception):
    """Why a contender takes no part."""


def ours(backend: str | None) -> Contender:
    """Edgewise by a backend's name, or the planner's choice."""

    def prepare(problem: Problem, device: Device) -> Prepared:
        if backend is not None and backend not in BACKENDS:
            raise Refusal(f"there is no backend {backend!r} in this Edgewise")
        return Prepared(partial(problem.attend, backend))

    return Contender("edgewise" if backend is None else f"edgewise {backend}", prepare)


class Race:
    """The contenders of one problem: each is checked, then all are timed in turns."""

    def __init__(self, problem: Problem, device: Device, far: int = 4096) -> None:
        self.problem, self.device = problem, device
        self.rows: dict[str, Row] = {}
        self.ready: dict[str, tuple[Prepared, list[Leaves]]] = {}
        first = problem.leaves(0)
        count = sets_beyond_cache(device, size_of(list(first.values())))
        self.sets = [first, *(problem.leaves(seed) for seed in range(1, count))]
        # Too many pairs to differentiate in float64: the first and the last rows are compared, forward.
        many = problem.graph.rule is not None and not problem.sizes and problem.graph.num_receivers > far
        n = problem.graph.num_receivers
        self.few = [(0, min(128, n)), (max(0, n - 128), n)] if many else None
        self.exact = problem.oracle(first, self.few)

    def enter(self, contender: Contender) -> None:
        """Prepare a contender, check it, and measure its memory; an error is its result."""
        row: Row = {"contender": contender.name, "errors": {}, "milliseconds": {}}
        self.rows[contender.name] = row
        if self.device.left() < 20:
            row["refused"] = "left out for lack of time"
            return
        if contender.name in self.device.without:
            row |= {"refused": CRASHED, "failed": True}
            return
        try:
            prepared = contender.prepare(self.problem, self.device)
            sets = [self._adapted(prepared, leaves) for leaves in self.sets]
            row["first step, s"] = self.device.waited(lambda: self.step(prepared, sets[0]))
            row["errors"] = self._errors(prepared, sets[0]) if prepared.checked else {}
            limit = LIMITS[self.problem.dtype]
            wrong = {name: error for name, error in row["errors"].items() if not error <= limit}
            if wrong:
                told = ", ".join(f"{name} by {error:.1e}" for name, error in wrong.items())
                row |= {"refused": f"wrong beyond {limit}: {told}", "failed": True}
                return
            row["peak MB"] = self.device.peak(lambda: self.step(prepared, sets[0]))
            self.ready[contender.name] = prepared, sets
        except Refusal as refusal:
            row["refused"] = str(refusal)
        except Exception as error:  # a contender that fails is told of, and the others go on
            if self.device.broken():
                raise BrokenError(contender.name) from error
            row |= stopped(error)
        self.device.clear()

    def step(self, prepared: Prepared, leaves: Leaves) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Forward and backward."""
        inputs = {name: x for name, x in leaves.items() if name != "dy"}
        y = prepared.run(**inputs)
        return y, torch.autograd.grad(y, list(inputs.values()), leaves["dy"])

    def forward(self, prepared: Prepared, leaves: Leaves) -> Tensor:
        """Without gradients."""
        with torch.no_grad():
            return prepared.run(**{name: x for name, x in leaves.items() if name != "dy"})

    def time(self, seconds: float, replayed: bool = False) -> list[Row]:
        """Time all that are ready, in turns; with `replayed`, steps captured in CUDA graphs too."""
        works: dict[str, list[Callable[[], Any]]] = {}
        for name, (prepared, sets) in self.ready.items():
            works[f"{name}/forward"] = [partial(self.forward, prepared, leaves) for leaves in sets]
            works[f"{name}/step"] = [partial(self.step, prepared, leaves) for leaves in sets]
            if replayed and not self.device.toy:
                try:
                    works[f"{name}/replayed step"] = [replay(work) for work in works[f"{name}/step"]]
                except Exception as error:  # it cannot be captured: the others go on
                    if self.device.broken():
                        raise BrokenError(name) from error
                    self.rows[name]["not captured"] = reason(error)
        found = Turns(self.device, works).run(seconds=seconds) if works else {}
        for key, taken in found.items():
            name, kind = key.split("/")
            self.rows[name]["milliseconds"][kind] = 1e3 * taken
            moved = self.problem.bytes.get(kind)
            if moved and self.device.bandwidth:
                self.rows[name].setdefault("of bandwidth", {})[kind] = moved / taken / self.device.bandwidth
        self.ready.clear()
        self.device.clear()
        what: Row = {"problem": self.problem.name, "dtype": str(self.problem.dtype).removeprefix("torch.")}
        what |= {"checked": "y and gradients" if self.few is None else "y on 256 rows", "sets": len(self.sets)}
        return [what | {"bytes": self.problem.bytes} | row for row in self.rows.values()]

    def _adapted(self, prepared: Prepared, leaves: Leaves) -> Leaves:
        kept = {name: x for name, x in leaves.items() if name not in prepared.without}
        return {
            name: prepared.adapt(name, x).detach().requires_grad_(name != "dy")
            for name, x in kept.items()
        }  # fmt: skip

    def _errors(self, prepared: Prepared, leaves: Leaves) -> dict[str, float]:
        y, grads = self.step(prepared, leaves)
        found = {"y": prepared.restore("y", y)}
        if self.few is None:
            names = [name for name in leaves if name != "dy"]
            found |= {name: prepared.restore(name, grad) for name, grad in zip(names, grads, strict=True)}
        else:
            found["y"] = torch.cat([found["y"][..., start:stop, :, :] for start, stop in self.few], -3)
        return {name: _distance(x, self.exact[name]) for name, x in found.items()}


def _distance(x: Tensor, exact: Tensor) -> float:
    """‖x − x*‖ / ‖x*‖, and NaN where x has one."""
    return float((x.detach().double() - exact).norm() / exact.norm().clamp(min=1e-30))
