"""Compiles attention by windows for sm_90 and prints what came out, as JSON. Run without TRITON_INTERPRET."""

import json

import torch

from benchmarks.gpu import absent
from edgewise.kernels.backends.cuda.programs import bitmap
from edgewise.kernels.backends.cuda.programs.building import windows


def compile_all(nodes: int, degree: int, dtype: torch.dtype, channels: int, heads: int = 2, batch: int = 1) -> None:
    offsets = torch.arange(0, nodes * degree + 1, degree)
    graph = windows(offsets, torch.arange(nodes * degree) % 16 * (torch.arange(nodes * degree) // degree > 16), nodes)
    assert len(graph) > 3, "windows of two lengths, so that they are listed"
    x = torch.zeros(batch, nodes, heads, channels, dtype=dtype)
    y, lse = bitmap.forward(x, x, x, graph, 0.5)
    bitmap.backward(y, x, x, x, y, lse, graph, graph, 0.5)


def main() -> None:
    launches = absent.pretend()
    compile_all(100, 8, torch.bfloat16, 32)
    first = len(absent.variants(launches))
    for nodes, degree, heads, batch in ((33, 3, 1, 1), (1024, 16, 16, 2)):
        compile_all(nodes, degree, torch.bfloat16, 32, heads, batch)
    again = len(absent.variants(launches))
    compile_all(100, 8, torch.bfloat16, 128)
    compile_all(100, 8, torch.float32, 128)
    every = absent.variants(launches)
    products = [one.ptx.count("mma.sync") for one in every]
    copies = [one.ptx.count("cp.async.cg") for one in every]
    found = {"resources": [one.resources() for one in every], "products": products, "copies": copies}
    print(json.dumps(found | {"first": first, "again": again}))


if __name__ == "__main__":
    main()
