"""Kernels whose launches are prepared once for each signature: what Triton works out in every launch is remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
from torch import Tensor
from triton.runtime import driver

from edgewise.kernels.backends.cuda.programs import INTERPRETED

SMALL = range(-(2**31), 2**31)  # whole numbers that Triton passes in 32 bits


class Prepared:
    """A kernel of Triton's, launched as one is: the second launch of a signature finds what the first one compiled.

    Symbols     signature = what Triton compiles for: the card; of tensors the dtype, and whether 16 divides the
                address; the values of constants and options, and of whole numbers that are specialised; of others
                whether 32 bits hold them
    Cost        5 µs a launch beside the driver's own, where Triton takes 30 to 60
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.compiled: dict[tuple[Any, ...], Any] = {}
        self.kinds = [] if INTERPRETED else [(x.is_constexpr, x.do_not_specialize) for x in kernel.params]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        if INTERPRETED:
            return self.kernel[grid]
        programs = (*grid, 1, 1)[:3]

        def launch(*values: Any, **options: Any) -> None:
            names = self.kernel.arg_names
            if len(values) < len(names):
                values += tuple([options.pop(name) for name in names[len(values) :]])
            signature = self._signature(values, options)
            compiled = self.compiled.get(signature)
            if compiled is None:
                self.compiled[signature] = self.kernel[programs](*values, **options)
            else:
                compiled[programs](*values)

        return launch

    def _signature(self, values: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        found: list[Any] = [driver.active.get_current_device(), *options.values()]
        for x, (constant, by_type) in zip(values, self.kinds, strict=True):
            if constant or x is None:
                found.append(x)
            elif isinstance(x, Tensor):
                found.append((x.dtype, x.data_ptr() % 16 == 0))
            elif isinstance(x, float):
                found.append(float)
            else:
                found.append(x in SMALL if by_type else x)
        return tuple(found)


def prepared(**options: Any) -> Callable[[Callable[..., Any]], Prepared]:
    """`triton.jit` with these options, and launches that are prepared."""
    return lambda function: Prepared(triton.jit(**options)(function))
