"""Each messy table is read as a person would read it, or refused with all that is wrong with it in one message."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgewise.data.columns import Column
from edgewise.errors import DataError
from edgewise.tasks import node_folder
from edgewise.tasks.own.nodes import OwnNodes
from tasks.nodes.own.messy.tables import CASES, LONG, two_million, write

MEMORY = 2.0  # GB at most for a table of 2,000,000 nodes and edges with PyTorch loaded


def shown(column: Column) -> str:
    return f"{column.kind} ({', '.join(column.levels)})" if column.levels else column.kind


def differences(task: OwnNodes, expected: dict[str, Any]) -> dict[str, Any]:
    """What was read otherwise than expected: both."""
    given, columns = task.given, {column.name: column for column in task.given.x}  # type: ignore[union-attr]
    first = {
        name: [columns[name].values[row] if columns[name].present[row] else None for row in range(len(values))]
        for name, values in expected["first"].items()
    }
    read = {
        "columns": {name: shown(column) for name, column in columns.items()},
        "first": {name: pytest.approx(values) for name, values in first.items()},
        "target": task.fitted.target.kind,
        "classes": list(task.classes),
        "names": [given.name(row) for row in range(len(expected["names"]))],
        "nodes": len(given),
        "edges": given.edges.shape[1],
        "edge_columns": {column.name: shown(column) for column in given.e or ()},  # type: ignore[union-attr]
        "said": [line for line in expected["said"] if line in "\n".join(task.summary)],
    }
    return {name: (expected[name], value) for name, value in read.items() if expected[name] != value}


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_read_as_a_person_would(name: str, tmp_path: Path) -> None:
    place = write(CASES[name](), tmp_path / name)
    expected = json.loads((place / "expected.json").read_text(encoding="utf-8"))
    if "read" in expected:
        task = node_folder(str(place))
        assert isinstance(task, OwnNodes) and differences(task, expected["read"]) == {}
        return
    with pytest.raises(DataError) as caught:
        node_folder(str(place))
    assert [what for what in expected["refused"]["problems"] if what not in str(caught.value)] == []


def test_there_are_forty_at_least() -> None:
    assert len(CASES) >= 40


@pytest.mark.endurance
def test_two_million_rows_are_read_in_bounded_memory(tmp_path: Path) -> None:
    place = write(two_million(), tmp_path / "long")
    code = (
        "import resource, sys; from edgewise.tasks import node_folder; task = node_folder(sys.argv[1]); "
        "print(len(task.given), task.given.edges.shape[1], [str(c) for c in task.given.x], "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
    )
    made = subprocess.run([sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=True)
    print(made.stdout)
    assert made.stdout.startswith(f"{LONG} {LONG} ['age (a number)', 'height (a number)', 'city (a category of 3)']")
    assert float(made.stdout.split()[-1]) < MEMORY
