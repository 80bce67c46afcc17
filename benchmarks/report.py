"""The measurements as tables and as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edgewise import __version__

KINDS = {"forward": "forward", "step": "forward and backward"}
ROOM = 3  # significant digits
Row = dict[str, Any]


def shown(value: float) -> str:
    """A number with three significant digits, without an exponent.

    Example
        >>> shown(1234.5), shown(12.345), shown(0.012345)
        ('1,234', '12.3', '0.0123')
    """
    if value >= 100:
        return f"{value:,.0f}"
    digits = 0 if value == 0 else max(0, ROOM - len(str(int(value))) if value >= 1 else _zeros(value) + ROOM)
    return f"{value:.{digits}f}"


def _zeros(value: float) -> int:
    return len(f"{value:.12f}".split(".")[1]) - len(f"{value:.12f}".split(".")[1].lstrip("0"))


def table(rows: Sequence[Row]) -> list[dict[str, str]]:
    """One line for each contender: milliseconds with quartiles, times Edgewise's, megabytes, error."""
    several = len({row["part"] for row in rows}) > 1
    lines = []
    for row in rows:
        line = {"part": row["part"]} if several else {}
        line |= {"contender": row["contender"], "threads": str(row["threads"])}
        for kind in KINDS:
            line[f"{kind} ms"] = milliseconds(row["seconds"].get(kind))
            line[f"{kind} ×"] = ratio(rows, row, kind)
        memory = row["megabytes"].get("step", row["megabytes"].get("forward"))
        line["MB"] = "" if memory is None else f"{memory:,.0f}"
        line["error"] = f"{max(row['errors'].values()):.0e}" if row["errors"] else ""
        if row["refused"]:
            line["forward ms"] = f"— {row['refused']}"
        lines.append(line)
    return lines


def milliseconds(taken: dict[str, float] | None) -> str:
    """Median and quartiles."""
    if taken is None:
        return ""
    return f"{shown(1e3 * taken['median'])} ({shown(1e3 * taken['low'])}–{shown(1e3 * taken['high'])})"


def ratio(rows: Sequence[Row], row: Row, kind: str) -> str:
    """A contender's time as a multiple of Edgewise's in the same part, on as many threads."""
    same = [one for one in rows if all(one[name] == row[name] for name in ("case", "part", "threads"))]
    own = next((one["seconds"].get(kind) for one in same if one["contender"] == "edgewise"), None)
    taken = row["seconds"].get(kind)
    return "" if own is None or taken is None else f"{taken['median'] / own['median']:.2f}"


def achieved(
    rows: Sequence[Row], works: dict[str, dict[str, tuple[int, int]]], machine: dict[str, Any]
) -> list[dict[str, Any]]:
    """Bytes and operations per second of every contender with a formula, as shares of what the machine does."""
    found = []
    for row in rows:
        speed = machine.get(str(row["threads"]))
        for kind, (moved, operations) in works.get(f"{row['case']}/{row['part']}", {}).items():
            taken = row["seconds"].get(kind)
            if taken is None or speed is None:
                continue
            seconds = taken["median"]
            found.append(
                {name: row[name] for name in ("case", "part", "contender", "threads")}
                | {
                    "kind": kind,
                    "GB/s": moved / seconds / 1e9,
                    "of copy": moved / seconds / speed["bytes"],
                    "GFLOP/s": operations / seconds / 1e9,
                    "of sgemm": operations / seconds / speed["flops"],
                }
            )
    return found


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """Rows of text as a table in Markdown."""
    if not lines:
        return "(nothing measured)\n"
    head = list(lines[0])
    rows = [head, ["---"] * len(head), *([str(line.get(name, "")) for name in head] for line in lines)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def surroundings() -> dict[str, Any]:
    """The machine, and the versions that take part."""
    found: dict[str, Any] = {
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "edgewise": __version__,  # also where it runs from its sources
    }
    for package in ("torch", "torch_geometric", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()


def write(folder: Path, results: dict[str, Any]) -> list[str]:
    """Write table.md and results.json; the names written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    machine = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    parts = [f"{results['command']}, {results['date']}: {machine}\n"]
    for case in dict.fromkeys(row["case"] for row in results["measurements"]):
        rows = [row for row in results["measurements"] if row["case"] == case]
        parts.append(f"## {case}\n\n{markdown(table(rows))}")
    if results["achieved"]:
        shares = [{name: _text(value) for name, value in row.items()} for row in results["achieved"]]
        parts.append(f"## Shares of what the machine can do\n\n{markdown(shares)}")
    (folder / "table.md").write_text("\n".join(parts), encoding="utf-8")
    return ["results.json", "table.md"]


def _text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
