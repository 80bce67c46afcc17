"""The contenders: why each cannot take part, and its computation; and the table that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
)
from benchmarks.inputs import Inputs
from edgewise.kernels import BACKENDS


@dataclass(frozen=True)
class Contender:
    """Why it cannot take part, or its computation: a function of the inputs that returns a function of nothing."""

    about: str
    refuses: Callable[[Inputs], str | None]
    prepare: Callable[[Inputs], Callable[[], Any]]
    forward_only: bool = False
    compiles: bool = False  # for seconds, before its first step


PEERS: dict[str, Contender] = {
    "pyg": Contender("PyTorch Geometric", pyg.refuses, pyg.prepare),
    "compiled": Contender("PyTorch Geometric under torch.compile", pyg.refuses, pyg.compiled, compiles=True),
    "gather-compiled": Contender(
        "gather and index_add under torch.compile", gather_compiled.refuses, gather_compiled.prepare, compiles=True
    ),
    "sdpa": Contender("scaled_dot_product_attention", dense.plain_refuses, dense.plain),
    "sdpa-masked": Contender("scaled_dot_product_attention with a mask", dense.masked_refuses, dense.masked),
    "sdpa-blocks": Contender("scaled_dot_product_attention on blocks", dense.blocks_refuses, dense.blocks),
    "sdpa-grouped": Contender("scaled_dot_product_attention size by size", dense.grouped_refuses, dense.grouped),
    "sparse-csr": Contender("PyTorch's CSR product, its transpose kept", sparse_csr.refuses, sparse_csr.prepare),
    "flex": Contender("FlexAttention under torch.compile", dense.flex_refuses, dense.flex, True, True),
    "numba": Contender("a sampler in numba", numba_sampling.refuses, numba_sampling.prepare, compiles=True),
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
