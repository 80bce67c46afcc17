"""What the compiler makes of the kernels for an H100: tensor cores, registers, wide loads, and few variants."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from triton.runtime.jit import JITFunction

from edgewise import Dot, EdgeBias, attend, blocks
from edgewise.kernels.backends.cuda.programs import ragged


@pytest.mark.compiled
def test_kernels_do_not_spill_and_use_tensor_cores(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(Path(__file__).with_name("compile_kernels.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len({name.split(",")[0] for name in found}) == 9, found.keys()
    for name, built in found.items():
        tiled = name.startswith(("attend_kernel", "_forward", "_backward"))
        if name != "attend_kernel, torch.float32":  # whose gradient was not made for whole registers
            assert built["STACK"] == built["LOCAL"] == 0, f"{name} spills"
        assert built["products"] > 0 if tiled else built["REG"] <= 168 and built["wide"] > 0, name


class Spy:
    """In the place of a kernel: it remembers the variant that a launch would be compiled for."""

    def __init__(self):
        self.variants = set()

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            kinds = tuple(x.dtype if isinstance(x, torch.Tensor) else type(x) for x in arguments)
            self.variants.add((kinds, tuple(constants.items())))

        return launch


def test_many_batches_of_blocks_share_a_few_variants():
    pointers = {"q", "k", "v", "bias", "blocks", "seed", "y", "dq", "dk", "dv", "dbias", "scale", "keep"}
    arguments = JITFunction(ragged.attend_kernel.fn, do_not_specialize=ragged.INTEGERS).params
    assert {p.name for p in arguments if not p.is_constexpr and not p.do_not_specialize} <= pointers
    kernel = Spy()
    with mock.patch.object(ragged, "attend_kernel", kernel):
        for _ in range(60):
            sizes = torch.randint(1, int(torch.randint(2, 100, ())), (int(torch.randint(1, 40, ())),)).tolist()
            graph, nodes = blocks(sizes), sum(sizes)
            q = torch.randn(nodes, 4, 16, requires_grad=True)
            bias = torch.randn(graph.num_edges, 4, requires_grad=True)
            for score in (Dot(), Dot() + EdgeBias(bias)):
                attend(graph, q, q, q, score, backend="ragged").sum().backward()
    backward = {variant for variant in kernel.variants if ("GRADIENT", True) in variant[1]}
    assert 3 <= len(kernel.variants - backward) <= 8 and 3 <= len(backward) <= 8
