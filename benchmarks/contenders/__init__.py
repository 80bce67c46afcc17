"""The contenders: why each cannot take part, and its computation; and the table that names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contenders import (
    dense,
    gather_compiled,
    gpt,
    numba_sampling,
    ours,
    plain,
    pyg,
    sparse_csr,
    tensor_field,
)
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


def compiled(about: str, module: Any, environment: Mapping[str, str] | None = None, **options: Any) -> Contender:
    """A contender that compiles."""
    prepare = options.pop("prepare", None) or module.prepare
    return Contender(about, module.refuses, prepare, environment or {}, compiles=True, **options)


PEERS: dict[str, Contender] = {
    "pyg": Contender("PyTorch Geometric", pyg.refuses, pyg.prepare),
    "pyg-reuse": Contender("PyTorch Geometric, memory reused", pyg.refuses, pyg.prepare, REUSE),
    "compiled": compiled("PyTorch Geometric under torch.compile", pyg, prepare=pyg.compiled),
    "compiled-reuse": compiled(
        "PyTorch Geometric under torch.compile, memory reused", pyg, REUSE, prepare=pyg.compiled
    ),
    "gather-compiled": compiled("gather and index_add under torch.compile, memory reused", gather_compiled, REUSE),
    "sdpa": Contender("scaled_dot_product_attention", dense.plain_refuses, dense.plain),
    "sdpa-masked": Contender("scaled_dot_product_attention with a mask", dense.masked_refuses, dense.masked),
    "sdpa-blocks": Contender("scaled_dot_product_attention on blocks", dense.blocks_refuses, dense.blocks),
    "sdpa-grouped": Contender("scaled_dot_product_attention size by size", dense.grouped_refuses, dense.grouped),
    "sparse-csr": Contender("PyTorch's CSR product, its transpose kept", sparse_csr.refuses, sparse_csr.prepare),
    "flex": Contender("FlexAttention under torch.compile", dense.flex_refuses, dense.flex, {}, True, True),
    "numba": compiled("a sampler in numba", numba_sampling),
    "e3nn": Contender("e3nn", tensor_field.refuses, tensor_field.prepare(False)),
    "e3nn-compiled": compiled("e3nn under torch.compile", tensor_field, prepare=tensor_field.prepare(True)),
    "plain-gpt": Contender("a GPT in plain PyTorch", gpt.refuses, gpt.prepare),
    "plain": Contender("a loop in plain PyTorch with sparse features", plain.refuses, plain.prepare),
}


def ours_on(device: str) -> dict[str, Contender]:
    """The planner's choice, and each backend that it may choose on a kind of device."""
    found = {"edgewise": Contender("Edgewise, the planner's choice", ours.refuses(None), ours.prepare(None))}
    return found | {
        name: Contender(f"Edgewise's {name} backend", ours.refuses(name), ours.prepare(name))
        for name, backend in BACKENDS.items()
        if backend.is_chosen_on(device)
    }


OURS = ours_on("cpu")
CONTENDERS: dict[str, Contender] = OURS | PEERS
