"""The notebooks run as they are, and the outputs that they show are those of a run."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import notebooks  # noqa: E402

NAMES = sorted(path.name for path in notebooks.FOLDER.glob("*.ipynb"))
SLOW = {"hugging-face.ipynb", "your-data.ipynb"}
NEEDS = {
    "pytorch-geometric": ("torch_geometric",),
    "hugging-face": ("transformers", "tokenizers"),
    "your-data": ("rdkit",),
}


def shown(output):
    """An output's kinds and words; numbers, drawings in characters and plans differ between machines."""
    data = output.get("data", {})
    text = "".join(output.get("text", data.get("text/plain", ())))
    words = [] if text.startswith("Plan(") else re.findall(r"[^\W\d]{2,}", text)
    return output["output_type"], sorted(data), words


def test_there_is_a_notebook_for_each_page_that_names_one():
    pages = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in NEEDS}
    assert sorted(f"{name}.ipynb" for name in NEEDS) == NAMES
    assert [name for name, text in pages.items() if f"notebooks/{name}.ipynb" not in text] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the other libraries
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.compiled] * (n in SLOW)) for n in NAMES])
def test_a_notebook_runs_and_shows_what_it_gives(name, tmp_path):
    for library in NEEDS[name.removesuffix(".ipynb")]:
        pytest.importorskip(library)
    notebook = json.loads((notebooks.FOLDER / name).read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = notebooks.code_of(notebook)
    assert all(cell["execution_count"] == number for number, cell in enumerate(code, 1))
    made = notebooks.run(notebook, tmp_path)
    assert [list(map(shown, cell["outputs"])) for cell in code] == [list(map(shown, outputs)) for outputs in made]


def test_a_cell_gives_what_it_prints_and_its_last_value(tmp_path):
    cells = [{"cell_type": "code", "source": ["import os\n", "print('here')\n", "a = 2\n", "a + 1"]}]
    cells.append({"cell_type": "markdown", "source": ["a"]})
    cells.append({"cell_type": "code", "source": ["assert a == 2"]})
    (printed, value), nothing = notebooks.run({"cells": cells}, tmp_path)
    assert (printed["text"], value["data"], nothing) == (["here\n"], {"text/plain": ["3"]}, [])
    cells.append({"cell_type": "code", "source": ["a / 0"]})
    with pytest.raises(ZeroDivisionError):
        notebooks.run({"cells": cells}, tmp_path)
