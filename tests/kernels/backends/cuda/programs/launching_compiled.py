"""Launches kernels again and again on a card that is not there: what is handed to its driver, and by whom."""

import json

import torch
from triton.compiler.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from benchmarks.gpu.absent import Card
from edgewise.kernels.backends.cuda.programs import products
from edgewise.kernels.backends.cuda.programs.dropout import dropped


def plain(x: object) -> object:
    """An argument, where it is a tensor its address."""
    return x.data_ptr() if isinstance(x, torch.Tensor) else x


def main() -> None:
    handed, by_triton = [], []
    run = JITFunction.run
    JITFunction.run = lambda kernel, *args, **more: (by_triton.append(1), run(kernel, *args, **more))[1]
    driver.set_active(Card())
    CompiledKernel._init_handles = lambda self: None
    CompiledKernel.launch_metadata = lambda self, grid, stream, *args: None
    CompiledKernel.run = property(
        lambda self: lambda *args: handed.append((args[:3], self.hash, *map(plain, args[9:])))
    )
    CompiledKernel.function = 0

    def told() -> dict[str, int]:
        """Launches since the last time, how many of them Triton made, and how many kernels were compiled."""
        found = {"launches": len(handed), "by Triton": len(by_triton), "kernels": len({one[1] for one in handed})}
        found["alike"] = len({one[2:] for one in handed}) == 1
        handed.clear()
        by_triton.clear()
        return found

    structure = [torch.arange(9), torch.zeros(8, dtype=torch.int32), torch.empty(0, dtype=torch.int32)]
    wide = torch.zeros(1, 8, 1, 64)

    def add_up(x: torch.Tensor, kind: str = "sum") -> None:
        products.reduce_into(wide.to(x.dtype), kind, (x, None, None, None), structure, False)

    x, y, seed = torch.zeros(4096), torch.zeros(4096), torch.zeros((), dtype=torch.int64)
    found = {}
    for _ in range(3):
        dropped[(4,)](x, y, seed, 4096, 7, 2.0, 1024)
    found["the same numbers"] = told()
    for number in (3, 16, 1, 2**31):
        dropped[(4,)](x, y, seed, number, number, float(number), 1024)
    found["numbers of other sizes"] = told()
    for block in (512, 256, 512):
        dropped[(4,)](x, y, seed, 4096, 7, 2.0, BLOCK=block)
    found["other constants"] = told()
    for part in (x[1:], x[2:], x[4:]):
        dropped[(4,)](part, y, seed, 4096, 7, 2.0, 1024)
    found["other addresses"] = told()
    for kind in ("sum", "max", "sum", "max"):
        add_up(wide, kind)
    found["options by name"] = told()
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        add_up(wide.to(dtype))
    found["other dtypes"] = told()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
