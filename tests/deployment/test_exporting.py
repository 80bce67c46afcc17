"""Exported files give the model's numbers, in processes that cannot import Edgewise, for calls of other sizes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from deployment.families import FAMILIES, gnn, on_nodes, random_graph
from edgewise.deployment import export
from edgewise.errors import ExportError
from edgewise.graphs import Graph, causal
from edgewise.layers import GAT, GCN, LAYERS, SAGELSTM, HadamardAttention
from edgewise.models import GNN, Features, GNNSettings

OTHERS = range(1, 6)  # calls of other sizes than the example's

RUN = """
import importlib.abc, json, pathlib, sys
class Alone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "edgewise":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Alone())
import numpy

def runs(path):
    if path.suffix == ".onnx":
        import onnxruntime
        session = onnxruntime.InferenceSession(path)
        names = [one.name for one in session.get_outputs()]
        reads = [one.name for one in session.get_inputs()]
        return lambda given: dict(zip(names, session.run(names, {name: given[name] for name in reads})))
    import torch
    if path.name.endswith(".aoti.pt2"):
        import torch._inductor
        compiled = torch._inductor.aoti_load_package(str(path))
        return lambda given: {
            name: y.numpy() for name, y in compiled(**{name: torch.from_numpy(x) for name, x in given.items()}).items()
        }
    program = torch.export.load(path).module()
    return lambda given: {
        name: y.detach().numpy()
        for name, y in program(**{name: torch.from_numpy(x) for name, x in given.items()}).items()
    }

worst = {}
for path in map(pathlib.Path, sys.argv[1:]):
    run = runs(path)
    for call in sorted(path.parent.glob(f"{path.stem}.call*.npz")):
        arrays = numpy.load(call)
        given = {name: arrays[name] for name in arrays if not name.startswith("expected_")}
        found = run(given)
        expected = {name[9:]: arrays[name] for name in arrays if name.startswith("expected_")}
        assert found.keys() == expected.keys(), (found.keys(), expected.keys())
        for name, right in expected.items():
            assert found[name].shape == right.shape, (call, name, found[name].shape, right.shape)
            apart = numpy.abs(found[name] - right) / (1 + numpy.abs(right)) if right.size else numpy.zeros(1)
            worst[path.name] = max(worst.get(path.name, 0.0), float(apart.max()))
try:
    import edgewise
except ModuleNotFoundError:
    print(json.dumps(worst))
"""


def compared(folder: Path, files: list[Path]) -> dict[str, float]:
    """By file the largest |y - y'| / (1 + |y|) of its calls, in a process without Edgewise."""
    made = subprocess.run([sys.executable, "-c", RUN, *map(str, files)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    return json.loads(made.stdout.splitlines()[-1])


def save_call(file: Path, made: edgewise.deployment.Exported, call: tuple[Any, ...]) -> Path:
    """The arrays of another call, with the outputs that the model gives."""
    given, expected = made.call(*call)
    named = given | {f"expected_{key}": value for key, value in expected.items()}
    np.savez(file, **{key: value.detach().numpy() for key, value in named.items()})
    return file


def exported(name: str, folder: Path) -> list[Path]:
    """A family in every format, with calls of other sizes beside the files."""
    family, stem = FAMILIES[name], name.replace(", ", "-").replace(" ", "-")
    torch.manual_seed(0)
    model, files = family.model().eval(), []
    for to in ("onnx", "pt2"):
        place = folder / f"{stem}.{to}"
        made = export(model, family.call(0), to, place, names=family.names, radius=family.radius)
        files.append(folder / f"{stem}.{to}")
    for number in OTHERS:
        save_call(folder / f"{stem}.call{number}.npz", made, family.call(number))
    return files


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["gat", *(pytest.param(name, marks=pytest.mark.exports) for name in FAMILIES)])
def test_files_give_the_models_numbers_for_other_sizes(name: str, tmp_path: Path) -> None:
    worst = compared(tmp_path, exported(name, tmp_path))
    assert len(worst) == 2
    assert max(worst.values()) <= 1e-5, worst


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("onnx", "m.onnx"),
        pytest.param("pt2", '"1" {x} \\n ü', marks=pytest.mark.processes),
        pytest.param("aoti", "m.aoti.pt2", marks=pytest.mark.compiled),
    ],
)
def test_a_file_comes_with_what_it_reads_an_example_and_a_script_that_runs_it(
    to: str, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "mine, and yours"
    folder.mkdir()
    call = FAMILIES["gine"].call(0)
    made = export(gnn("gine", edges=2, readout="sum"), call, to, folder / name, preprocessing={"classes": ["a"]})
    axes = {"x": ["N", 5], "edge_attr": ["E", 2], "edge_index": [2, "E"], "sizes": ["G"]}
    assert made.inputs == made.about["inputs"] == axes and made.outputs == ("y",)
    command = [sys.executable, str(folder / f"{name}.py")]  # from wherever it is called
    ran = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("y (3, 3)") and "'classes': ['a']" in ran.stdout
    page = (folder / f"{name}.md").read_text()
    assert "| `edge_attr` | float32 | [E, 2] |" in page and '"classes"' in page
    assert {file.name for file in folder.iterdir()} == {f"{name}{ending}" for ending in ("", ".md", ".npz", ".py")}
    if to != "aoti":
        assert str(Path.cwd()).encode() not in (folder / name).read_bytes()
    first = made.call(*call)
    for one, other in zip(first, made.example, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.compiled
def test_onnx_has_named_axes_the_operator_attention_and_no_operator_of_its_own(tmp_path: Path) -> None:
    import onnx

    torch.manual_seed(0)
    export(FAMILIES["gpt"].model(), FAMILIES["gpt"].call(0), "onnx", tmp_path / "gpt.onnx")
    model = onnx.load(tmp_path / "gpt.onnx")
    assert {node.domain for node in model.graph.node} == {""} and {entry.domain for entry in model.opset_import} == {""}
    assert sum(node.op_type == "Attention" for node in model.graph.node) == 2
    axes = [axis.dim_param for axis in model.graph.input[0].type.tensor_type.shape.dim]
    assert (model.graph.input[0].name, axes, model.graph.output[0].name) == ("tokens", ["B", "N"], "y")
    assert json.loads(next(entry.value for entry in model.metadata_props))["inputs"] == {"tokens": ["B", "N"]}
    onnx.checker.check_model(model)


@pytest.mark.compiled
def test_sums_in_onnx_lose_no_term_to_another_thread(tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    class Sum(nn.Module):
        def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
            return edgewise.aggregate(graph, x)

    export(Sum(), on_nodes(0), "onnx", tmp_path / "sum.onnx")
    nodes = onnx.load(tmp_path / "sum.onnx").graph.node
    assert {"ScatterElements"} <= {node.op_type for node in nodes} and "ScatterND" not in {
        node.op_type for node in nodes
    }
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 4
    session = onnxruntime.InferenceSession(tmp_path / "sum.onnx", options)
    edges = np.random.default_rng(0).integers(0, 5, (2, 500_000))
    (y,) = session.run(None, {"x": np.ones((5, 5), "float32"), "edge_index": edges})
    assert (y == np.bincount(edges[1])[:, None]).all()


@pytest.mark.compiled
def test_the_order_of_the_edges_does_not_matter() -> None:
    graph, x = random_graph(4), torch.randn(30, 3)
    program = export(GAT(3, 4), (graph, x), "pt2").program.module()
    edges = graph.edge_index()
    mixed = edges[:, torch.randperm(edges.shape[1])]
    y = program(x=x, edge_index=edges)["y"]
    torch.testing.assert_close(program(x=x, edge_index=mixed)["y"], y, rtol=0, atol=1e-6)


def within(radius: float, name: str = "egnn, radius", call: int = 0, **options) -> edgewise.deployment.Exported:
    family = FAMILIES[name]
    return export(family.model().eval(), family.call(call), "pt2", names=family.names, radius=radius, **options)


@torch.no_grad()
def test_a_program_finds_the_edges_within_a_radius_itself() -> None:
    made = within(1.5)
    assert made.inputs == {"x": ["N", 4], "positions": ["N", 3], "sizes": ["G"]} and made.about["radius"] == 1.5
    given, expected = made.call(*FAMILIES["egnn, radius"].call(3))
    program = made.program.module()
    torch.testing.assert_close(program(**given)["y"], expected["y"], rtol=0, atol=1e-5)
    given["positions"] = given["positions"] * 0.5  # others are near now
    assert float((program(**given)["y"] - expected["y"]).abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("name", "radius", "why"),
    [
        ("egnn, radius", 1.4, r"the example's graph has \d+ edges, and is not that of its \d+ pairs within 1.4"),
        ("egnn, radius", 0.0, "a radius is a number above 0"),
        ("schnet, radius", 1.0, "here at least 2, that of the model: not 1"),
        ("gcn", 1.0, "edges within a radius are found of positions"),
    ],
)
def test_a_radius_that_is_not_the_examples_is_refused(name: str, radius: float, why: str) -> None:
    with pytest.raises(ExportError, match=why):
        within(radius, name)


def test_the_model_is_left_as_it_was() -> None:
    model = gnn("gat", dropout=0.5).train()
    model.hidden[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    export(model, on_nodes(0), "pt2")
    assert model.training and not model.hidden[0].training and model.output.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert edgewise.plan(causal(4)).choice != "portable"


class _Wrong(nn.Module):
    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return x * (1.0 if torch.compiler.is_compiling() else 2.0)


class _Solving(nn.Module):
    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum())


class _Looping(nn.Module):
    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[n] * n for n in range(x.shape[0])])


class _Hashing(nn.Module):
    def forward(self, graph: Graph, x: torch.Tensor) -> torch.Tensor:
        return x * len({x.shape[0], 3})


@pytest.mark.parametrize(
    ("model", "call", "to", "why"),
    [
        (lambda: SAGELSTM(5, 3), on_nodes(0), "onnx", "the order in which a recurrent network reads neighbours"),
        (
            lambda: HadamardAttention(5, 1),
            on_nodes(0),
            "pt2",
            "the multiplicity of pairs has no form in standard operators",
        ),
        (lambda: GCN(5, 3), on_nodes(0), "tflite", "there is no format 'tflite': choose one of onnx, pt2, aoti"),
        (lambda: GCN(5, 3), (torch.ones(2, 5),), "onnx", "begins with a Tensor, not with the graph"),
        (_Wrong, on_nodes(0), "pt2", "y of the exported program differs from the model's by"),
        (_Solving, on_nodes(0), "pt2", "_Solving cannot be exported: what it computes next depends on the numbers"),
        (
            _Looping,
            on_nodes(0),
            "pt2",
            "_Looping cannot be exported: a program of it has one size of axis 0 of 'x' alone",
        ),
        (_Hashing, on_nodes(0), "pt2", "_Hashing cannot be exported: how often it does something depends on a size"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_the_reason(model, call, to: str, why: str) -> None:
    with pytest.raises(ExportError, match=why):
        export(model(), call, to)


@pytest.mark.exports
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["gat", "gine", "gpt", "schnet"])
def test_a_compiled_file_gives_the_models_numbers_for_other_sizes(name: str, tmp_path: Path) -> None:
    files = exported(name, tmp_path)
    family, file = FAMILIES[name], tmp_path / f"{name}.aoti.pt2"
    torch.manual_seed(0)
    export(family.model().eval(), family.call(0), "aoti", file, names=family.names)
    for call in tmp_path.glob(f"{name}.call*.npz"):
        call.with_name(call.name.replace(f"{name}.call", f"{name}.aoti.call")).write_bytes(call.read_bytes())
    worst = compared(tmp_path, [*files, file])
    assert len(worst) == 3 and max(worst.values()) <= 1e-5, worst


# Layers that no program can be, and those whose features have more axes than inputs have names for.
REFUSED = {
    "HadamardAttention", "I2GNN", "LSHAttention", "Marked", "PPGN", "RoutingAttention", "SAGELSTM",
    "ShawAttention", "SinkhornAttention", "TransformerXLAttention",
    "GroupConvolution", "GroupPooling", "PaiNN", "Rotary", "SE3Attention", "ScaleConvolution", "TFN", "YaRN",
}  # fmt: skip


@pytest.mark.exports
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_exported_or_refused_with_a_reason(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    layer, graph, inputs = LAYERS[name].example()
    of_edges = [isinstance(graph, Graph) and n > 0 and t.shape[-2] == graph.num_edges for n, t in enumerate(inputs)]
    rest = iter(("x", "positions", "velocities", "cell"))
    names = ["edge_attr" if of_edge else next(rest) for of_edge in of_edges]
    if name in REFUSED:
        with pytest.raises(ExportError):
            export(layer, (graph, *inputs), "pt2", names=names)
    else:
        assert export(layer, (graph, *inputs), "pt2", names=names).outputs[0] == "y"
    assert capsys.readouterr() == ("", "")


PAIR = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)


@pytest.mark.parametrize("name", ["gcn.npz", "gcn.py", "gcn.md"])
def test_a_file_is_not_overwritten_by_those_beside_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="another ending"):
        export(GCN(3, 4), (PAIR, torch.ones(2, 3)), to="pt2", out=tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"bfloat16, .* export model.float()"):
        export(GCN(3, 4).bfloat16(), (PAIR, torch.ones(2, 3, dtype=torch.bfloat16)), "pt2", tmp_path / "model")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("kept")
    with pytest.raises(NotADirectoryError):
        export(GCN(3, 4), (PAIR, torch.ones(2, 3)), to="pt2", out=tmp_path / "file" / "gcn.pt2")
    assert (tmp_path / "file").read_text() == "kept"


def test_an_input_of_an_unknown_name_is_refused() -> None:
    with pytest.raises(ExportError, match="no input is called y: choose of x, tokens"):
        export(GCN(5, 3), on_nodes(0), names=("y",))


@pytest.mark.compiled
def test_single_nodes_and_no_edges_make_good_examples() -> None:
    single = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 1)
    model = GNN(GNNSettings("gcn", width=4), Features(5, 3)).eval()
    program = export(model, (single, torch.ones(1, 5)), "pt2").program.module()
    graph, x = on_nodes(4)
    torch.testing.assert_close(program(x=x, edge_index=graph.edge_index())["y"], model(graph, x), rtol=0, atol=1e-5)


@pytest.mark.compiled
def test_batches_may_have_graphs_without_nodes() -> None:
    model = gnn("gin", readout="sum").eval()
    program = export(model, FAMILIES["gin, many graphs"].call(0), "pt2").program.module()
    empty = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 0)
    graph = Graph.batch([empty, random_graph(0), empty, empty, random_graph(1), empty])
    x = torch.randn(graph.num_receivers, 5)
    y = program(x=x, edge_index=graph.edge_index(), sizes=graph.sizes)["y"]
    torch.testing.assert_close(y, model(graph, x), rtol=0, atol=1e-5)


FULL = """
import resource, sys, torch
from pathlib import Path
from typing import Any
from edgewise import Graph
from edgewise.deployment import export
from edgewise.layers import GCN
made = export(GCN(4, 300), (Graph.from_edge_index([[0], [1]], 2), torch.ones(2, 4)), to="pt2")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    made.save(Path(sys.argv[1]))
except OSError as error:
    print("refused", error.errno)
"""


@pytest.mark.processes
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """PyTorch's own writer ended the process."""
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "m.pt2")], capture_output=True, text=True)
    assert done.stdout == "refused 27\n", done.stderr
    assert list(tmp_path.iterdir()) == []


class OfEdgeIndex(nn.Module):
    """Σ_j x_j, of PyTorch Geometric's form."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


def test_a_module_that_takes_an_edge_index_is_exported_with_it() -> None:
    path, other = Graph.from_edge_index([[1, 0, 1], [2, 1, 0]], num_nodes=3), torch.tensor([[0, 3], [3, 1]])
    program, x = export(OfEdgeIndex(), (path, torch.randn(3, 2)), to="pt2").program.module(), torch.randn(4, 2)
    assert program(x=x, edge_index=other)["y"].equal(OfEdgeIndex()(x, other))
