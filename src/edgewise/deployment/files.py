"""The files of an exported model: itself, how to call it, and a script that does."""

from __future__ import annotations

import inspect
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.export import ExportedProgram

from edgewise.data import words
from edgewise.deployment import answering
from edgewise.deployment.interface import INPUTS, LETTERS, kind_of
from edgewise.deployment.program import quietly
from edgewise.errors import ExportError, installing
from edgewise.graphs.make import periodic
from edgewise.tasks.graphs import atoms
from edgewise.tasks.images import pixels
from edgewise.tasks.particles import films

OPSET = 23  # the first with the operator Attention
KEY = "edgewise"  # of the metadata
Example = tuple[Mapping[str, Tensor], Mapping[str, Tensor]]  # inputs and outputs of a call

# The beginning of a script by format: `call` computes arrays by name of arrays by name.
CALLS = {
    "onnx": """import json, sys
import numpy, onnxruntime

file = __file__.removesuffix(".py")
session = onnxruntime.InferenceSession(file)
about = json.loads(session.get_modelmeta().custom_metadata_map["edgewise"])


def call(given):
    reads = {one.name: given[one.name] for one in session.get_inputs()}
    return dict(zip(about["outputs"], session.run(None, reads)))
""",
    "pt2": """import json, sys
import numpy, torch
OPERATORS
file, files = __file__.removesuffix(".py"), {"edgewise.json": ""}
program = torch.export.load(file, extra_files=files).module()
about = json.loads(files["edgewise.json"])


@torch.no_grad()
def call(given):
    outputs = program(**{name: torch.from_numpy(given[name]) for name in about["inputs"]})
    return {name: tensor.numpy() for name, tensor in outputs.items()}
""",
    "aoti": """import json, os, sys
import numpy, torch._inductor
OPERATORS
os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"  # or it reads arrays of another type or order as if they were right
file = __file__.removesuffix(".py")
program = torch._inductor.aoti_load_package(file)
about = json.loads(program.get_metadata()["edgewise"])


def call(given):
    outputs = program(**{name: torch.from_numpy(numpy.ascontiguousarray(given[name])) for name in about["inputs"]})
    return {name: tensor.numpy() for name, tensor in outputs.items()}
""",
}
RUN = """

arrays = completed(dict(numpy.load(sys.argv[1] if len(sys.argv) > 1 else f"{file}.npz")))
for name, values in call(arrays).items():
    print(name, values.shape, values.reshape(-1)[:5].tolist(), about["preprocessing"])
"""
ANSWER = """

if len(sys.argv) > 1:
    answer(call, about, sys.argv[1:], completed)
    sys.exit()
arrays = completed(dict(numpy.load(f"{file}.npz")))
for name, values in call(arrays).items():
    print(name, values.shape, values.reshape(-1)[:5].tolist())
"""
CONTINUE = """

def nothing():  # the keys and values of no tokens
    blocks = {name: shape for name, shape in about["inputs"].items() if name != "tokens"}
    sizes = {"B": len(tokens), "P": 0}
    return {name: numpy.zeros([sizes.get(n, n) for n in shape], about["dtype"]) for name, shape in blocks.items()}


steps, length = int(sys.argv[1]) if len(sys.argv) > 1 else 16, about["length"]
tokens = numpy.load(sys.argv[2] if len(sys.argv) > 2 else f"{file}.npz")["tokens"]
visible, past = tokens, nothing()
for _ in range(steps):
    if length is not None and visible.shape[1] > length:  # drop the older half
        visible, past = visible[:, -max(1, length // 2) :], nothing()
    outputs = call({"tokens": visible[:, past["past_keys_0"].shape[2] :], **past})
    past = {f"past_{name}": array for name, array in outputs.items() if name != "y"}
    token = outputs["y"][:, -1:].argmax(-1)
    visible, tokens = numpy.concatenate([visible, token], 1), numpy.concatenate([tokens, token], 1)
print(json.dumps(tokens.tolist()))
"""
NATIVE = {
    "pt2": "import edgewise.kernels  # the native operators\n",
    "aoti": """operators = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libedgewise_operators.so")
torch.ops.load_library(operators)
""",
}
SOURCES = words, atoms, pixels, periodic, films, answering  # of a script, whose names they share
MOST = 40  # entries of a list that a page shows
NEEDS = {
    "texts": "It needs the package tokenizers.",
    "pairs": "It needs the package tokenizers.",
    "continued": "It needs the package tokenizers.",
    "molecules": "It needs RDKit.",
    "images": "It needs Pillow.",
    "frames": "It needs ASE.",
    "films": "It needs SciPy, and of extended XYZ ASE.",
}
DESCRIBED = {"queries": "queries", "positions": "positions", "velocities": "velocities"}  # what rows say of arrays
DESCRIBED |= {"edges": "edge_index", "output": "y"}
STEPS = ("onnx", "pt2")  # formats in which a decoding step is written
RUNS_IN = {
    "onnx": "onnxruntime, or whatever reads ONNX",
    "pt2": "PyTorch alone (`torch.export.load`)",
    "aoti": "PyTorch alone, from Python (`torch._inductor.aoti_load_package`) or C++, on machines like its own",
}
WITH = {
    "pt2": " after `import edgewise.kernels`",
    "aoti": ", once `libedgewise_operators.so` is loaded, which with `libedgewise_kernels.so` lies beside it",
}


def save_pt2(program: ExportedProgram, out: Path, outputs: Sequence[str], about: Mapping[str, Any]) -> None:
    """Write PyTorch's archive, whose extra file edgewise.json says what the model reads."""
    archive = io.BytesIO()  # PyTorch's own writer ends the process where the disk is full
    with quietly():
        torch.export.save(program, archive, extra_files={f"{KEY}.json": json.dumps(about)})
    out.write_bytes(archive.getbuffer())


def save_aoti(program: ExportedProgram, out: Path, outputs: Sequence[str], about: Mapping[str, Any]) -> None:
    """Compile the program for this machine, by AOTInductor, which needs a C++ compiler. Its metadata's entry edgewise
    says what it reads; inputs and outputs are their names alone, in their order, for programs that read no JSON."""
    import torch._inductor

    with tempfile.TemporaryDirectory() as folder, quietly():
        package = str(Path(folder) / "model.pt2")
        entries = {KEY: json.dumps(about), "inputs": " ".join(about["inputs"]), "outputs": " ".join(outputs)}
        # One node is legal, and none.
        configs = {"aot_inductor.metadata": entries, "aot_inductor.check_lowerbound": False}
        with _products_of_any_size():
            made = torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=configs)
        shutil.copyfile(made, out)


@contextmanager
def _products_of_any_size() -> Iterator[None]:
    """A product with rows of one feature stays one. Inductor would take it apart where the example's is small, and the
    compiled file then refuses more rows than it takes this to be small for."""
    from torch._inductor.decomposition import select_decomp_table

    product, table = torch.ops.aten.mm.default, select_decomp_table()
    apart = table.pop(product, None)
    try:
        yield
    finally:
        if apart is not None:
            table[product] = apart


def save_onnx(program: ExportedProgram, out: Path, outputs: Sequence[str], about: Mapping[str, Any]) -> None:
    """Write ONNX; the metadata's entry edgewise says what the model reads.

    Errors      ExportError where onnx or onnxscript is not installed; torch's for an operator that ONNX lacks
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ExportError(f"writing ONNX needs onnx and onnxscript: {installing('export')}") from error
    aten = torch.ops.aten
    own: Any = {
        aten.index_add.default: _index_add,
        aten.sort.stable: _sort,
        aten.scalar_tensor.default: _scalar_tensor,
    }
    with quietly():
        if any(weight.dtype == torch.float64 for weight in program.parameters()):
            program = program.run_decompositions(_in_double())
        made = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False, custom_translation_table=own)
    assert made is not None
    graph = made.model.graph
    scattered = [node.attributes["reduction"].value for node in graph.all_nodes() if _reduces(node)]
    if any(how != "none" for how in scattered):
        raise ExportError("a sum of the model would be ONNX's ScatterND, in which onnxruntime's threads lose terms")
    for value, name in zip(graph.outputs, outputs, strict=True):
        value.name = name
    _name_axes(graph, about["inputs"])
    for node in graph.all_nodes():  # where the sources lie on this machine concerns nobody who runs the file
        node.metadata_props.clear()
    made.model.metadata_props[KEY] = json.dumps(about)
    made.model.producer_name, made.model.producer_version = about["made by"].split()
    out.write_bytes(made.model_proto.SerializeToString())


def _reduces(node: Any) -> bool:
    return node.op_type == "ScatterND" and "reduction" in node.attributes


def _index_add(self: Any, dim: int, index: Any, source: Any, alpha: float = 1.0) -> Any:
    """A sum of alpha times the source by ScatterElements. The exporter has ScatterND, where threads of onnxruntime 1.32
    write at the same time: of two million terms it lost thousands, in two runs of five."""
    from onnxscript import ir, opset18

    op: Any = opset18
    rank = len(source.shape)
    axes = [axis for axis in range(rank) if axis != dim % rank]
    if alpha != 1:
        factor = op.Constant(value=ir.tensor(float(alpha), ir.DataType.DOUBLE))
        source = op.Mul(source, op.CastLike(factor, source))
    rows = op.Unsqueeze(index, op.Constant(value_ints=axes)) if axes else index
    return op.ScatterElements(self, op.Expand(rows, op.Shape(source)), source, axis=dim % rank, reduction="add")


def _in_double() -> dict[Any, Any]:
    """Of models in float64 what ONNX, or onnxruntime 1.32, has with numbers in float32 or in float32 alone, as simpler
    operators: thresholds, slopes and scales, and activations."""
    aten, composed = torch.ops.aten, torch.export.default_decompositions()
    whole = (aten.layer_norm.default, aten.scaled_dot_product_attention.default)
    parts = [aten.native_layer_norm, aten._scaled_dot_product_flash_attention_for_cpu]
    parts += [aten.leaky_relu, aten.elu, aten.softplus]
    return {operator: composed[operator] for operator in whole} | dict(get_decompositions(parts))


def _scalar_tensor(s: Any, dtype: int = -1, layout: str = "", device: str = "", pin_memory: bool = False) -> Any:
    """A number in its type. The exporter has it in float32 first, of which a model in float64 has 7 digits right."""
    from onnxscript import ir, opset18

    op: Any = opset18
    kind = ir.DataType.FLOAT if dtype == -1 else ir.DataType(dtype)
    return op.Constant(value=ir.tensor(s, kind)) if isinstance(s, bool | int | float) else op.Cast(s, to=int(kind))


def _sort(self: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """A stable sort by TopK, which has equal numbers in their order."""
    from onnxscript import opset18

    op: Any = opset18
    size = op.Reshape(op.Gather(op.Shape(self), op.Constant(value_int=dim)), op.Constant(value_ints=[1]))
    return op.TopK(self, size, axis=dim, largest=int(descending), sorted=1)


def _name_axes(graph: Any, inputs: Mapping[str, Sequence[str | int]]) -> None:
    """Letters in place of the exporter's symbols."""
    letters = {
        str(symbol): letter
        for value in graph.inputs
        for symbol, letter in zip(value.shape, inputs.get(value.name, ()), strict=False)
        if isinstance(letter, str)
    }
    for value in (*graph.inputs, *graph.outputs):
        for axis, symbol in enumerate(value.shape or ()):
            if str(symbol) in letters:
                value.shape[axis] = letters[str(symbol)]


def beside(out: Path, ending: str) -> Path:
    """The file of that ending beside an exported one, named after the whole of its name.

    >>> beside(Path("cora.onnx"), "md").name
    'cora.onnx.md'
    """
    return out.with_name(f"{out.name}.{ending}")


def script_of(to: str, about: Mapping[str, Any], cache: bool, lines: str = "") -> str:
    """A script that runs the file beside it, from wherever it is called: for raw rows, where it is said how they are
    read, or for arrays; with a cache it continues a text.

    Symbols     lines = what computes inputs that follow from others
    """
    begins = CALLS[to].replace("OPERATORS\n", NATIVE[to] if "operators" in about else "")
    if cache:
        return f'"""Continues tokens by the likeliest: python SCRIPT [STEPS] [INPUTS.npz]"""\n{begins}{CONTINUE}'
    lines = (
        lines
        or "def completed(arrays):  # with the inputs that follow from others: here there are none\n    return arrays\n"
    )
    rows = about["preprocessing"].get("rows")
    if rows is None:
        what = "Runs the file beside it on the arrays of an .npz file: python SCRIPT [INPUTS.npz]"
        return f'"""{what}"""\n{begins}\n\n{lines}{RUN}'
    what = f"Answers by the file beside it: python SCRIPT INPUT [ANSWERS.csv]\n\nINPUT is {rows['input']}."
    return "\n\n".join([f'"""{what}\n"""\n{begins}', *map(source_of, SOURCES), f"{lines}{ANSWER}"])


def source_of(module: ModuleType) -> str:
    """The source of a module that needs nothing of Edgewise but others such."""
    lines = inspect.getsource(module).splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("from edgewise"))


def readme_of(name: str, to: str, about: Mapping[str, Any], example: Example, completed: bool = False) -> str:
    """What a file reads and returns, in Markdown."""
    lines = [f"# {name}", ""]
    native = "operators" in about
    made = f"{about['model']} as {'standard and native' if native else 'standard'} operators, by {about['made by']}"
    lines += [f"{made}. It runs in {RUNS_IN[to]}{WITH[to] if native else ''}.", ""]
    lines += ["| input | type | shape | |", "|---|---|---|---|"]
    given, returned = example
    for key, shape in about["inputs"].items():
        kind = str(given[key].dtype).removeprefix("torch.")
        lines.append(f"| `{key}` | {kind} | {_shown(shape)} | {INPUTS[kind_of(key)][1]} |")
    used = [letter for letter in LETTERS if any(letter in shape for shape in about["inputs"].values())]
    lines += ["", "; ".join(LETTERS[letter] for letter in used) + ": these numbers may differ from call to call.", ""]
    lines += [f"It returns {', '.join(f'`{key}` {list(value.shape)}' for key, value in returned.items())}: "]
    lines[-1] += f"those of the example in `{name}.npz`, where they are `expected_…`. `python {name}.py` runs it."
    if completed:
        lines += [
            "",
            f"What follows from the edges is computed by `completed` of `{name}.py` where an array is missing.",
        ]
    belongs = about["preprocessing"]
    if "rows" in belongs:
        lines += ["", *rows_in_words(name, belongs["rows"])]
    if "targets" in belongs:
        outputs = enumerate(outputs_of(belongs["targets"]))
        lines += ["", "| `y` | |", "|---|---|", *(f"| {n} | {one} |" for n, one in outputs)]
    if belongs:
        lines += ["", "What belongs to the model beside it, in full in the file's metadata:", "", "```json"]
        lines += [json.dumps(shortened(belongs), indent=2, ensure_ascii=False), "```"]
    return "\n".join(lines) + "\n"


def rows_in_words(name: str, rows: Mapping[str, Any]) -> list[str]:
    """How the script beside a file answers for raw rows, and what its inputs are made of, in Markdown."""
    lines = [
        "## From rows to answers",
        "",
        f"`python {name}.py INPUT [ANSWERS.csv]` answers without Edgewise. INPUT is ",
    ]
    lines[-1] += f"{rows['input']}; tables are in UTF-8, with decimal points. {NEEDS.get(rows['kind'], '')}".strip()
    lines += [f"\n`{name}` has {rows[of]}." for of, name in DESCRIBED.items() if of in rows]
    for array, columns in (("x", rows.get("columns")), ("edge_attr", rows.get("edge_columns"))):
        if isinstance(columns, list) and columns:
            features = [feature for one in columns for feature in features_of(one)]
            lines += ["", f"| `{array}` | |", "|---|---|", *(f"| {n} | {one} |" for n, one in enumerate(features))]
    if rows["kind"] in ("nodes", "graphs") and not rows["columns"]:
        lines += ["", "Each node has the number 1, since nothing is known of it."]
    if "both_ways" in rows:
        ways, known = rows["both_ways"], bool(rows["edge_columns"])
        how = "in both directions, each pair of nodes once" if ways else "as they are, parallel ones too"
        if known and rows["parallel"] == "keep":
            how = "as they are, and the opposites of those without one, with the same features" if ways else how
        elif known:
            both = "in both directions, " if ways else ""
            how = f"{both}each pair of nodes once, with the mean of its edges' features"
        lines += ["", f"`edge_index` has the edges, by the numbers of nodes from 0, {how}; no self-loops are added."]
    return lines


def features_of(column: str | Mapping[str, Any]) -> list[str]:
    """What the features of a column are, in words."""
    if isinstance(column, str):
        return [column]
    called = column["name"]
    if column["kind"] == "category":
        return [f"1 where {called} is {level!r}, else 0" for level in column.get("levels", [])]
    if column["kind"] == "text":
        return [f"TF-IDF of {word!r} in {called}" for word in column.get("levels", [])]
    cell = {"boolean": f"{called}, 1 or 0", "date": f"days of {called} since 1970-01-01"}.get(column["kind"], called)
    value = f"({cell} - {column['shift']:.9g}) / {column['deviation']:.9g}" if column["kind"] != "boolean" else cell
    absent = [f"1 where {called} is missing, else 0"] if column["flagged"] else []
    return [f"{value}; {column['fill']:.9g} stands for a missing {called}", *absent]


def outputs_of(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the outputs are, in words."""
    made = []
    for one in targets:
        classes = [
            f"{one['name']} is {name!r}: a logit, of which softmax makes probabilities"
            for name in one.get("classes", ())
        ]
        within = f"; {100 * one['level']:g} % of values are within ± {one['half']:.6g}" if "half" in one else ""
        made += classes or [f"{one['name']}, in its own unit{within}"]
        made[-1] += f", which is answered above {one['threshold']:.6g}" if classes and "threshold" in one else ""
    return made


def shortened(content: Any) -> Any:
    """The same with the beginnings of long lists and tables alone."""
    if isinstance(content, Mapping):
        some = {name: shortened(one) for name, one in list(content.items())[:MOST]}
        return some | ({"...": f"{len(content) - MOST:,} more"} if len(content) > MOST else {})
    if isinstance(content, list | tuple):
        more = [f"... {len(content) - MOST:,} more"] if len(content) > MOST else []
        return [*map(shortened, content[:MOST]), *more]
    return content


def _shown(shape: Sequence[str | int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
