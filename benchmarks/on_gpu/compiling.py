"""Every Triton kernel compiled for a Hopper card where there is none: registers, spills and shared memory.

A module of `edgewise.gpu` takes part by a function

    def variants() -> Iterator[tuple[str, JITFunction, dict[str, str], dict[str, object], dict[str, int]]]

whose entries are a name, the kernel, the types of its arguments by name ("*bf16", "i32", "fp32"; those of its constants
are "constexpr"), the values of its constants, and options such as {"num_warps": 4}.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from edgewise import gpu

ARCHITECTURE = 90


def compile_all() -> int:
    """Print a line for every variant; 1 where one does not compile."""
    if os.environ.get("TRITON_INTERPRET") == "1" or not gpu.INSTALLED:
        print("compiling needs Triton, and TRITON_INTERPRET unset")
        return 2
    failures = 0
    for info in pkgutil.iter_modules(gpu.__path__):
        module = importlib.import_module(f"edgewise.gpu.{info.name}")
        if not hasattr(module, "variants"):
            print(f"{info.name}: names no variants")
            continue
        for name, kernel, signature, constants, options in module.variants():
            try:
                print(f"{info.name} {name}: {resources(kernel, signature, constants, options)}", flush=True)
            except Exception as error:  # the others are compiled all the same
                failures += 1
                print(f"{info.name} {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return int(failures > 0)


def resources(kernel: Any, signature: dict[str, str], constants: dict[str, Any], options: dict[str, int]) -> str:
    """What one variant takes of a multiprocessor."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", ARCHITECTURE, 32), options=options)
    told = _assembler(compiled.asm["ptx"])
    used = re.search(r"Used (\d+) registers", told)
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", told)
    registers = f"{used[1]} registers" if used else "registers unknown"
    spills = f"{spilled[1]} + {spilled[2]} bytes spilled" if spilled else "spills unknown"
    return f"{registers}, {spills}, {compiled.metadata.shared} bytes shared, {compiled.metadata.num_warps} warps"


def _assembler(ptx: str) -> str:
    """What ptxas says of a kernel."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx, encoding="utf-8")
        command = [knobs.nvidia.ptxas.path, "-v", f"-arch=sm_{ARCHITECTURE}a", str(path), "-o", f"{path}.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stderr + done.stdout
