"""Compiles the kernels for compute capability 9.0, where no card need be, and prints what came out, as JSON.

In a process of its own, without TRITON_INTERPRET: every launch compiles, and that is all. Results are what memory held.
"""

import json
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from edgewise import Dot, EdgeBias, Graph, aggregate, attend, blocks, window
from edgewise.kernels import BACKENDS


class Card:
    """A driver that names a target, and launches nothing."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


compiled: dict[str, Any] = {}  # by the kernel's name and dtype: the last that was made of it
_run = JITFunction.run


def _compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **others: Any) -> Any:
    made = _run(kernel, *args, grid=grid, warmup=True, **others)
    first = next(x for x in (*others.values(), *args) if isinstance(x, torch.Tensor) and x.is_floating_point())
    compiled[f"{kernel.fn.__name__}, {first.dtype}"] = made
    return made


def resources(made: Any) -> dict[str, int]:
    """REG: registers of a thread; STACK and LOCAL: bytes spilled; SHARED: bytes of a program."""
    tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(made.asm["cubin"])
        command = [str(tool), "--dump-resource-usage", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", said)}


def main() -> None:
    driver.set_active(Card())
    for name, backend in list(BACKENDS.items()):
        if backend.devices == ("cuda",):
            BACKENDS[name] = replace(backend, by_name=("cpu",))
    JITFunction.run = _compile_only
    graph = Graph.from_edge_index(torch.randint(64, (2, 600)), num_nodes=64)
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.zeros(64, 4, 32, dtype=dtype, requires_grad=True)
        weight = torch.zeros(600, 4, dtype=dtype, requires_grad=True)
        score = Dot() + EdgeBias(torch.zeros(2 * 32**2, 4, requires_grad=True))
        attend(graph, x, x, x, backend="triton").sum().backward()
        attend(window(64, 9), x, x, x, backend="bitmap").sum().backward()
        attend(blocks([32, 32]), x, x, x, score, backend="ragged").sum().backward()
        for reduce in ("mean", "max"):
            aggregate(graph, x, weight, reduce, backend="triton").sum().backward()
    found = {
        name: resources(made)
        | {"wide": made.asm["ptx"].count("ld.global.v4"), "products": len(re.findall("mma", made.asm["ptx"]))}
        for name, made in compiled.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
