"""A user's table enters five files at most on its way to a batch."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import edgewise
from data.test_graph import write as write_nodes
from edgewise.data.columns import Column
from edgewise.data.examples import Edges, Examples, Members
from edgewise.data.record import Settled
from edgewise.data.table import Dialect, Table
from edgewise.tasks import graph_folder, link_folder, node_folder, point_folder, text_table
from tasks.own.test_graphs import write as write_graphs
from tasks.own.test_links import write as write_links
from tasks.own.test_points import write as write_points
from tasks.own.test_texts import write as write_texts

PACKAGE = Path(edgewise.__file__).parent
READ = Dialect, Table, Column, Edges, Examples, Members, Settled  # what a table is on its way


def entered(make: Callable[[], Any]) -> set[str]:
    """The files in which a function is given a table, or what was read of it, until there is a batch."""
    found = set[str]()

    def follow(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            given = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
            given += [part for one in given if isinstance(one, list | tuple) for part in one]
            if any(isinstance(one, READ) for one in given):
                found.add(Path(code.co_filename).relative_to(PACKAGE).as_posix())

    sys.setprofile(follow)
    try:
        make().train_batch(2, torch.Generator())
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(
    ("task", "write", "options"),
    [
        (node_folder, write_nodes, {}),
        (link_folder, write_links, {}),
        (graph_folder, write_graphs, {"label": "shape,mass"}),
        (point_folder, write_points, {"label": "form"}),
        (text_table, lambda place: write_texts(place.with_suffix(".csv")), {"level": "byte"}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_table_enters_five_files_at_most(tmp_path: Path, task: Callable[..., Any], write: Any, options: Any) -> None:
    place = str(write(tmp_path / "mine"))
    files = entered(lambda: task(place, **options))
    assert "data/table.py" in files and len(files) <= 5, files
