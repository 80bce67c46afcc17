"""Compiles the sparse products for sm_90 and prints what came out, as JSON. Run without TRITON_INTERPRET."""

import json

import torch

from benchmarks.gpu import absent
from edgewise.kernels.backends.cuda.programs import products
from edgewise.kernels.backends.cuda.programs.building import schedule


def structure(rows: int, degree: int) -> list[torch.Tensor]:
    offsets = torch.arange(0, (rows + 1) * degree, degree)
    offsets[1:-1] += torch.arange(1, rows) % 2 * (degree // 2)  # of two lengths, so that rows are listed
    numbers = torch.zeros(rows * degree, dtype=torch.int32)
    return [offsets, numbers, numbers[:0], *schedule(offsets)]


def compile_all(nodes: int, degree: int, dtype: torch.dtype, heads: int, channels: int, batch: int) -> None:
    graph = structure(nodes, degree)
    x = torch.zeros(batch, nodes, heads, channels, dtype=dtype)
    weight = torch.zeros(batch, nodes * degree, heads, dtype=dtype)
    products.reduce("sum", x, None, graph)
    products.reduce("sum", x, weight, graph, mean=True)
    products.reduce("max", x, weight, graph)
    products.reduce("picked", x, weight, graph, own=x, share=x)
    products.multiply(x, x, graph, heads)


def main() -> None:
    launches = absent.pretend()
    compile_all(100, 8, torch.bfloat16, 4, 32, 1)
    first = len(absent.variants(launches))
    for nodes, degree, batch in ((2, 8, 1), (16, 16, 2), (33, 7, 3), (4096, 4, 1)):
        compile_all(nodes, degree, torch.bfloat16, 4, 32, batch)
    again = len(absent.variants(launches))
    products.reduce("sum", torch.zeros(1, 100, 1, 128), None, structure(100, 8))
    kernels = {one.name for one in launches}
    found = {name: [one.resources() for one in absent.variants(launches, name)] for name in kernels}
    wide = [one.ptx.count("ld.global.v4") for one in absent.variants(launches, "_reduce")]
    print(json.dumps({"first": first, "again": again, "resources": found, "wide": wide}))


if __name__ == "__main__":
    main()
