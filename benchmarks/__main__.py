"""Time Edgewise beside its peers: in one process, checked against float64 first, all in turns.

    python -m benchmarks                                    the cases
    python -m benchmarks csr-4x16 --threads 2
    python -m benchmarks window-4096 --only edgewise sdpa-blocks
    python -m benchmarks all --brief
    python -m benchmarks all --device cuda --out results    on an NVIDIA GPU, straight from the sources (PYTHONPATH=src)

A contender whose output or gradients differ from the float64 oracle's is not timed; training steps are compared by
their first losses. A time is the median of rounds in which all take turns: of the processor on one thread, by the clock
on several, and between CUDA events on a GPU, where inputs rotate over more than its cache holds. MB is the peak of a
step above what was resident before; "of copy" is what any method must move (`benchmarks.roofline`) over what a large
copy moves in that time. With MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_=-1 in the environment the allocator keeps
what is freed, which spares PyTorch's operations the cost of fresh pages: measure peers so, too.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import exact, memory, roofline
from benchmarks.cases import CASES, CASES_OF_A_GPU, Case, Part
from benchmarks.contenders import PEERS, Contender, cora, gpt, ours_on
from benchmarks.inputs import Differentiated, Epoch, SmallGPT
from benchmarks.report import brief, lines, markdown, surroundings
from edgewise.apps.arguments import Parser, whole
from edgewise.apps.console import columns
from edgewise.errors import BackendRefusal, ConfigError, EdgewiseError, nearest

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 4e-2}  # of the largest exact entry, or of a loss
ROUND, ROUND_SHORT = 0.1, 2e-3  # seconds that a contender's turn lasts at least; on a GPU and in a quick run
LEAST = 3  # rounds
COMPARED = 5  # losses
Work = Callable[[], Any]
Row = dict[str, Any]


class Machine:
    """Where everything computes: so many threads of this processor, or a GPU."""

    def __init__(self, kind: str, threads: int, quick: bool = False) -> None:
        self.kind, self.threads = kind, threads
        self.cache = torch.cuda.get_device_properties(0).L2_cache_size if kind == "cuda" else 0
        self.round = ROUND_SHORT if quick or kind == "cuda" else ROUND

    def seconds(self, works: Sequence[Work]) -> float:
        """Mean seconds of pieces of work done one after another."""
        if (
            self.kind == "cpu"
        ):  # of the processor's time, what other programs take is no part; it tells nothing of threads
            clock = time.process_time if self.threads == 1 else time.perf_counter
            start = clock()
            for work in works:
                work()
            return (clock() - start) / len(works)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for work in works:
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / len(works)

    def peak(self, work: Work) -> float:
        """Megabytes that work holds at its peak above what is there before."""
        if self.kind == "cpu":
            return memory.peak_above(work)
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20


def step(made: Any, run: Callable[[], Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Forward and backward."""
    y = run()
    return y, torch.autograd.grad(y, list(made.leaves.values()), made.gradient)


def forward(run: Callable[[], Tensor]) -> Tensor:
    """Without gradients."""
    with torch.no_grad():
        return run()


def truth_of(made: Any) -> dict[str, Tensor]:
    """The oracle's answer; nothing for an epoch or a sample."""
    if isinstance(made, Differentiated):
        return exact.solve(made)
    return {"losses": gpt.exact(COMPARED)} if isinstance(made, SmallGPT) else {}


def error_of(made: Any, contender: Contender, run: Callable[[], Any], truth: dict[str, Tensor]) -> float:
    """The largest of a contender's errors; of an epoch, the share of Cora's validation nodes that it gets wrong."""
    if isinstance(made, Epoch):
        accuracy = max([run()[1] for _ in range(cora.EPOCHS)][-5:])
        return 0.0 if accuracy >= cora.LEARNT else 1 - accuracy
    if isinstance(made, SmallGPT):
        return max(abs(run() / loss - 1) for loss in truth["losses"].tolist())
    if not isinstance(made, Differentiated):
        return 0.0
    with torch.set_grad_enabled(not contender.forward_only):
        y, found = run(), {}
    if not contender.forward_only:
        grads = torch.autograd.grad(y, list(made.leaves.values()), exact.checked_gradient(made))
        found = dict(zip(made.leaves, (grad.cpu() for grad in grads), strict=True))
    return max(exact.errors(made, y.cpu(), found, truth).values())


def measure(part: Part, contenders: dict[str, Contender], machine: Machine, rounds: int, size: float) -> list[Row]:
    """A row for each contender: why it was refused, or its error, megabytes and seconds by kind of pass."""
    made: Any = part.make(size)
    sets, dtype = list[Any](), part.dtype
    if isinstance(made, Differentiated):
        made = made.to("cpu", dtype)
        held = sum(leaf.nbytes for leaf in made.leaves.values()) + made.gradient.nbytes
        sets = [made.to(machine.kind, dtype) for _ in range(max(1, min(8, -(-3 * machine.cache // max(1, held)))))]
    truth, rows, works = truth_of(made), {}, dict[tuple[str, str], list[Work]]()
    for name, contender in contenders.items():
        row: Row = {"contender": name, "threads": machine.threads, "seconds": {}}
        rows[name] = row
        torch.manual_seed(0)
        try:
            if (why := contender.refuses(sets[0] if sets else made)) is not None:
                row["refused"] = why
                continue
            runs = [contender.prepare(one) for one in sets or [made]]
            row["error"] = error_of(sets[0] if sets else made, contender, runs[0], truth)
            if not row["error"] <= TOLERANCES[dtype]:
                row["refused"] = f"wrong by {row['error']:.1e}"
                continue
            own: dict[str, list[Work]] = {"forward": [partial(forward, run) for run in runs] if sets else [*runs]}
            if sets and not contender.forward_only:
                own["step"] = [partial(step, one, run) for one, run in zip(sets, runs, strict=True)]
            row["MB"] = machine.peak([*own.values()][-1][0])
        except (BackendRefusal, RuntimeError, MemoryError, NotImplementedError, ImportError) as error:  # others go on
            row["refused"] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            continue
        works |= {(name, kind): turn for kind, turn in own.items()}
    for (name, kind), taken in turns(works, machine, rounds).items():
        rows[name]["seconds"][kind] = taken
        if part.traffic:
            moved, operations = roofline.of(sets[0], part.traffic, kind)
            rows[name] |= {f"{kind} bytes": moved * dtype.itemsize / 4, f"{kind} operations": operations}
    return list(rows.values())


def turns(
    works: dict[tuple[str, str], list[Work]], machine: Machine, rounds: int
) -> dict[tuple[str, str], list[float]]:
    """Seconds of each in every round, each on its copies of the inputs one after another."""
    repeats = {key: max(1, round(machine.round / max(machine.seconds(sets), 1e-7))) for key, sets in works.items()}
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in works}
    for at in range(rounds):
        for place, (key, sets) in enumerate(works.items()):
            sets[0]()  # caches and freed pages are as in the middle of a loop, not as after another contender's turn
            taken[key].append(machine.seconds([sets[(at + place + n) % len(sets)] for n in range(repeats[key])]))
    return taken


def chosen(case: Case, kind: str, only: Sequence[str], quick: bool, brief: bool = False) -> dict[str, Contender]:
    """Who takes part: Edgewise by the planner and by each backend, and the case's peers."""
    own = ours_on(kind)
    found = ({"edgewise": own["edgewise"]} if case.whole or brief else own) | {name: PEERS[name] for name in case.peers}
    for name in only:
        if name not in found:
            raise ConfigError(f"unknown contender {name!r}{nearest(name, found)}; there are {', '.join(found)}")
    return {n: one for n, one in found.items() if (not only or n in only) and not (quick and one.compiles)}


def build_parser() -> Parser:
    about, _, details = (__doc__ or "").partition("\n")
    formatter = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="python -m benchmarks", description=about, epilog=details, formatter_class=formatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases, or `all`; without one, list them")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="(default: cpu)")
    parser.add_argument("--threads", type=whole(1, 1024), default=1, metavar="N", help="(default: 1)")
    parser.add_argument("--rounds", type=whole(1, 10_000), default=7, metavar="N", help="(default: 7)")
    parser.add_argument("--only", nargs="+", default=[], metavar="CONTENDER", help="these contenders only")
    parser.add_argument(
        "--brief", action="store_true", help="the planner's choice beside the fastest peer, in one table"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing compiled; no figure counts")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write table.md and results.json here")
    return parser


def failed(row: Row) -> bool:
    """Whether Edgewise itself is wrong, or its own choice raised an error."""
    wrong = row.get("refused", "").startswith("wrong") and row["contender"] not in PEERS
    return wrong or (row["contender"] == "edgewise" and "refused" in row)


def bench(options: argparse.Namespace) -> int:
    """Measure the cases one after the other, and print and write a table of each; 1 where one of Edgewise failed."""
    known = CASES_OF_A_GPU if options.device == "cuda" and not options.quick else CASES | CASES_OF_A_GPU
    if not options.cases:
        print(columns([{"case": name, "description": case.about} for name, case in known.items()]))
    for name in options.cases:
        if name not in (*known, "all"):
            raise ConfigError(f"unknown case {name!r}{nearest(name, known)}; `python -m benchmarks` lists them")
    names = [name for name in CASES if name in known] or [*known]
    names = names if "all" in options.cases else options.cases
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("PyTorch sees no GPU of NVIDIA's here")
    torch.set_num_threads(options.threads)
    machine = Machine(options.device, options.threads, options.quick)
    copied = roofline.copied(machine.kind, machine.seconds, options.quick) if names else 0.0
    results: dict[str, Any] = {"machine": surroundings(options.device), "copy": copied, "rows": []}
    text = [
        f"{', '.join(map(str, results['machine'].values()))}; {options.threads} threads; copies {copied / 1e9:.1f} GB/s"
    ]
    print(text[0] if names else "", flush=True)
    for name in names:
        case = known[name]
        torch.compiler.reset()  # what one peer compiled for other cases counts against its limit of compilations
        contenders = chosen(case, options.device, options.only, options.quick, options.brief)
        rounds, size = (LEAST, case.quick) if options.quick else (options.rounds, 1.0)
        for title, part in list(case.parts.items())[: 1 if options.quick else None]:
            rows = measure(part, contenders, machine, rounds, size)
            results["rows"] += [{"case": name, "part": title} | row for row in rows]
            text.append(f"## {name} {title}".rstrip() + f"\n\n{case.about}\n\n{markdown(lines(rows, copied))}")
            print(name if options.brief else f"\n{text[-1]}", flush=True)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "table.md").write_text("\n\n".join(text), encoding="utf-8")
            (options.out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    if options.brief and names:
        multiplied = roofline.multiplied(machine.kind, machine.seconds)
        print(f"products {multiplied / 1e9:.0f} GFLOP/s\n\n{markdown(brief(results['rows'], copied, multiplied))}")
    return int(any(map(failed, results["rows"])))


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for: 0; 1 where Edgewise is wrong or fails; 2 for what the user can put right."""
    try:
        parser = build_parser()
        options, extra = parser.parse_known_args(argv)
        if extra:
            parser.refuse(extra[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of contenders, such as PyTorch's about its CSR layout
            return bench(options)
    except EdgewiseError as error:
        print("benchmarks: error: " + " ".join(str(error).split()), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
