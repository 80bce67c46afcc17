"""Compiles the fused attention for sm_90 and prints what each kernel takes, as JSON. Run without TRITON_INTERPRET."""

import json

import torch

from benchmarks.gpu import absent
from edgewise import Graph, attend

GATHERED = {"attend": 2, "by_sender": 2, "by_receiver": 1}  # rows for each edge


def main() -> None:
    launches = absent.pretend()
    graph = Graph.from_edge_index(torch.randint(50, (2, 600)), num_nodes=50)
    for heads, channels in ((8, 16), (4, 32)):
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.zeros(50, heads, channels, dtype=dtype, requires_grad=True)
            attend(graph, x, x, x, backend="triton").sum().backward()
    found = [
        {
            "kernel": one.name,
            "sizes": f"{one.arguments['H']} × {one.arguments['C']}, {one.arguments['k'].dtype}",
            "wide loads": one.ptx.count("ld.global.v4.b32"),
            "gathers": GATHERED[one.name] * one.arguments["EDGES"],
        }
        | one.resources()
        for one in launches
        if one.name in GATHERED
    ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
