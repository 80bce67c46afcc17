"""Exported models beside eager Edgewise: compiled attention from C++ by native operators, decoding by onnxruntime.

    python -m benchmarks.whole.deployed [--cases csr-4x16 molecules gpt] [--rounds 5] [--calls 10] [--folder F]

csr-4x16 and molecules are the benchmark's cases of those names: attention alone, on a graph that eager Edgewise built
before, and that the file reads as `edge_index` in every call. gpt decodes 200 characters with the cache, one after the
other, by a model of the recipe shakespeare-gpt-cpu's sizes. The sides take turns, each in a process of its own on one
core; the ratios are those of the medians and of the fastest calls over all rounds, and the second, which other
processes disturb less, is held to the bar. It builds `examples/cpp`, so it takes CMake and a C++ compiler;
what it has built and exported in a folder serves its next call there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import edgewise
from benchmarks import inputs
from benchmarks.cases import scaled
from edgewise.deployment.files import beside
from edgewise.graphs import Graph, causal
from edgewise.models import Tokens, Transformer, TransformerSettings

EXAMPLE = Path(__file__).parents[2] / "examples" / "cpp"
LONGEST = {"csr-4x16": 1.1, "molecules": 1.1, "gpt": 1.2}  # times eager
TOKENS, FEW = 220, 20  # characters, of which the first are not counted: loading and warming up


class Attention(nn.Module):
    """x [N, 3 H C] = [q ‖ k ‖ v] -> attention of H heads."""

    def __init__(self, heads: int, channels: int) -> None:
        super().__init__()
        self.shape = 3, heads, channels

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        q, k, v = x.unflatten(-1, self.shape).unbind(-3)
        return edgewise.attend(graph, q, k, v).flatten(-2)


SHAPES = {"csr-4x16": (4, 16), "molecules": (4, 32)}


def graph_of(case: str, size: float) -> Graph:
    """The graph of a case."""
    if case == "csr-4x16":
        return inputs.power_law(scaled(100_000, size), scaled(2_000_000, size))
    return inputs.molecules(scaled(256, size, 8))


def gpt() -> Transformer:
    """A model of the recipe's sizes, with weights as they are drawn."""
    torch.manual_seed(0)
    settings = TransformerSettings(width=128, depth=4, heads=4, positions="learned", feed_forward="gelu", tied=True)
    return Transformer(settings, Tokens(65, 65, length=64)).eval()


def most_memory() -> float:
    """The most megabytes that this process had in memory (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1000


def eager(case: str, arrays: Path, calls: int) -> None:
    """Print what `examples/cpp` prints of a compiled file: seconds of each call, and the most memory."""
    run: Callable[[], object]
    with torch.inference_mode():
        if case == "gpt":
            model, prompt = gpt(), torch.zeros(1, 1, dtype=torch.int64)
            run = lambda: model.generate(prompt, TOKENS - FEW, causal, temperature=0.0)  # noqa: E731
        else:
            given = {name: torch.from_numpy(array) for name, array in np.load(arrays).items()}
            graph, layer = Graph.from_edge_index(given["edge_index"], len(given["x"])), Attention(*SHAPES[case])
            torch.testing.assert_close(layer(graph, given["x"]), given["expected_y"], rtol=0, atol=1e-5)
            run = lambda: layer(graph, given["x"])  # noqa: E731
        run()
        for _ in range(calls):
            started = time.perf_counter()
            run()
            print(f"seconds {time.perf_counter() - started}")
    print(f"megabytes {most_memory()}")


def decoded(script: Path, calls: int) -> None:
    """Print the same of the script beside an onnx file, which continues a text."""
    os.chdir(script.parent)

    def seconds(tokens: int) -> float:
        sys.argv = [script.name, str(tokens), "prompt.npz"]
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(script.name)
        return time.perf_counter() - started

    for _ in range(calls):
        few = seconds(FEW)
        print(f"seconds {seconds(TOKENS) - few}")
    print(f"megabytes {most_memory()}")


def written(case: str, size: float, folder: Path) -> tuple[list[str], Path]:
    """The command that runs an exported case, without the number of calls, and the arrays that it reads."""
    if case == "gpt":
        file = folder / "gpt.onnx"
        if not file.exists():
            edgewise.export(gpt(), (causal(16), torch.randint(65, (1, 16))), "onnx", file, cache=True)
        np.savez(folder / "prompt.npz", tokens=np.zeros((1, 1), "int64"))
        return [sys.executable, "-m", __spec__.name, "--script", str(beside(file, "py"))], folder / "prompt.npz"
    (heads, channels), file = SHAPES[case], folder / f"{case}.aoti.pt2"
    if not file.exists():
        graph = graph_of(case, size)
        x = torch.randn(graph.num_receivers, 3 * heads * channels, generator=torch.Generator().manual_seed(0))
        edgewise.export(Attention(heads, channels), (graph, x), "aoti", file, native=True)
    if not (folder / "build" / "run").exists():
        torch_home = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
        for step in (["-S", EXAMPLE, "-B", folder / "build", torch_home], ["--build", folder / "build"]):
            subprocess.run([str(shutil.which("cmake")), *map(str, step)], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    arrays = beside(file, "npz")
    return [str(folder / "build" / "run"), str(file), str(arrays)], arrays


def measured(command: list[str], core: int) -> tuple[list[float], float]:
    """Seconds of each call, and the most megabytes, that a process on one core prints."""
    made = subprocess.run(  # noqa: S603 - this interpreter, or the program that was built
        command, capture_output=True, text=True, check=False, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    if made.returncode:
        raise SystemExit(made.stdout[-1000:] + made.stderr[-2000:])
    words = [line.split() for line in made.stdout.splitlines()]
    seconds = [float(line[1]) for line in words if line[:1] == ["seconds"]]
    return seconds, next(float(line[1]) for line in words if line[:1] == ["megabytes"])


def compare(case: str, size: float, rounds: int, calls: int, folder: Path) -> bool:
    """Print a case's figures; whether the file is as fast as it must be."""
    command, arrays = written(case, size, folder)
    own = [sys.executable, "-m", __spec__.name, "--eager", case, "--arrays", str(arrays), "--calls", str(calls)]
    command += ["--calls", str(calls)] if case == "gpt" else [str(calls)]
    core = max(os.sched_getaffinity(0))
    times: dict[str, list[float]] = {"eager": [], "exported": []}
    memory: dict[str, float] = {}
    for _ in range(rounds):
        for side, started in (("eager", own), ("exported", command)):
            seconds, megabytes = measured(started, core)
            times[side] += seconds
            memory[side] = max(megabytes, memory.get(side, 0.0))
    for side, seconds in times.items():
        median, fastest = 1000 * statistics.median(seconds), 1000 * min(seconds)
        print(f"{case} {side}: median {median:.2f} ms, fastest {fastest:.2f} ms, {memory[side]:.0f} MB at most")
    of_medians = statistics.median(times["exported"]) / statistics.median(times["eager"])
    ratio = min(times["exported"]) / min(times["eager"])
    print(f"{case}: {ratio:.2f} times eager ({of_medians:.2f} by medians), at most {LONGEST[case]}", flush=True)
    return ratio <= LONGEST[case]


def main() -> int:
    """Print the figures; 1 where a file is too slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=LONGEST, default=list(LONGEST))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--folder", type=Path)
    for one in ("--eager", "--arrays", "--script"):  # what each process does
        parser.add_argument(one, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    if args.eager:
        eager(args.eager, Path(args.arrays), args.calls)
        return 0
    if args.script:
        decoded(Path(args.script), args.calls)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        place = args.folder or Path(folder)
        fast = [compare(case, args.size, args.rounds, args.calls, place) for case in args.cases]
    return 0 if all(fast) else 1


if __name__ == "__main__":
    sys.exit(main())
