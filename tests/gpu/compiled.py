"""Kernels compiled for a card that need not be there: for the tests' subprocesses, where nothing is interpreted."""

import re
import subprocess
import tempfile
from pathlib import Path

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia
from triton.runtime import driver
from triton.runtime.jit import JITFunction

TOOLS = Path(nvidia.__file__).parent / "bin"


class Card:
    """A driver that names a target, and launches nothing."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only() -> None:
    """From now on a launch compiles the kernel for sm_90, and that is all."""
    driver.set_active(Card())
    run = JITFunction.run
    JITFunction.run = lambda kernel, *args, warmup, **options: run(kernel, *args, warmup=True, **options)


def variants(kernel: JITFunction) -> list:
    """Everything that was compiled of a kernel."""
    return list(kernel.device_caches[0][0].values())


def resources(compiled) -> dict[str, int]:
    """Registers, and bytes of spills, of shared and of local memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(TOOLS / "cuobjdump"), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", said)}


def tensor(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of those sizes whose numbers nobody reads."""
    return torch.zeros(*sizes, dtype=dtype)
