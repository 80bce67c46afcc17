"""Edgewise on an NVIDIA GPU beside its peers: one command, which begins no case after 8.5 minutes (--minutes).

PYTHONPATH=src python -m benchmarks all --device cuda [--out FOLDER] [--quick] [--minutes M]
PYTHONPATH=src python -m benchmarks all --device cuda --dry-run     at toy sizes on the CPU; no figure counts
PYTHONPATH=src python -m benchmarks --device cuda --compile-only    the Triton kernels compiled, without a card

It runs straight from the sources: PyTorch, Triton, NumPy, SciPy, PyYAML, safetensors and tqdm are enough, nothing is
built or installed. PyTorch Geometric, and anemoi-models' wheel (`pip download --no-deps anemoi-models`, unpacked onto
the path), take part where they can be imported. With EDGEWISE_DATA naming a folder that holds planetoid/, `cora-gat`
trains on Cora, else on a generated graph of its sizes; the text is always generated.

A time is the median of rounds in which all contenders take turns, between CUDA events, on inputs that rotate over more
than the L2 holds; short work is repeated without waiting, and a "replayed" step was captured in a CUDA graph. An error
is ‖x − x*‖ / ‖x*‖ from a float64 oracle, the worst of y and all gradients; training steps have none, and losses that
have to fall or, on the whole graph, to be finite. A contender that is wrong is told of and not timed; one that takes
the card's context down is left out of the new process that goes on. MB is the peak of a step above what was resident
before. When the time is spent no new case begins, and what was left out is said: a second call with those names
measures them. The results are results.json and table.md.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import compiling, dense, sparse, sums, table, training
from benchmarks.gpu.problems import Row
from benchmarks.gpu.timing import BrokenError, Device, stopped
from benchmarks.regret.grid import regret
from edgewise import __version__
from edgewise.errors import ConfigError, nearest
from edgewise.kernels.choose import measure as calibration
from edgewise.kernels.choose.machines import MACHINES

FLOAT, HALF = torch.float32, torch.bfloat16


def calibrate(device: Device) -> list[Row]:
    """The planner's constants, as `edgewise plan --calibrate --device cuda` measures them."""
    if device.toy:
        return [{"problem": "calibration", "contender": "planner", "refused": "a dry run measures no speeds"}]
    compiled = device.waited(lambda: calibration.calibrate("cuda"))  # with the kernels' first compilation
    seconds = device.waited(lambda: calibration.calibrate("cuda"))
    row = {"problem": "calibration of the planner", "contender": "planner", "seconds": seconds, "first": compiled}
    return [row | {"speeds": table.plain(MACHINES)}]


def regrets(dtype: torch.dtype, device: Device) -> list[Row]:
    """The planner's regret over the grid of the case `regret`, in one dtype."""
    seconds = max(5.0, min(75.0, device.left() - 10))
    found = regret(
        quick=device.toy,
        threads=torch.get_num_threads(),
        seconds=0.3 if device.toy else seconds,
        device=device.kind,
        dtype=dtype,
    )
    row: Row = {"problem": "the planner's regret", "contender": "planner", "dtype": found["dtype"], "regret": found}
    return [row]


def cases(quick: bool) -> dict[str, Callable[[Device], list[Row]]]:
    """By name: one of every kind first, in case that time runs out; then the other sizes."""
    found: dict[str, Callable[[Device], list[Row]]] = {"calibration": calibrate}
    found |= {f"csr-{size}-bf16": partial(sparse.csr, size, HALF) for size in ("1M", "100k")}
    found |= {"max-1M-bf16": partial(sums.sums, "1M", HALF, "max")}
    found |= {f"{graph}-4096": partial(dense.plain, graph, 4096) for graph in ("complete", "causal")}
    found |= {"window-16384": partial(dense.window, 16384, 128), "molecules": dense.molecules}
    found |= {"molecules-plain": partial(dense.molecules, biased=False)}
    found |= {"gpt": training.shakespeare_gpt, "cora-gat": training.cora_gat, "whole-graph": sparse.whole_graph}
    found["regret"] = partial(regrets, FLOAT)
    if quick:
        return found
    found |= {f"csr-{size}-fp32": partial(sparse.csr, size, FLOAT) for size in ("100k", "1M")}
    found |= {f"sum-{size}-fp32": partial(sums.sums, size, FLOAT, "sum") for size in ("100k", "1M")}
    found |= {f"{reduce}-1M-bf16": partial(sums.sums, "1M", HALF, reduce) for reduce in ("sum", "mean")}
    for n in (1024, 16384, 2048, 8192):
        found |= {f"{graph}-{n}": partial(dense.plain, graph, n) for graph in ("causal", "complete")}
    return found | {"regret-bf16": partial(regrets, HALF), "window-32768": partial(dense.window, 32768, 128)}


DRY = (
    "calibration", "csr-1M-bf16", "max-1M-bf16", "sum-1M-bf16", "causal-4096", "window-16384", "molecules",
    "molecules-plain", "gpt", "cora-gat", "whole-graph", "regret",
)  # fmt: skip


def machine(device: Device) -> dict[str, Any]:
    """The card and the versions that take part."""
    found: dict[str, Any] = {
        "device": "none: a dry run on the CPU" if device.dry else torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "edgewise": __version__,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "bandwidth, B/s": device.measure_bandwidth(),
        "cache, B": device.cache,
        "bytes": sparse.BYTES,
    }
    for package in ("triton", "torch_geometric", "anemoi-models"):
        found[package] = table.version_of(package)
    return found


def run(device: Device, chosen: dict[str, Callable[[Device], list[Row]]], out: Path | None) -> dict[str, Any]:
    """Run the cases one after another; what is measured is written after each of them."""
    results: dict[str, Any] = {"machine": machine(device), "dry": device.dry, "rows": [], "left out": []}
    print(table.head(results), flush=True)
    for number, (name, case) in enumerate(chosen.items()):
        if device.left() < 25:
            results["left out"].append(name)
            continue
        started = time.perf_counter()
        try:
            rows = case(device)
        except BrokenError as error:
            print(f"\n## {name}: {error} crashed ({error.__cause__}); a new process goes on without it", flush=True)
            device.without |= {str(error)}
            go_on(device, [*chosen][number:], results)
            break
        except Exception as error:  # the others go on
            rows = [{"problem": name, "contender": "-"} | stopped(error)]
        results["rows"] += [{"case": name} | row for row in rows]
        print(f"\n## {name} ({time.perf_counter() - started:.0f} s)\n\n{table.of_rows(rows)}", flush=True)
        if out is not None:
            write(out, results)
        if device.broken():
            print(f"\n{name} took the card's context down; a new process goes on with what is left", flush=True)
            go_on(device, [*chosen][number + 1 :], results)
            break
        device.clear()
    if results["left out"]:
        print(f"\nLeft out for lack of time: {', '.join(results['left out'])}.")
    return results


def go_on(device: Device, names: list[str], results: dict[str, Any]) -> None:
    """Do what is left in a new process, without the contenders that took a context down."""
    if not names:
        return
    with tempfile.TemporaryDirectory() as folder:
        words = [*names, "--device", "cuda", *(["--without", *sorted(device.without)] if device.without else [])]
        words += ["--minutes", f"{device.left() / 60:.2f}"]
        command = [sys.executable, "-m", "benchmarks", *words, "--out", folder] + (["--dry-run"] if device.dry else [])
        code = subprocess.run(command, check=False).returncode  # noqa: S603
        found = Path(folder) / "results.json"
        more = json.loads(found.read_text(encoding="utf-8")) if found.exists() else {"rows": [], "left out": []}
    missing = [name for name in names if name not in {row["case"] for row in more["rows"]} | {*more["left out"]}]
    what = {"contender": "-", "refused": f"the process ended before it, with code {code}", "failed": True}
    results["rows"] += more["rows"] + [{"case": name, "problem": name} | what for name in missing]
    results["left out"] += more["left out"]


def write(out: Path, results: dict[str, Any]) -> None:
    """results.json and table.md."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(table.plain(results), indent=1, ensure_ascii=False), encoding="utf-8")
    (out / "table.md").write_text(table.page(results), encoding="utf-8")


def bench(args: Namespace) -> int:
    """Run what the command line asks for; 1 where a contender of Edgewise's own is wrong or fails."""
    if args.compile_only:
        return compiling.compile_all()
    known = cases(args.quick)
    if not args.cases:
        print("\n".join(known))
        return 0
    for name in args.cases:
        if name not in (*known, "all"):
            raise ConfigError(f"unknown case {name!r}{nearest(name, known)}; known are {', '.join(known)}")
    if not args.dry_run and not torch.cuda.is_available():
        raise ConfigError("PyTorch sees no GPU of NVIDIA's here; --dry-run shows how it works")
    torch.manual_seed(0)
    device = Device(args.dry_run, 60 * args.minutes)
    device.without = frozenset(args.without)
    names = (DRY if args.dry_run else known) if "all" in args.cases else args.cases
    results = run(device, {name: known[name] for name in known if name in names}, args.out)
    if args.out is not None:
        write(args.out, results)
    return int(table.failed(results["rows"]))
