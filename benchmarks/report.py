"""The measurements as a table, as JSON and as a drawing."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Measurement
from benchmarks.statistic import slope
from edgewise import __version__

KINDS = {"forward": "forward", "step": "forward and backward"}
ROOM = 3  # significant digits
Row = dict[str, Any]


def as_row(one: Measurement) -> Row:
    """A measurement as plain data."""
    return asdict(one)


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
            taken = row["seconds"].get(kind)
            line[f"{kind} ms"] = milliseconds(taken)
            line[f"{kind} ×"] = ratio(rows, row, kind)
        memory = row["megabytes"].get("step", row["megabytes"].get("forward"))
        line["MB"] = "" if memory is None else f"{memory:,.0f}"
        line["extra MB"] = beyond_results(row, "step" if "step" in row["megabytes"] else "forward")
        kept = row["kept"].get("step", row["kept"].get("forward"))
        line["kept MB"] = "" if kept is None else f"{kept:,.0f}"
        line["error"] = f"{max(row['errors'].values()):.0e}" if row["errors"] else ""
        if row["refused"]:
            line["forward ms"] = f"— {row['refused']}"
        lines.append(line)
    return lines


def beyond_results(row: Row, kind: str) -> str:
    """The peak's megabytes beyond what the pass returns, where both were measured."""
    peak, returned = row["megabytes"].get(kind), row.get("returned", {}).get(kind)
    return "" if peak is None or returned is None else f"{max(0.0, peak - returned):,.0f}"


def milliseconds(taken: dict[str, float] | None) -> str:
    """Median and quartiles."""
    if taken is None:
        return ""
    return f"{shown(1e3 * taken['median'])} ({shown(1e3 * taken['low'])}–{shown(1e3 * taken['high'])})"


def ratio(rows: Sequence[Row], row: Row, kind: str) -> str:
    """A contender's time as a multiple of Edgewise's in the same part, on as many threads."""
    own = next(
        (
            other["seconds"].get(kind)
            for other in rows
            if other["contender"] == "edgewise"
            and (other["case"], other["part"], other["threads"]) == (row["case"], row["part"], row["threads"])
        ),
        None,
    )
    taken = row["seconds"].get(kind)
    return "" if own is None or taken is None else f"{taken['median'] / own['median']:.2f}"


def growth(rows: Sequence[Row], size: float) -> list[dict[str, Any]]:
    """The slopes of log time and of log memory against the log of the number of nodes, by contender and threads."""
    found = []
    for name, threads in dict.fromkeys((row["contender"], row["threads"]) for row in rows):
        same = [row for row in rows if (row["contender"], row["threads"]) == (name, threads)]
        answer: dict[str, Any] = {"contender": name, "threads": threads}
        for kind in KINDS:
            timed = [row for row in same if kind in row["seconds"]]
            nodes = [float(row["part"]) * size for row in timed]
            if len(timed) >= 2:
                answer[f"{kind} time"] = slope(nodes, [row["seconds"][kind]["median"] for row in timed])
                answer[f"{kind} memory"] = slope(nodes, [max(1e-3, row["megabytes"][kind]) for row in timed])
        if len(answer) > 2:
            found.append(answer)
    return found


def speed_up(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """How many times faster than on one thread, by the clock, and whether the bits are the same."""
    found = []
    for part, name in dict.fromkeys((row["part"], row["contender"]) for row in rows):
        same = {row["threads"]: row for row in rows if (row["part"], row["contender"]) == (part, name)}
        timed = {threads: row for threads, row in same.items() if row["seconds"]}
        if not timed:
            continue
        least = min(timed)
        kind = "step" if "step" in timed[least]["seconds"] else "forward"
        first = timed[least]["seconds"][kind]["median"]
        found.append(
            {
                "part": part,
                "contender": name,
                "speed-up": {str(t): first / row["seconds"][kind]["median"] for t, row in timed.items()},
                "same bits": len({row["bits"] for row in timed.values()}) == 1,
            }
        )
    return found


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
                    "gigabytes per second": moved / seconds / 1e9,
                    "of copy": moved / seconds / speed["bytes"],
                    "gigaflops": operations / seconds / 1e9,
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
    """Write table.md, results.json, times.svg and times.png; the names written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    parts = []
    for case in dict.fromkeys(row["case"] for row in results["measurements"]):
        rows = [row for row in results["measurements"] if row["case"] == case]
        parts.append(f"## {case}\n\n{markdown(table(rows))}")
    (folder / "table.md").write_text("\n".join(parts) or "(nothing measured)\n", encoding="utf-8")
    if not any(row["seconds"] for row in results["measurements"]):
        return ["results.json", "table.md"]
    draw(results["measurements"], folder / "times.svg", folder / "times.png")
    return ["results.json", "table.md", "times.svg", "times.png"]


def draw(rows: Sequence[Row], *paths: Path) -> None:
    """Time as a multiple of Edgewise's, a panel for each case, logarithmic; shorter than 1 is faster than Edgewise."""
    import matplotlib
    from matplotlib.figure import Figure

    from edgewise.apps.report.figures import CLASSES

    most = max(row["threads"] for row in rows if row["seconds"])
    bars: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        kind = "step" if "step" in row["seconds"] else "forward"
        multiple = ratio(rows, row, kind)
        if row["seconds"] and multiple and row["threads"] == min(2, most):
            bars.setdefault(f"{row['case']} {row['part']}".strip(), []).append((row["contender"], float(multiple)))
    if not bars:
        return
    height = 0.45 * len(bars) + 0.19 * sum(map(len, bars.values()))
    style = {"svg.fonttype": "none", "svg.hashsalt": "edgewise", "font.size": 8.0, "axes.titlesize": 8.0}
    with matplotlib.rc_context(style):  # type: ignore[arg-type, unused-ignore]
        figure = Figure(figsize=(7.2, max(1.5, height)), layout="constrained")
        ratios = [len(found) + 1 for found in bars.values()]
        panels = figure.subplots(len(bars), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": ratios})[:, 0]
        for panel, (title, found) in zip(panels, bars.items(), strict=True):
            names, values = [name for name, _ in found], [max(value, 1e-3) for _, value in found]
            colours = [CLASSES[0] if name == "edgewise" else CLASSES[9] for name in names]
            panel.barh(names, [value - 1 for value in values], left=1, color=colours)
            for place, value in enumerate(values):
                panel.annotate(f" {value:.2g}×", (max(value, 1), place), va="center")
            panel.invert_yaxis()
            panel.set_title(title, loc="left")
            panel.set_xscale("log")
            panel.axvline(1, color=CLASSES[9], linewidth=0.8)
            panel.margins(x=0.12)
            panel.spines[["top", "right"]].set_visible(False)
        panels[-1].set_xlabel("time ÷ Edgewise's")
        for path in paths:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
