"""A model as a file that other programs run: ONNX, or PyTorch's own format for exported programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from edgewise.deployment.files import STEPS, beside, readme_of, save_aoti, save_onnx, save_pt2, script_of
from edgewise.deployment.interface import INPUTS, Decoding, Exportable, evaluating, kind_of
from edgewise.deployment.native import check_native, write_library
from edgewise.deployment.precomputed import lines_of
from edgewise.deployment.program import program_of, standard
from edgewise.errors import EdgewiseError, ExportError, a_kind
from edgewise.files import path_of, read_bytes, whole, write_file
from edgewise.graphs import EncoderDecoderGraph, Graph
from edgewise.graphs.checks import shown
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models.edge_index import on_graphs
from edgewise.models.signature import Atoms, MovingParticles, TokenPairs
from edgewise.tasks.core.abilities import Alone, Preprocesses, StandsAlone
from edgewise.tasks.core.task import Pattern, Task
from edgewise.tasks.text.tokenization import TOKENIZER
from edgewise.training.runs import Moved, load_run

BESIDE = (".npz", ".py", ".md")  # the files beside an exported one: an example, a script, a description
FORMATS = {"onnx": save_onnx, "pt2": save_pt2, "aoti": save_aoti}
APART = 1e-4  # of 1 and the largest number: the most that a program may differ from the model on its example,
ROUNDINGS = 8  # or so many times the dtype's precision, where that is more, as in float16


@dataclass(frozen=True)
class Exported:
    """A model as a program of standard operators, which reads and returns tensors by name.

    Symbols     program = what `torch.export` made; to = of `FORMATS`; inputs = their axes, a letter for each number
                that may differ from call to call; example = inputs and outputs of a call; about = what travels with the
                file, its preprocessing too; exportable = the model as it was traced
    """

    program: ExportedProgram
    to: str
    inputs: dict[str, list[str | int]]
    outputs: tuple[str, ...]
    example: tuple[dict[str, Tensor], dict[str, Tensor]]
    about: dict[str, Any]
    exportable: Exportable

    def call(self, graph: Any, *tensors: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The inputs and outputs by name of another call model(graph, *tensors), which the model itself computes."""
        with evaluating(self.exportable):
            given = self.exportable.inputs(graph, *tensors)
            return given, self.exportable.outputs(graph, *tensors)

    def save(self, out: Path | str) -> Path:
        """Write the file, and beside it, named after it, a description (.md), an example (.npz) and a script (.py).

        Errors      ExportError where ONNX lacks an operator of the model, or where onnx or onnxscript is not installed,
                    for inputs or outputs in bfloat16, and for a file named like one of those beside it; OSError where
                    it cannot be written
        """
        out, native = _place(out), "operators" in self.about
        given, returned = self.example
        if any(tensor.dtype == torch.bfloat16 for tensor in (*given.values(), *returned.values())):
            what = "reads or returns bfloat16, which the example beside the file cannot hold, as NumPy has none"
            raise ExportError(f"the model {what}: export model.float(), with an example in float32")
        try:
            if native and self.to == "aoti":
                write_library(out.parent)
            with whole(out) as unfinished:
                FORMATS[self.to](self.program, unfinished, self.outputs, self.about)
        except (EdgewiseError, OSError):
            raise
        except Exception as error:
            raise ExportError(f"{self.to} cannot express the model: {_reason(error)}") from error
        arrays: Any = {name: tensor.detach().numpy() for name, tensor in given.items()}
        arrays |= {f"expected_{name}": tensor.detach().numpy() for name, tensor in returned.items()}
        with whole(beside(out, "npz")) as unfinished, unfinished.open("wb") as file:
            (np.savez if self.to == "aoti" else np.savez_compressed)(file, **arrays)  # for C++ not compressed
        lines = lines_of(self.exportable.precomputed, self.inputs)
        script = script_of(self.to, self.about, isinstance(self.exportable, Decoding), lines)
        write_file(beside(out, "py"), script.encode())
        page = readme_of(out.name, self.to, self.about, self.example, bool(lines))
        write_file(beside(out, "md"), page.encode(errors="replace"))  # a file's name may be no text
        return out


def export(
    model: nn.Module,
    example: Sequence[Any],
    to: str = "onnx",
    out: Path | str | None = None,
    *,
    names: Sequence[str] | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    cache: bool = False,
    native: bool = False,
    radius: float | None = None,
) -> Exported:
    """A model as a file that runs without Edgewise: tensors in, tensors out, for any number of nodes, edges and tokens.

    The graph is an input: `edge_index` [2, E], row 0 the senders, in any order, where the example's graph has edges;
    `sizes` [G] where it is a batch. A rule (complete, causal, window, ...) is part of the program, for any length.

    Symbols     example = (graph, x, ...), what the model is called with; to = "onnx" (onnxruntime and others), "pt2"
                (`torch.export.load`, plain PyTorch) or "aoti" (compiled for this machine, plain PyTorch); out = the
                file; names = of the tensors after the graph, by default x or tokens, edge_attr, graph_attr, and
                positions and velocities for models of particles; preprocessing = what travels with the file, such as
                the names of classes; cache = a language model's decoding step: tokens after a past, of which it reads
                each block's keys and values (onnx, pt2); native = attention on edges and sums of neighbours by
                Edgewise's kernels: a pt2 file is then loaded after `import edgewise.kernels`, and beside an aoti file
                lie two libraries that have them, for processes without Edgewise; radius = the program finds the edges
                itself, of nodes whose positions are so near, and reads no edge_index
    Errors      ExportError for a model, or a part of it, that standard operators cannot express, with the reason;
                where the program gives other numbers for the example than the model; for a file that ends as one of
                those beside it (.npz, .py, .md); with `native` where the kernels were not built, for onnx, for a model
                that has none of their operators, or whose outputs are gradients
    Edge cases  no edges, one node and isolated nodes are all legal, whatever the example has. Attention on a rule or
                among all nodes of a batch's members compares all pairs of nodes, O(N²). Truth values are outputs too;
                an infinity or a NaN is the same number where the model has it
    Cost        seconds; the model is left as it was

    Example
        >>> from edgewise.layers import GCN
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> exported = export(GCN(3, 4), (pair, torch.ones(2, 3)), to="pt2")
        >>> exported.inputs
        {'x': ['N', 3], 'edge_index': [2, 'E']}
        >>> exported.program.module()(x=torch.ones(5, 3), edge_index=torch.zeros(2, 0).long())["y"].shape
        torch.Size([5, 4])
    """
    if not isinstance(model, nn.Module):
        raise ExportError(f"what is exported is a torch.nn.Module, not {type(model).__name__}")
    if not isinstance(to, str) or to not in FORMATS:
        raise ExportError(f"there is no format {to!r}: choose one of {', '.join(FORMATS)}")
    out = None if out is None else _place(out)
    graph, *tensors = example if isinstance(example, tuple | list) and example else (example,)
    if not isinstance(graph, Graph | EncoderDecoderGraph):
        raise ExportError(f"the example begins with {a_kind(graph)}, not with the graph: give (graph, x, ...)")
    if names is not None and (not isinstance(names, tuple | list) or not all(isinstance(one, str) for one in names)):
        raise ExportError(f"names must be a list of texts, such as ['x', 'edge_attr'], not {names!r}")
    if others := [given for given in tensors if not isinstance(given, Tensor | SparseFeatures | None)]:
        raise ExportError(f"after its graph the example has tensors, not {shown(others[0])}")
    _check_preprocessing(preprocessing)
    if cache and to not in STEPS:
        raise ExportError(f"a decoding step with a cache is not written as {to}: choose one of {', '.join(STEPS)}")
    if native and to == "onnx":
        raise ExportError("an onnx file has standard operators alone: native ones are for pt2 and aoti")
    if native:
        check_native()
    model = on_graphs(model, ("graph", *(names or _names(model, len(tensors)))))
    wrapped = Decoding(model, graph) if cache else Exportable(model, graph, names or _names(model, len(tensors)))
    if radius is not None:
        wrapped.within(radius, graph, *tensors)
    given = wrapped.inputs(graph, *tensors)
    if unknown := sorted(set(map(kind_of, given)) - INPUTS.keys()):
        raise ExportError(f"no input is called {', '.join(unknown)}: choose of {', '.join(INPUTS)}")
    if any(tensor.device.type != "cpu" for tensor in (*given.values(), *model.state_dict().values())):
        raise ExportError("a model is exported on the CPU: move it and the example there")
    try:
        with evaluating(wrapped):
            wrapped.precompute(graph, *tensors)
            given = wrapped.inputs(graph, *tensors)
            expected = wrapped.outputs(graph, *tensors)
            with standard(native):
                wrapped.outputs(graph, *tensors)  # what serves all graphs is computed here, not in the program
        program = program_of(wrapped, given, native)
        found = program.module()(**given)
    except EdgewiseError as error:
        raise ExportError(f"{type(model).__name__} cannot be exported: {error}") from error
    except Exception as error:
        raise ExportError(f"{type(model).__name__} cannot be exported: {_reason(error)}") from error
    _check(type(model).__name__, expected, found)
    inputs = {name: wrapped.shape(name, tensor) for name, tensor in given.items()}
    about = {
        "made by": f"edgewise {import_module('edgewise').__version__}",
        "model": type(model.model if isinstance(model, InUnits) else model).__name__,
        "inputs": inputs,
    }
    about |= {"outputs": list(expected), "preprocessing": dict(preprocessing or {}), **wrapped.about}
    about |= {"operators": "native"} if native else {}
    exported = Exported(program, to, inputs, tuple(expected), (given, expected), about, wrapped)
    if out is not None:
        exported.save(out)
    return exported


def _check_preprocessing(preprocessing: Any) -> None:
    if not isinstance(preprocessing, Mapping | None):
        raise ExportError(f"preprocessing must be a dictionary, not {shown(preprocessing)}")
    try:
        json.dumps(preprocessing and dict(preprocessing))
    except (TypeError, ValueError) as error:
        raise ExportError(f"preprocessing is what JSON can hold, such as numbers, texts and lists: {error}") from error


def _place(out: Path | str) -> Path:
    out = path_of(out, "out", ExportError)
    if out.is_dir():
        raise ExportError(f"out is the file to write, and {out} is a folder")
    if out.suffix in BESIDE:
        raise ExportError(f"{out.name} ends as a file written beside the model does: give it another ending, as .onnx")
    return out


def _names(model: nn.Module, count: int) -> tuple[str, ...]:
    signature = getattr(model, "signature", None)
    if isinstance(signature, MovingParticles | Atoms):
        return ("features", "edge_attr", "graph_attr")[:count]
    if isinstance(signature, TokenPairs):
        return ("pairs",)
    first = "tokens" if getattr(signature, "kind", "") == "tokens" else "x"
    return (first, "edge_attr", "graph_attr")[:count]


def _check(model: str, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    for name, model_gives in expected.items():
        wide = torch.promote_types(model_gives.dtype, torch.float64)  # truth values and whole numbers too
        right, given = model_gives.to(wide), found[name].to(wide)
        finite = right[right.isfinite()].abs()
        rounding = ROUNDINGS * torch.finfo(model_gives.dtype).eps if model_gives.is_floating_point() else 0.0
        most = max(APART, rounding) * (1 + float(finite.max() if finite.numel() else 0))
        if not (near := torch.isclose(given, right, rtol=0, atol=most, equal_nan=True)).all():
            apart = float((given - right)[~near].abs().max())
            raise ExportError(f"{model}: {name} of the exported program differs from the model's by {apart:.2g}")


def _reason(error: Exception) -> str:
    if "data-dependent" in str(error):
        return "what it computes next depends on the numbers in a tensor, and a program has no such branch"
    if fixed := re.search(r"Constraints violated \(L\['(\w+)'\]\.size\(\)\[(\d+)\]", str(error)):
        where = f"axis {fixed[2]} of {fixed[1]!r}"
        return f"a program of it has one size of {where} alone, as where a loop over it is written out"
    if "unhashable type: non-nested SymInt" in str(error):
        return "how often it does something depends on a size that a program leaves free"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


MAX_BYTES = 1 << 28  # of a file that a task keeps beside its weights


def export_run(
    run: Path | str,
    to: str = "onnx",
    out: Path | str | None = None,
    accept: bool = False,
    cache: bool = False,
    native: bool = False,
    radius: float | None = None,
    folder: Moved | None = None,
    **given: Any,
) -> Exported:
    """`export` of a run's best weights, as its task says (images are read as pixels); beside it the task's own files.

    Symbols     out = the file (None: `place_of` the run); accept, folder, given (the task, model and graph of a run of
                `fit`) as in `load`; cache, native, radius as in `export`
    Errors      those of `load` and of `export`
    """
    loaded = load_run(run, device="cpu", accept=accept, folder=folder, **given)
    task = loaded.task
    out = place_of(run, to) if out is None else Path(out)
    alone = alone_of(task, loaded.model, loaded.pattern)
    about = task.preprocessing() if isinstance(task, Preprocesses) else {}
    alone, about = in_own_units(alone, about)
    what = alone.model, alone.call, to, out
    exported = export(*what, names=alone.names, preprocessing=about, cache=cache, native=native, radius=radius)
    if "tokenizer" in about:
        write_file(beside(out, TOKENIZER), json.dumps(about["tokenizer"], ensure_ascii=False).encode())
    for name in task.kept:
        if name not in (TOKENIZER, *task.private) and (Path(run) / name).is_file():
            write_file(beside(out, name), read_bytes(Path(run) / name, MAX_BYTES))
    return exported


def alone_of(task: Task, model: nn.Module, pattern: Pattern) -> Alone:
    """A model without its task, with an example of its call: two graphs where it has an output for each, else one."""
    if isinstance(task, StandsAlone):
        return task.alone(model, pattern)
    graph, x, *others = next(iter(task.batches("valid", 2 if task.signature.whole_graph else 1, pattern))).inputs
    one = isinstance(x, Tensor) and task.signature.kind == TokenPairs.kind
    return Alone(model, (graph, x[None] if one else x, *others))


class InUnits(nn.Module):
    """A model whose outputs are quantities in their own units: m + d y, one m and one d for each output."""

    def __init__(self, model: nn.Module, scales: Sequence[tuple[float, float]]) -> None:
        super().__init__()
        self.model, self.signature = model, getattr(model, "signature", None)
        self.scales: Tensor
        kind = next(model.parameters(), torch.empty(0)).dtype
        self.register_buffer("scales", torch.tensor(scales, dtype=kind).T.contiguous())

    def forward(self, *inputs: Any) -> Tensor:
        mean, deviation = self.scales
        return mean + deviation * self.model(*inputs)


def in_own_units(alone: Alone, about: dict[str, Any]) -> tuple[Alone, dict[str, Any]]:
    """A model that undoes the scales of its targets, and what belongs to it then."""
    scales = list[tuple[float, float]]()
    for target in about.get("targets", ()):
        scales += [(target.get("mean", 0.0), target.get("deviation", 1.0))] * max(1, len(target.get("classes", ())))
    if all(scale == (0.0, 1.0) for scale in scales):
        return alone, about
    bare = [{key: value for key, value in one.items() if key not in ("mean", "deviation")} for one in about["targets"]]
    return alone._replace(model=InUnits(alone.model, scales).eval()), about | {"targets": bare}


def place_of(run: Path | str, to: str) -> Path:
    """Where a run's file lies unless another place is given.

    >>> place_of("runs/cora", "aoti").name
    'model.aoti.pt2'
    """
    return Path(run) / ("model.aoti.pt2" if to == "aoti" else f"model.{to}")
