"""Kernels on an NVIDIA GPU beside their peers, between CUDA events; training steps are in `benchmarks.whole.steps`.

    PYTHONPATH=src python -m benchmarks.gpu [CASE ...] [--out FOLDER]
    PYTHONPATH=src python -m benchmarks.gpu [CASE ...] --dry-run          toy sizes on the CPU; no figure counts

The cases are those of `benchmarks.cases` at a card's sizes. Output and gradients of each contender are compared with
the float64 oracle first, on the rows that the oracle takes, and one that is wrong is not timed. A time is the median of
rounds in which all take turns, each on several copies of its inputs that no cache holds together; MB is the peak of a
step above what was resident before; "of copy" is what any method must move (`benchmarks.roofline`) over what a large
copy moves in that time. It runs straight from the sources: PyTorch, Triton and NumPy suffice.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import cases, exact, inputs, report, roofline
from benchmarks.contenders import PEERS, ours_on
from benchmarks.inputs import Attention, Product
from edgewise.errors import BackendRefusal, ConfigError, nearest
from edgewise.graphs import Graph, causal, complete, window

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 4e-2}  # peers that add up in bfloat16 lose 2e-2 in hubs' gradients
ROUNDS, ROUND = 15, 2e-3  # turns; seconds that one lasts at least
FLOAT, HALF = torch.float32, torch.bfloat16
Made = Callable[[float], Any]
Case = tuple[Made, torch.dtype, str, tuple[str, ...]]  # inputs by size, dtype, formula of its traffic, peers

SPARSE = ("pyg", "compiled")
SIZES = {"100k": (100_000, 2_000_000, 4, 32), "1M": (1_000_000, 16_000_000, 8, 16)}


def rule(graph: Callable[[int], Graph], n: int) -> Made:
    """32,768 tokens in texts of n, 16 heads of 64."""
    return lambda size: cases.rule(graph, n, 16, 64, (max(1, 32_768 // n) if size == 1 else 2,)).make(size)


def molecules(size: float) -> Attention:
    """512 molecules of 10 to 40 atoms, each complete."""
    graphs = [complete(n) for n in inputs.molecule_sizes(cases.scaled(512, size, 8))]
    return inputs.attention(Graph.batch(graphs), 8, 32, cases.Dot())


CASES: dict[str, Case] = {}
for dtype, short in ((HALF, "bf16"), (FLOAT, "fp32")):
    for name, sizes in SIZES.items():
        CASES[f"csr-{name}-{short}"] = (cases.csr(*sizes), dtype, "csr", SPARSE)
        CASES[f"sum-{name}-{short}"] = (cases.spmm(128, *sizes[:2]), dtype, "spmm", (*SPARSE, "sparse-csr"))
for n in (1024, 4096, 16384):
    CASES[f"complete-{n}"] = (rule(complete, n), HALF, "pairs", ("sdpa",))
    CASES[f"causal-{n}"] = (rule(causal, n), HALF, "pairs", ("sdpa", "flex"))
CASES["window-16384"] = (rule(partial(window, radius=128), 16384), HALF, "window", ("flex", "sdpa-masked"))
CASES["molecules"] = (molecules, HALF, "pairs", ("sdpa-grouped",))


class Card:
    """Where everything computes: a GPU, or in a dry run the CPU, whose figures mean nothing."""

    def __init__(self, dry: bool) -> None:
        self.dry, self.kind = dry, "cpu" if dry else "cuda"
        self.cache = 2**20 if dry else torch.cuda.get_device_properties(0).L2_cache_size

    def seconds(self, works: Sequence[Callable[[], Any]]) -> float:
        """Mean seconds of pieces of work done one after another."""
        if self.dry:
            start = time.perf_counter()
            for work in works:
                work()
            return (time.perf_counter() - start) / len(works)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for work in works:
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / len(works)

    def peak(self, work: Callable[[], Any]) -> float | None:
        """Megabytes that work holds at its peak above what is there before."""
        gc.collect()
        if self.dry:
            work()
            return None
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20

    def bandwidth(self) -> float:
        """Bytes read and written per second by a large copy."""
        source = torch.rand(2**20 if self.dry else 2**30, device=self.kind)
        target = torch.empty_like(source)
        return 8 * source.numel() / statistics.median(self.seconds([lambda: target.copy_(source)]) for _ in range(7))


def step(made: Any, run: Callable[[], Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Forward and backward."""
    y = run()
    return y, torch.autograd.grad(y, list(made.leaves.values()), made.gradient)


def forward(run: Callable[[], Tensor]) -> Tensor:
    """Without gradients."""
    with torch.no_grad():
        return run()


def errors(made: Any, run: Callable[[], Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    """Of the output and of each gradient, from the oracle on the rows that it took."""
    y = run()
    grads = torch.autograd.grad(y, list(made.leaves.values()), exact.checked_gradient(made))
    found = dict(zip(made.leaves, (grad.cpu() for grad in grads), strict=True))
    return exact.errors(made, y.cpu(), found, truth)


def copies(made: Any, card: Card) -> list[Any]:
    """Copies of the inputs of which the cache holds at most two thirds."""
    held = sum(leaf.nbytes for leaf in made.leaves.values()) + made.gradient.nbytes
    count = max(1, min(8, -(-3 * card.cache // max(1, held))))
    return [made, *(made.to(card.kind, made.gradient.dtype) for _ in range(count - 1))]


def measure(name: str, case: Case, card: Card, bandwidth: float) -> list[dict[str, Any]]:
    """A row for each contender: refused, or errors, megabytes and milliseconds."""
    make, dtype, formula, peers = case
    on_cpu: Attention | Product = make(0.002 if card.dry else 1.0).to("cpu", dtype)
    made, truth = on_cpu.to(card.kind, dtype), exact.solve(on_cpu)
    rows: dict[str, dict[str, Any]] = {}
    works: dict[tuple[str, str], list[Callable[[], Any]]] = {}
    sets = copies(made, card)
    for who, contender in (ours_on(card.kind) | {peer: PEERS[peer] for peer in peers}).items():
        row = rows[who] = {"case": name, "contender": who, "milliseconds": {}}
        if card.dry and contender.compiles:
            row["refused"] = "a dry run compiles nothing"
            continue
        try:
            if (why := contender.refuses(made)) is not None:
                row["refused"] = why
                continue
            runs = [contender.prepare(one) for one in sets]
            row["error"] = max(errors(made, runs[0], truth).values())
            if not row["error"] <= TOLERANCES[dtype]:
                row["refused"] = f"wrong by {row['error']:.1e}"
                continue
            row["MB"] = card.peak(partial(step, sets[0], runs[0]))
        except (BackendRefusal, RuntimeError, NotImplementedError, ImportError) as error:  # the others go on
            row["refused"] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            continue
        works[who, "forward"] = [partial(forward, run) for run in runs]
        works[who, "step"] = [partial(step, one, run) for one, run in zip(sets, runs, strict=True)]
    for (who, kind), seconds in turns(works, card).items():
        moved, _ = roofline.of(made, formula, kind)
        rows[who]["milliseconds"][kind] = 1e3 * seconds
        rows[who][f"{kind} of copy"] = moved * dtype.itemsize / 4 / seconds / bandwidth
    return list(rows.values())


def turns(works: dict[tuple[str, str], list[Callable[[], Any]]], card: Card) -> dict[tuple[str, str], float]:
    """Median seconds of each, in turns, each on its copies one after another."""
    repeats = {key: max(1, min(200, round(ROUND / max(card.seconds(sets), 1e-7)))) for key, sets in works.items()}
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in works}
    for at in range(3 if card.dry else ROUNDS):
        for place, (key, sets) in enumerate(works.items()):
            chosen = [sets[(at + place + n) % len(sets)] for n in range(repeats[key])]
            taken[key].append(card.seconds(chosen))
    return {key: statistics.median(found) for key, found in taken.items()}


def lines(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Rows as text; × is a contender's time over that of the planner's choice."""
    own = next(row["milliseconds"] for row in rows if row["contender"] == "edgewise")
    found = []
    for row in rows:
        line = {"contender": row["contender"]}
        for kind in ("forward", "step"):
            taken = row["milliseconds"].get(kind)
            line[f"{kind} ms"] = "" if taken is None else report.shown(taken)
            line[f"{kind} ×"] = "" if taken is None or kind not in own else f"{taken / own[kind]:.2f}"
            line[f"{kind} of copy"] = "" if taken is None else f"{row[f'{kind} of copy']:.0%}"
        line["MB"] = "" if row.get("MB") is None else f"{row['MB']:,.0f}"
        line["error"] = f"{row['error']:.0e}" if "error" in row else ""
        found.append(line | {"remark": row.get("refused", "")})
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="(default: all)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write table.md and results.json here")
    parser.add_argument("--dry-run", action="store_true", help="toy sizes on the CPU")
    options = parser.parse_args(argv)
    for name in options.cases:
        if name not in CASES:
            raise ConfigError(f"unknown case {name!r}{nearest(name, CASES)}; known are {', '.join(CASES)}")
    if not options.dry_run and not torch.cuda.is_available():
        raise ConfigError("PyTorch sees no GPU of NVIDIA's here; --dry-run shows how it works")
    card = Card(options.dry_run)
    bandwidth, rows, text = card.bandwidth(), [], []
    device = "a dry run on the CPU" if card.dry else torch.cuda.get_device_name()
    text.append(f"{device}; PyTorch {torch.__version__}; a copy moves {bandwidth / 1e12:.2f} TB/s, read and written\n")
    print(text[0], flush=True)
    for name in options.cases or CASES:
        found = measure(name, CASES[name], card, bandwidth)
        rows += found
        text.append(f"## {name}\n\n{report.markdown(lines(found))}")
        print(text[-1], flush=True)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "table.md").write_text("\n".join(text), encoding="utf-8")
            (options.out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
