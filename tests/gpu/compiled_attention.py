"""Compile the fused attention for sm_90 and print what each kernel takes, as JSON; the argument is a folder."""

import json
import re
import subprocess
import sys
from pathlib import Path

import torch
import triton

from edgewise import Graph, attend

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
GATHERED = {"attend": 2, "by_sender": 2, "by_receiver": 1}  # rows for each edge


def resources(binary, folder):
    """Registers, stack, shared and local memory."""
    path = folder / "kernel.cubin"
    path.write_bytes(binary)
    command = [TOOLS / "cuobjdump", "--dump-resource-usage", path]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(n) for name, n in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", said)}


def main(folder):
    from without_launching import pretend

    compiled, found = pretend(), []
    graph = Graph.from_edge_index(torch.randint(50, (2, 600)), num_nodes=50)
    for heads, channels in ((8, 16), (4, 32)):
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.zeros(50, heads, channels, dtype=dtype, requires_grad=True)
            attend(graph, x, x, x, backend="triton").sum().backward()
    for name, arguments, kernel in compiled:
        if name in GATHERED:
            used = resources(kernel.asm["cubin"], folder)
            found.append(
                {
                    "kernel": name,
                    "sizes": f"{arguments['H']} × {arguments['C']}, {arguments['k'].dtype}",
                    "registers": used["REG"],
                    "stack": used["STACK"],
                    "local": used["LOCAL"],
                    "wide loads": kernel.asm["ptx"].count("ld.global.v4.b32"),
                    "gathers": GATHERED[name] * arguments["EDGES"],
                }
            )
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
