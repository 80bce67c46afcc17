"""From a model to an exported program: standard operators whose numbers of nodes, edges, graphs and tokens vary."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from inspect import Parameter, Signature
from io import StringIO
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx

from edgewise.deployment import native
from edgewise.deployment.graph import BY_CONTENT, edges_within
from edgewise.deployment.interface import TRACED, Exportable, evaluating
from edgewise.errors import ExportError
from edgewise.graphs.make.content import chosen_by
from edgewise.kernels import use_backend
from edgewise.kernels.backends.torch import portable

T = TypeVar("T")


def program_of(model: Exportable, given: dict[str, Tensor], by_kernels: bool = False) -> ExportedProgram:
    """The program of a model that reads these inputs, of any sizes.

    Symbols     by_kernels = attention on edges and sums of neighbours are native operators
    Errors      ExportError for a model that does something else than these operators do, and, by kernels, for one that
                takes gradients or has none of their operators
    """
    inputs, dynamic = model.traced(given)
    differentiates = any(getattr(part, "differentiates", False) for part in model.modules())
    if by_kernels and differentiates:
        raise ExportError("its outputs are gradients, which native operators do not have: leave --native out")
    with evaluating(model), standard(by_kernels), quietly():
        listed = inputs if model.radius is None else {**inputs, "edge_index": torch.zeros(2, TRACED["E"]).long()}
        traced = _gradients_spelt_out(model, listed) if differentiates else None
        module = _Program(model if traced is None else traced, tuple(listed), model.radius, tuple(inputs))
        program = torch.export.export(module, (), inputs, dynamic_shapes=dynamic, strict=False)
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            for name in ("stack_trace", "source_fn_stack", "nn_module_stack", "torch_fn"):
                node.meta.pop(name, None)  # where the sources lie on this machine concerns nobody who runs the file
    used = {str(node.target).split(".")[0] for node in program.graph.nodes if node.op == "call_function"}
    if by_kernels and "edgewise" not in used:
        raise ExportError("nothing of it is attention on edges or a sum of neighbours: leave --native out")
    return program


@contextmanager
def quietly() -> Iterator[None]:
    """Without what PyTorch's exporters say of other models, or print of a program that they cannot write."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextmanager
def standard(by_kernels: bool = False) -> Iterator[None]:
    """The verbs by standard operators, or where there are any by native ones, and graphs that content chooses, too."""
    with use_backend(native.BACKEND if by_kernels else portable.BACKEND), chosen_by(_Standard()):
        yield


class _Standard:
    """Graphs that content chooses, by standard operators."""

    def choose(self, make: Callable[..., T], *arguments: Any, **named: Any) -> T:
        name = f"{make.__module__}.{make.__qualname__}"
        if name not in BY_CONTENT:
            raise ExportError(
                f"{make.__qualname__} chooses a graph by content, for which there are no standard operators"
            )
        return BY_CONTENT[name](*arguments, **named)


def _gradients_spelt_out(model: Exportable, inputs: dict[str, Tensor]) -> torch.fx.GraphModule:
    """The operators of a model that takes gradients of its own, forward and backward."""
    from torch._decomp import decomposition_table

    backward: Any = {operator: spelt for operator, spelt in decomposition_table.items() if "backward" in str(operator)}

    def run(*tensors: Tensor) -> dict[str, Tensor]:
        return model(**dict(zip(inputs, tensors, strict=True)))

    trace = make_fx(run, backward, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    return trace(*inputs.values())


class _Program(nn.Module):
    """What is exported: its `forward` has a parameter for each input, which is how `torch.export` knows them.

    Symbols     module = the model, or the operators that were traced of it, which take the tensors `listed` in a row;
                radius = within which edges are found first, or None; names = of the inputs
    """

    def __init__(
        self, module: nn.Module, listed: tuple[str, ...], radius: float | None, names: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.module = module

        def forward(**given: Tensor) -> dict[str, Tensor]:
            if radius is not None:
                edges = edges_within(given["positions"], given.get("sizes"), radius, given.get("cell"))
                given["edge_index"] = edges
            if isinstance(module, torch.fx.GraphModule):
                return module(*(given[name] for name in listed))
            return module(**given)

        forward.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in names])  # type: ignore[attr-defined]
        self.forward = forward
