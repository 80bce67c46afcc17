"""The kernels for blocks as the compiler leaves them for an H100: on tensor cores, in registers, in few variants."""

from unittest import mock

import torch
from triton.runtime.jit import JITFunction

from edgewise import Dot, EdgeBias, attend, blocks
from edgewise.kernels.backends.cuda.programs import ragged
from kernels.backends.cuda.programs.apart import run


def test_compiled_for_an_h100_they_use_its_tensor_cores_and_do_not_spill(tmp_path):
    for what, built in run("ragged_compiled.py", tmp_path).items():
        assert built["tensor cores"] > 0, (what, built)
        if "dropout" in what or ("gradient" in what and "float32" in what):
            continue  # not what they were made for
        assert built["STACK"] <= 16, (what, built)  # bytes: a spilled register or two, at the assembler's own choice
        assert built["wide loads"] > 0 and built["program"] <= 48 * 1024, (what, built)


def test_no_integer_is_compiled_into_a_kernel():
    pointers = {"q", "k", "v", "bias", "blocks", "seed", "y", "dq", "dk", "dv", "dbias", "scale", "keep"}
    arguments = JITFunction(ragged.attend_kernel.fn, do_not_specialize=ragged.INTEGERS).params
    assert {p.name for p in arguments if not p.is_constexpr and not p.do_not_specialize} <= pointers


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
    kernel = Spy()
    with mock.patch.object(ragged, "attend_kernel", kernel):
        for _ in range(500):
            sizes = torch.randint(1, int(torch.randint(2, 100, ())), (int(torch.randint(1, 40, ())),)).tolist()
            graph, nodes = blocks(sizes), sum(sizes)
            q = torch.randn(nodes, 4, 16, requires_grad=True)
            bias = torch.randn(graph.num_edges, 4, requires_grad=True)
            for score in (Dot(), Dot() + EdgeBias(bias)):
                attend(graph, q, q, q, score, backend="ragged").sum().backward()
    backward = {variant for variant in kernel.variants if ("GRADIENT", True) in variant[1]}
    assert 3 <= len(kernel.variants - backward) <= 8
    assert 3 <= len(backward) <= 8


def test_heads_share_a_program_only_where_there_are_programs_enough():
    q, bias = torch.empty(1, 8, 8, 16), torch.empty(1, 8, 8)
    call = ragged._Call((q, q, q, q), bias, False, 0.0)
    assert [launch[-2:] for launch in call.launches(100, 5, 0)] == [(1, (100, 8))]
    assert [launch[-2:] for launch in call.launches(512, 5, 0)] == [(4, (512, 2))]
    assert [launch[-2:] for launch in call.launches(9000, 5, 7)] == [(8, (9000, 1)), (1, (7, 8))]
    assert list(call.launches(0, 4, 0)) == []
