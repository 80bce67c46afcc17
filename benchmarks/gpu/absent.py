"""A card that need not be there: every launch compiles its kernel for compute capability 9.0, and that is all.

For processes without TRITON_INTERPRET, in which nothing else is computed by Triton: results are what memory held.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from edgewise.kernels import BACKENDS


class Card:
    """A driver that names a target, and launches nothing."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel's name, its keyword arguments, and what Triton made of it."""

    name: str
    arguments: dict[str, Any]
    compiled: Any

    @property
    def ptx(self) -> str:
        """Its assembly."""
        text: str = self.compiled.asm["ptx"]
        return text

    def resources(self) -> dict[str, int]:
        """REG: registers of a thread; STACK and LOCAL: bytes spilled; SHARED: bytes of a program."""
        tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.cubin"
            path.write_bytes(self.compiled.asm["cubin"])
            command = [str(tool), "--dump-resource-usage", str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
        return {name: int(number) for name, number in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", said)}


def pretend() -> list[Launch]:
    """From now on nothing is launched; the list to which each launch is added."""
    launches: list[Launch] = []
    run = JITFunction.run

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **others: Any) -> Any:
        compiled = run(kernel, *args, grid=grid, warmup=True, **others)
        launches.append(Launch(kernel.fn.__name__, others, compiled))
        return compiled

    driver.set_active(Card())
    cards = [backend for backend in BACKENDS.values() if backend.devices == ("cuda",)]
    BACKENDS.update({backend.name: dataclasses.replace(backend, by_name=("cpu",)) for backend in cards})
    JITFunction.run = compile_only
    return launches


def variants(launches: list[Launch], name: str | None = None) -> list[Launch]:
    """Of each compiled form, of the kernel of that name or of all, the first launch."""
    return list({id(one.compiled): one for one in reversed(launches) if name in (None, one.name)}.values())[::-1]
