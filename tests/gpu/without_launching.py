"""Launches that only compile, for a card that need not be there. In a process with the interpreter nothing compiles."""

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from edgewise import gpu


class Absent:
    """An NVIDIA card of compute capability 9.0."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


def pretend():
    """Launch nothing from now on; the list to which each launch adds its kernel's name, arguments and compiled form."""
    compiled, run = [], JITFunction.run

    def compile_only(self, *args, grid, warmup, **kwargs):
        compiled.append((self.fn.__name__, kwargs, run(self, *args, grid=grid, warmup=True, **kwargs)))

    driver.set_active(Absent())
    gpu.refusal = lambda device: None
    JITFunction.run = compile_only
    return compiled
