"""All tables as people have them, and what a person would read there.

`python -m tasks.nodes.own.messy.tables FOLDER`, in the folder of the tests, writes a folder for each, with
expected.json beside its files.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tasks.nodes.own.messy import cells, files, names
from tasks.nodes.own.messy.case import Case, Make, Read

LONG = 2_000_000
CASES: dict[str, Make] = files.CASES | cells.CASES | names.CASES


def two_million() -> Case:
    """Rows of five columns, and as many edges."""
    cities = ("Ulm", "Bonn", "Rome")
    rows = (f"n{row},{row % 90},{row % 97 / 97:.4f},{cities[row % 3]},{'uv'[row % 2]}\n" for row in range(LONG))
    links = (f"n{row},n{(row * 7 + 1) % LONG}\n" for row in range(LONG))
    content = {
        "nodes.csv": ("id,age,height,city,label\n" + "".join(rows)).encode(),
        "edges.csv": ("source,target\n" + "".join(links)).encode(),
    }
    kinds = {"age": "number", "height": "number", "city": "category (Bonn, Rome, Ulm)"}
    return Case(content, Read(kinds, {"age": [0, 1, 2]}, names=["n0", "n1"], nodes=LONG, edges=LONG))


def write(made: Case, place: Path) -> Path:
    """A case's files in a folder, and beside them what a person would read."""
    place.mkdir(parents=True, exist_ok=True)
    for name, content in made.files.items():
        (place / name).write_bytes(content)
    kind = "read" if isinstance(made.expected, Read) else "refused"
    (place / "expected.json").write_text(json.dumps({kind: asdict(made.expected)}, indent=1), encoding="utf-8")
    return place


if __name__ == "__main__":
    for name, make in (CASES | {"two_million": two_million}).items():
        print(write(make(), Path(sys.argv[1]) / name))
