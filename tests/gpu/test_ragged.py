"""The kernels for blocks as the compiler leaves them for an H100: on tensor cores, in registers, in few variants."""

import json
import os
import subprocess
import sys
from unittest import mock

import torch

from edgewise import Dot, EdgeBias, attend, blocks
from edgewise.gpu import ragged

COMPILE = """
import json, pathlib, re, subprocess, sys, tempfile
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from edgewise.gpu import ragged

def build(kernel, dtype, most, channels, **others):
    gradient = kernel is ragged.gradient_kernel
    constants = {"LEAST": 4, "MOST": most, "C": channels, "D": channels, "BIAS": 1, "DROPOUT": False, "UNIT": 8}
    constants["PRECISION"] = "tf32x3" if dtype == "fp32" else None
    constants |= ({"TO_BIAS": True} if gradient else {}) | others
    if kernel is ragged.survivors_kernel:
        constants = {"SIZE": 1024}
    kinds = {"blocks": "*i64", "seed": "*i64", "scale": "fp32"}
    kinds |= {"dropout": "fp32"} | dict.fromkeys(ragged.INTEGERS, "i32") | dict.fromkeys(constants, "constexpr")
    kinds |= {"total": "i32", "mask": "*i1"}
    signature = {name: kinds.get(name, "*" + dtype) for name in kernel.arg_names}
    aligned = {(n,): [["tt.divisibility", 16]] for n, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": ragged.WARPS[most], "num_stages": 1}
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        pathlib.Path(file.name).write_bytes(built.asm["cubin"])
        tool = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        usage = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True).stdout
    ptx = built.asm["ptx"]
    return {
        "stack": int(re.search(r"STACK:(\\d+)", usage)[1]), "shared": built.metadata.shared,
        "tensor cores": len(re.findall(r"mma\\.sync|wgmma\\.mma_async", ptx)), "wide loads": ptx.count("ld.global.v4"),
    }

both = ragged.attend_kernel, ragged.gradient_kernel
cases = [(kernel, "bf16", most, channels) for kernel in both for most, channels in ((5, 16), (6, 32))]
cases.append((ragged.attend_kernel, "fp32", 5, 16))
odd = {"BIAS": 2, "DROPOUT": True, "UNIT": 1}
rare = [build(kernel, "fp16", 4, 16, **odd) for kernel in both] + [build(ragged.survivors_kernel, "fp32", 4, 16)]
stable = [[p.name for p in kernel.params if not p.is_constexpr and not p.do_not_specialize] for kernel in both]
print(json.dumps({
    "stable": stable, "rare": rare,
    "built": {f"{case[0].fn.__name__} {case[1:]}": build(*case) for case in cases},
}))
"""


def test_compiled_for_an_h100_they_use_its_tensor_cores_and_do_not_spill(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    for what, built in found["built"].items():
        assert built["stack"] <= 16, (what, built)  # bytes: a spilled register or two, at the assembler's own choice
        assert built["tensor cores"] > 0 and built["wide loads"] > 0, (what, built)
        assert built["shared"] <= 48 * 1024, (what, built)
    assert [built["tensor cores"] > 0 for built in found["rare"]] == [True, True, False]
    pointers = {"q", "k", "v", "bias", "blocks", "seed", "y", "dy", "dq", "dk", "dv", "dbias", "scale", "dropout"}
    assert all(set(names) <= pointers for names in found["stable"]), "an integer would be compiled into the kernel"


class Spy:
    """In the place of a kernel: it remembers the variant that a launch would be compiled for."""

    def __init__(self):
        self.variants = set()

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            kinds = tuple(x.dtype if isinstance(x, torch.Tensor) else type(x) for x in arguments)
            self.variants.add((kinds, tuple(constants.items())))

        return launch


def test_a_thousand_batches_share_a_few_variants():
    forward, backward = Spy(), Spy()
    with mock.patch.object(ragged, "attend_kernel", forward), mock.patch.object(ragged, "gradient_kernel", backward):
        for _ in range(500):
            sizes = torch.randint(1, int(torch.randint(2, 100, ())), (int(torch.randint(1, 40, ())),)).tolist()
            graph, nodes = blocks(sizes), sum(sizes)
            q = torch.randn(nodes, 4, 16, requires_grad=True)
            bias = torch.randn(graph.num_edges, 4, requires_grad=True)
            for score in (Dot(), Dot() + EdgeBias(bias)):
                attend(graph, q, q, q, score, backend="ragged").sum().backward()
    assert 3 <= len(forward.variants) <= 8
    assert 3 <= len(backward.variants) <= 8


def test_heads_share_a_program_only_where_there_are_programs_enough():
    q, bias = torch.empty(1, 8, 8, 16), torch.empty(1, 8, 8)
    call = ragged._Call(q, q, q, bias, False, 0.0)
    assert [launch[-2:] for launch in call.launches(100, 5, 0)] == [(1, (100, 8))]
    assert [launch[-2:] for launch in call.launches(512, 5, 0)] == [(4, (512, 2))]
    assert [launch[-2:] for launch in call.launches(9000, 5, 7)] == [(8, (9000, 1)), (1, (7, 8))]
    assert list(call.launches(0, 4, 0)) == []
