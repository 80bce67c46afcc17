"""The contenders: one file each, with `refuses(inputs)` and `prepare(inputs)`, and the table that names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contenders import ours
from benchmarks.contenders.dense import flex, sdpa, sdpa_blocks, sdpa_grouped, sdpa_masked
from benchmarks.contenders.models import gpt, plain, tensor_field
from benchmarks.contenders.sparse import compiled, gather_compiled, numba_sampling, pyg, sparse_csr, spmm_reduce
from benchmarks.inputs import Inputs
from edgewise.kernels import BACKENDS

REUSE = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}  # the allocator keeps what is freed


@dataclass(frozen=True)
class Contender:
    """Why it cannot take part, or its computation: a function of the inputs that returns a function of nothing."""

    about: str
    refuses: Callable[[Inputs], str | None]
    prepare: Callable[[Inputs], Callable[[], Any]]
    environment: Mapping[str, str] = field(default_factory=dict)
    forward_only: bool = False
    compiles: bool = False  # for seconds, before its first step

    def too_slow_to_start(self) -> str | None:
        """Why a quick run does without it."""
        if self.compiles:
            return "it compiles for seconds"
        return "its allocator's settings need a process started afresh" if self.environment else None


PEERS: dict[str, Contender] = {
    "pyg": Contender("PyTorch Geometric", pyg.refuses, pyg.prepare),
    "pyg-reuse": Contender("PyTorch Geometric, memory reused", pyg.refuses, pyg.prepare, REUSE),
    "compiled": Contender("PyTorch Geometric under torch.compile", compiled.refuses, compiled.prepare, compiles=True),
    "compiled-reuse": Contender(
        "PyTorch Geometric under torch.compile, memory reused",
        compiled.refuses,
        compiled.prepare,
        REUSE,
        compiles=True,
    ),
    "gather-compiled": Contender(
        "gather and index_add by hand under torch.compile, memory reused",
        gather_compiled.refuses,
        gather_compiled.prepare,
        REUSE,
        compiles=True,
    ),
    "sdpa": Contender("scaled_dot_product_attention", sdpa.refuses, sdpa.prepare),
    "sdpa-masked": Contender("scaled_dot_product_attention with a mask", sdpa_masked.refuses, sdpa_masked.prepare),
    "sdpa-blocks": Contender(
        "scaled_dot_product_attention on blocks cut by hand", sdpa_blocks.refuses, sdpa_blocks.prepare
    ),
    "sdpa-grouped": Contender(
        "scaled_dot_product_attention on molecules of one size", sdpa_grouped.refuses, sdpa_grouped.prepare
    ),
    "sparse-csr": Contender("PyTorch's CSR product, its transpose kept", sparse_csr.refuses, sparse_csr.prepare),
    "spmm-reduce": Contender("torch.sparse.mm with a reduction", spmm_reduce.refuses, spmm_reduce.prepare),
    "flex": Contender(
        "FlexAttention under torch.compile", flex.refuses, flex.prepare, forward_only=True, compiles=True
    ),
    "numba": Contender("a sampler in numba", numba_sampling.refuses, numba_sampling.prepare, compiles=True),
    "e3nn": Contender("e3nn", tensor_field.refuses, tensor_field.prepare(False)),
    "e3nn-compiled": Contender(
        "e3nn, its product under torch.compile", tensor_field.refuses, tensor_field.prepare(True), compiles=True
    ),
    "plain-gpt": Contender("a GPT in plain PyTorch", gpt.refuses, gpt.prepare),
    "plain": Contender("a loop in plain PyTorch with sparse features", plain.refuses, plain.prepare),
}

OURS: dict[str, Contender] = {
    "edgewise": Contender("Edgewise, the planner's choice", ours.refuses(None), ours.prepare(None))
}
OURS |= {
    name: Contender(f"Edgewise's {name} backend", ours.refuses(name), ours.prepare(name))
    for name, backend in BACKENDS.items()
    if backend.is_chosen_on("cpu")
}

CONTENDERS: dict[str, Contender] = OURS | PEERS
