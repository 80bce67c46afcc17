"""No parser of others stands outside the boundary, `edgewise.files.reading`; and every reader has its harness."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgewise
from edgewise.errors import ConfigError, DataError, EdgewiseError
from edgewise.files import MAX_JSON, check_header, read_bytes, read_json, reading
from fuzz import harnesses

PACKAGE = Path(edgewise.__file__).parent
FOLDERS = ("tasks", "data", "graphs", "models/hub", "configuration")
PARSERS = re.compile(
    r"json\.loads?|yaml\.load|csv\.(reader|DictReader)|np\.(load|loadtxt|genfromtxt)|np\.lib\.format\.(open_memmap|read_\w+)"
    r"|ZipFile|Image\.open|loadmat|pq\.\w+|safetensors\.torch\.load(_file)?|load_file|safe_open|openslide\.OpenSlide"
    r"|.*\.read_region|.*\.MolFromSmiles|pickletools\.genops|_Numbers|.*\.decompress|.*\.from_str|check_pages"
    r"|tarfile\.open|gzip\.open|pd\.read_\w+|torch\.load|hf_hub_download|HfApi"
)


def outside(tree: ast.Module) -> Iterator[str]:
    """Calls of parsers that neither stand in `with reading(...)` nor in a function that is only called there."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def guarded(node: ast.AST, trail: frozenset[str] = frozenset()) -> bool:
        while node in parents:
            node = parents[node]
            if isinstance(node, ast.With) and any("reading(" in ast.unparse(item) for item in node.items):
                return True
            if isinstance(node, ast.FunctionDef):
                name = node.name
                calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == name]
                return name not in trail and bool(calls) and all(guarded(call, trail | {name}) for call in calls)
        return False

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and PARSERS.fullmatch(ast.unparse(node.func)) and not guarded(node):
            yield f"{node.lineno}: {ast.unparse(node.func)}"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("def f(path):\n    return json.loads(path)", 1),
        ("def f(path):\n    with reading(path, 'x'):\n        return json.loads(path)", 0),
        ("def g(x):\n    return np.load(x)\ndef f(x):\n    with reading(x, 'x'):\n        return g(x)", 0),
        ("def g(x):\n    return np.load(x)\ndef f(x):\n    with reading(x, 'x'):\n        g(x)\n    g(x)", 1),
        ("def f(x):\n    with open(x):\n        return Image.open(x)", 1),
    ],
)
def test_the_walk_sees_a_parser_outside_the_boundary(code: str, count: int) -> None:
    assert len(list(outside(ast.parse(code)))) == count


def test_no_parser_stands_outside_the_boundary() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{call}"
        for folder in (*FOLDERS, "files.py")
        for path in ([PACKAGE / folder] if folder.endswith(".py") else sorted((PACKAGE / folder).rglob("*.py")))
        for call in outside(ast.parse(path.read_text(encoding="utf-8")))
    ]
    # What a tokenizer of ours says of itself, and a request, which may be no JSON.
    ours = r"(tasks/(text/(tokenization|denoising|documents|language|smiles)|own/texts)|data/table)\.py:\d+: json.loads"
    assert [line for line in found if not re.fullmatch(ours, line)] == []


def test_every_module_with_a_boundary_has_a_harness() -> None:
    text = Path(harnesses.__file__).read_text(encoding="utf-8")
    modules = [
        ".".join(("edgewise", *path.relative_to(PACKAGE).with_suffix("").parts))
        for folder in FOLDERS
        for path in (PACKAGE / folder).rglob("*.py")
        if "with reading(" in path.read_text(encoding="utf-8")
    ]
    reached_by = {
        "edgewise.configuration.conversion": "read_yaml",
        "edgewise.models.hub.download": "test_download",
        "edgewise.models.hub.pretrained": "from_hugging_face",
        "edgewise.tasks.core.source": "test_cache",
        "edgewise.data.building": "build_store",
        "edgewise.tasks.nodes.classification": "node_folder",
        "edgewise.data.graph": "node_folder",
        "edgewise.data.table": "read_table",
        "edgewise.data.parquet": "read_table",
    }
    assert [name for name in modules if name not in text and name not in reached_by] == []


@pytest.mark.parametrize(
    "error", [ValueError, RuntimeError, MemoryError, RecursionError, OSError, StopIteration, Warning]
)
def test_whatever_a_parser_raises_is_one_error_that_names_the_file(error: type[Exception]) -> None:
    with (
        pytest.raises(DataError, match=r"a\.bin: not a picture \(two lines\)") as caught,
        reading("a.bin", "a picture"),
    ):
        raise error("two\n  lines")
    assert isinstance(caught.value.__cause__, error)
    message = rf"a\.bin: not a picture \({error.__name__}\)"
    with pytest.raises(ConfigError, match=message), reading("a.bin", "a picture", ConfigError):
        raise error


def test_a_panic_in_rust_is_an_error_and_what_is_ours_or_the_users_passes() -> None:
    class PanicException(BaseException):
        pass

    with pytest.raises(DataError, match="index out of bounds"), reading("a", "a tokenizer"):
        raise PanicException("index out of bounds")
    for error in (KeyboardInterrupt, SystemExit, GeneratorExit, EdgewiseError, ConfigError):
        with pytest.raises(error) as caught, reading("a", "a tokenizer"):
            raise error("as it was")
        assert caught.value.args == ("as it was",)


def test_json_is_bounded_and_a_path_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content, message in {
        b"[" * 100_000: "not a list of names .*recursion",
        b"[" + b" " * MAX_JSON: "longer than the 8,388,608 bytes",
        b"9" * 5000: "not a list of names .*digits",
        b"\xff": "not a list of names",
    }.items():
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"a\.json: {message}"):
            read_json(path, "a list of names")
    with pytest.raises(DataError, match="cannot be read"):
        read_bytes(Path("a\0b"), 10)
    with pytest.raises(ValueError, match="its header of 4,194,305 bytes"):
        check_header((4_194_305).to_bytes(8, "little") + b"{}")
