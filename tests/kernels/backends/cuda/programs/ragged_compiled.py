"""Compiles attention in blocks for sm_90 and prints what came out, as JSON. Run without TRITON_INTERPRET."""

import json
import re

import torch

from benchmarks.gpu import absent
from edgewise import Dot, EdgeBias, SenderBias, attend, blocks


def train(nodes: int, channels: int, dtype: torch.dtype, by_sender: bool = False, dropout: float = 0.0) -> None:
    graph = blocks([nodes, nodes])
    x = torch.zeros(2 * nodes, 2, channels, dtype=dtype, requires_grad=True)
    bias = torch.zeros(2 * nodes if by_sender else graph.num_edges, 2, requires_grad=True)
    score = Dot() + (SenderBias(bias) if by_sender else EdgeBias(bias))
    attend(graph, x, x, x, score, dropout=dropout, backend="ragged").sum().backward()


def main() -> None:
    launches, found = absent.pretend(), {}
    for what, sizes in {
        "bfloat16, 64 × 32": (64, 32, torch.bfloat16),
        "float32, 32 × 16": (32, 16, torch.float32),
        "dropout, rows of odd length": (16, 17, torch.float16, True, 0.3),
    }.items():
        train(*sizes)
        for one in absent.variants(launches):
            tensor_cores = len(re.findall(r"mma\.sync|wgmma\.mma_async", one.ptx))
            counts = {"tensor cores": tensor_cores, "wide loads": one.ptx.count("ld.global.v4")}
            counts["program"] = one.compiled.metadata.shared
            found[f"{'gradient' if one.arguments['GRADIENT'] else 'attend'}, {what}"] = one.resources() | counts
        launches.clear()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
