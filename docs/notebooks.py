"""The notebooks in `docs/notebooks`: run without a notebook server, and given the outputs that they show.

python docs/notebooks.py
"""

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"


def code_of(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """A notebook's cells of code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each cell of code, run one after the other in a folder: what is printed, and the last value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    made = []
    with contextlib.chdir(folder):
        for number, cell in enumerate(code_of(notebook), 1):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), warnings.catch_warnings():
                value = _last_value("".join(cell["source"]), f"cell {number}", names)
            made.append([*_text(printed.getvalue()), *([] if value is None else [_shown(value, number)])])
    return made


def _last_value(source: str, place: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line where that is an expression."""
    tree, last = ast.parse(source), None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    exec(compile(tree, place, "exec"), names)  # noqa: S102 (our own documentation)
    return None if last is None else eval(compile(last, place, "eval"), names)  # noqa: S307


def _text(printed: str) -> list[dict[str, Any]]:
    return [{"output_type": "stream", "name": "stdout", "text": printed.splitlines(True)}] if printed else []


def _shown(value: Any, number: int) -> dict[str, Any]:
    data = {"text/plain": repr(value).splitlines(True)}
    if hasattr(value, "_repr_html_") and (page := value._repr_html_()):
        data["text/html"] = page.splitlines(True)
    return {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}


def filled(path: Path) -> dict[str, Any]:
    """A notebook with the outputs of a run."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for number, (cell, outputs) in enumerate(zip(code_of(notebook), run(notebook, Path(folder)), strict=True), 1):
            cell["outputs"], cell["execution_count"] = outputs, number
    return notebook


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for path in sorted(FOLDER.glob("*.ipynb")):
        content = json.dumps(filled(path), indent=1, ensure_ascii=False) + "\n"
        path.write_text(content, encoding="utf-8")
        print(f"{path}: {len(content):,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
