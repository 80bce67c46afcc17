"""Compiles attention by windows for sm_90 and prints what came out, as JSON. Run without TRITON_INTERPRET."""

import json

import torch

from edgewise.gpu import bitmap
from edgewise.gpu.building import windows
from gpu import compiled


def compile_all(nodes: int, degree: int, dtype: torch.dtype, channels: int, heads: int = 2, batch: int = 1) -> None:
    offsets = torch.arange(0, nodes * degree + 1, degree)
    graph = windows(offsets, torch.arange(nodes * degree) % 16 * (torch.arange(nodes * degree) // degree > 16), nodes)
    assert len(graph) > 3, "windows of two lengths, so that they are listed"
    x = compiled.tensor(batch, nodes, heads, channels, dtype=dtype)
    y, lse = bitmap.forward(x, x, x, graph, 0.5)
    bitmap.backward(y, x, x, x, y, lse, graph, graph, 0.5)


KERNELS = {"forward": bitmap._forward, "backward": bitmap._backward}


def main() -> None:
    compiled.compile_only()
    compile_all(100, 8, torch.bfloat16, 32)
    first = {name: len(compiled.variants(kernel)) for name, kernel in KERNELS.items()}
    for nodes, degree, heads, batch in ((33, 3, 1, 1), (1024, 16, 16, 2)):
        compile_all(nodes, degree, torch.bfloat16, 32, heads, batch)
    again = {name: len(compiled.variants(kernel)) for name, kernel in KERNELS.items()}
    compile_all(100, 8, torch.bfloat16, 16)
    compile_all(100, 8, torch.bfloat16, 128)
    compile_all(100, 8, torch.float32, 128)
    every = [one for kernel in KERNELS.values() for one in compiled.variants(kernel)]
    found = [compiled.resources(one) for one in every]
    products = [one.asm["ptx"].count("mma.sync") for one in every]
    copies = [one.asm["ptx"].count("cp.async.cg") for one in every]
    print(json.dumps({"first": first, "again": again, "resources": found, "products": products, "copies": copies}))


if __name__ == "__main__":
    main()
