"""Attention where most pairs count: complete and causal graphs, windows, and batches of molecules."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.gpu.problems import Contender, Leaves, Prepared, Problem, Race, Refusal, Row, ours
from benchmarks.gpu.timing import Device, reason
from edgewise.graphs import PATTERNS, Graph, complete
from edgewise.graphs.patterns import line

HALF = torch.bfloat16


def heads_first(x: Tensor) -> Tensor:
    """[*, N, H, C] -> [B, H, N, C]."""
    return (x.unsqueeze(0) if x.ndim == 3 else x).transpose(1, 2)


def sdpa(problem: Problem, device: Device) -> Prepared:
    """PyTorch's own attention on the same memory, its heads in front by a view, as transformers call it."""
    causal = not problem.graph.is_complete

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = functional.scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), is_causal=causal)
        return y.transpose(1, 2).reshape(q.shape)

    return Prepared(run)


def plain(graph: str, n: int, device: Device) -> list[Row]:
    """Complete or causal attention of n tokens, 16 heads of 64, 32,768 tokens in the batch."""
    n = min(n, 32) if device.toy else n
    heads, channels, batch = (2, 16, 2) if device.toy else (16, 64, max(1, 32_768 // n))
    built = PATTERNS[graph](n).to(device.kind)
    race = Race(
        Problem(f"{graph} {n}, batch {batch}, {heads} × {channels}", built, heads, channels, HALF, (batch,)), device
    )
    for contender in (Contender("sdpa", sdpa), ours(None), ours("dense"), ours("flex")):
        race.enter(contender)
    return race.time(seconds=4.0, replayed=True)


def mask_of_window(radius: int, n: int, device: Device) -> Any:
    """FlexAttention's own block mask, from a predicate."""
    return create_block_mask(lambda b, h, i, j: (i - j).abs() <= radius, None, None, n, n, device=device.kind)


def flex(radius: int) -> Callable[[Problem, Device], Prepared]:
    """FlexAttention under torch.compile."""

    def prepare(problem: Problem, device: Device) -> Prepared:
        mask = mask_of_window(radius, problem.graph.num_receivers, device)
        if device.toy:
            raise Refusal("FlexAttention has no backward on a CPU")
        attention = torch.compile(flex_attention, dynamic=False)

        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            y = attention(heads_first(q), heads_first(k), heads_first(v), block_mask=mask)
            assert isinstance(y, Tensor)
            return y.transpose(1, 2).reshape(q.shape)

        return Prepared(run)

    return prepare


def window(n: int, radius: int, device: Device) -> list[Row]:
    """A window to both sides; and how long the mask, or what stands for it, takes to build for a new graph."""
    n, radius = (min(n, 64), 4) if device.toy else (n, radius)
    heads, channels = (2, 16) if device.toy else (16, 64)
    problem = Problem(
        f"window ±{radius} of {n}, {heads} × {channels}",
        line.window(n, radius).to(device.kind),
        heads,
        channels,
        HALF,
    )
    race = Race(problem, device)
    names = (None, "flex", "dense", "triton", "bitmap")
    for contender in (Contender("flexattention", flex(radius)), *map(ours, names)):
        race.enter(contender)
    leaves = {name: x.requires_grad_(name != "dy") for name, x in problem.leaves(0).items()}
    built = {"flexattention": _waited(device, lambda: mask_of_window(radius, n, device))}
    for backend in names:
        name = ours(backend).name
        if name in race.ready:
            built[name] = _building(backend, n, radius, leaves, device)
    rows = race.time(seconds=5.0)
    for row in rows:
        if (seconds := built.get(row["contender"])) is not None:
            row["mask, ms"] = 1e3 * seconds
            if "step" in row["milliseconds"]:
                row["mask, of first step"] = seconds / (seconds + row["milliseconds"]["step"] / 1e3)
    return rows


def _building(backend: str | None, n: int, radius: int, leaves: Leaves, device: Device) -> float:
    """Seconds that the first step on a new graph takes beyond a later one, everything compiled before."""
    inputs = [leaves[name] for name in ("q", "k", "v")]
    heads, channels = leaves["q"].shape[-2:]
    beyond = []
    for _ in range(3):
        graph = line.window(n, radius).to(device.kind)
        problem = Problem("", graph, heads, channels, HALF)
        step = partial(_step, problem, backend, inputs, leaves["dy"])
        first = device.waited(step)
        beyond.append(first - min(device.waited(step) for _ in range(3)))
    return max(0.0, statistics.median(beyond))


def _step(problem: Problem, backend: str | None, inputs: list[Tensor], dy: Tensor) -> Any:
    return torch.autograd.grad(problem.attend(backend, *inputs), inputs, dy)


def _waited(device: Device, work: Callable[[], Any]) -> float | None:
    try:
        return statistics.median(device.waited(work) for _ in range(3))
    except Exception as error:
        print(f"  the mask could not be built: {reason(error)}")
        return None


def varlen(problem: Problem, device: Device) -> Prepared:
    """Variable-length flash attention, which has no bias: where the problem has one, an easier problem."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise Refusal("this PyTorch has no variable-length attention") from error
    if device.toy:
        raise Refusal("variable-length attention runs on GPUs")
    ends = torch.tensor([0, *problem.sizes], device=device.kind).cumsum(0).to(torch.int32)
    most = max(problem.sizes)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = varlen_attn(q, k, v, ends, ends, most, most)
        assert isinstance(y, Tensor)
        return y

    return Prepared(run, without=("bias",), checked=not problem.biased)


def padded(problem: Problem, device: Device) -> Prepared:
    """Padded to the largest molecule, its bias too; it lies padded already, as in a model that pads once."""
    sizes = torch.tensor(problem.sizes, device=device.kind)
    count, most = len(problem.sizes), -(-max(problem.sizes) // 8) * 8  # kernels want rows of 16 bytes
    real = torch.arange(most, device=device.kind) < sizes[:, None]  # [G, n]
    pairs = (real[:, :, None] & real[:, None, :]).flatten().nonzero().flatten()  # in the order of the graph's edges
    nodes = real.flatten().nonzero().flatten()

    def adapt(name: str, x: Tensor) -> Tensor:
        if name == "bias":
            flat = x.new_full((count * most * most, x.shape[-1]), float("-inf"))
            flat[pairs] = x
            # A node that is padding hears itself, so that no row is empty.
            b = flat.view(count, most, most, -1).permute(0, 3, 1, 2).contiguous()
            return b.masked_fill((~real)[:, None, :, None] & torch.eye(most, dtype=torch.bool, device=x.device), 0.0)
        out = x.new_zeros(count * most, *x.shape[1:])
        out[nodes] = x
        return out.view(count, most, *x.shape[1:]).transpose(1, 2).contiguous()  # [G, H, n, C]

    def restore(name: str, x: Tensor) -> Tensor:
        if name == "bias":
            return x.permute(0, 2, 3, 1).reshape(count * most * most, -1)[pairs]
        return x.transpose(1, 2).reshape(count * most, *x.shape[1:2], x.shape[-1])[nodes]

    no_bias = adapt("bias", torch.zeros(len(pairs), 1, dtype=problem.dtype, device=device.kind))

    def run(q: Tensor, k: Tensor, v: Tensor, bias: Tensor = no_bias) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, bias)

    return Prepared(run, adapt, restore)


def molecules(device: Device, biased: bool = True) -> list[Row]:
    """512 molecules of 10 to 40 atoms, each a complete graph, with a bias on its edges or without."""
    generator = torch.Generator().manual_seed(0)
    count, most, heads, channels = (4, 16, 2, 16) if device.toy else (512, 40, 8, 32)
    sizes = tuple(torch.randint(10, most + 1, (count,), generator=generator).tolist())
    graph = Graph.batch([complete(size) for size in sizes]).to(device.kind)
    name = f"{count} molecules of 10 to {most} atoms, {heads} × {channels}, {'' if biased else 'no '}bias on edges"
    race = Race(Problem(name, graph, heads, channels, HALF, biased=biased, sizes=sizes), device)
    own = map(ours, ("ragged", None, "triton", "segment", *(() if biased else ("dense",))))
    flash = "varlen flash, no bias" if biased else "varlen flash"
    for contender in (*own, Contender(flash, varlen), Contender("padded sdpa", padded)):
        race.enter(contender)
    return race.time(seconds=8.0, replayed=True)
