"""Measurements as tables, and where they were made."""

from __future__ import annotations

import datetime
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from edgewise import __version__

KINDS = ("forward", "step")
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


def lines(rows: Sequence[Row], copied: float) -> list[dict[str, str]]:
    """Rows as text: milliseconds with quartiles, times Edgewise's, shares of a copy's speed, megabytes, error."""
    own: dict[str, list[float]] = next((row["seconds"] for row in rows if row["contender"] == "edgewise"), {})
    found = []
    for row in rows:
        line = {"contender": row["contender"]}
        for kind in KINDS:
            taken = row["seconds"].get(kind)
            line[f"{kind} ms"] = "" if taken is None else milliseconds(taken)
            both = taken is not None and kind in own
            line[f"{kind} ×"] = f"{statistics.median(taken) / statistics.median(own[kind]):.2f}" if both else ""
            moved = row.get(f"{kind} bytes")
            line[f"{kind} of copy"] = "" if moved is None else f"{moved / statistics.median(taken) / copied:.0%}"
        line["MB"] = f"{row['MB']:,.0f}" if "MB" in row else ""
        line["error"] = f"{row['error']:.0e}" if "error" in row else ""
        found.append(line | {"remark": row.get("refused", "")})
    return [{name: text for name, text in line.items() if any(one[name] for one in found)} for line in found]


def brief(rows: Sequence[Row], copied: float, multiplied: float) -> list[dict[str, str]]:
    """A line for each case and pass: Edgewise beside the fastest peer, and its shares of the machine's two speeds."""
    found = []
    for name in dict.fromkeys((row["case"], row["part"]) for row in rows):
        own, *peers = (row for row in rows if (row["case"], row["part"]) == name and row["seconds"])
        for kind, taken in own["seconds"].items():
            middle = statistics.median(taken)
            beside = [(statistics.median(peer["seconds"][kind]), peer) for peer in peers if kind in peer["seconds"]]
            least, peer = min(beside, key=lambda one: one[0], default=(0.0, {}))
            shares = {
                f"of {what}": f"{own[key] / middle / speed:.0%}" if (key := f"{kind} {unit}") in own else ""
                for what, unit, speed in (("copying", "bytes", copied), ("products", "operations", multiplied))
            }
            line = {"case": " ".join(filter(None, name)), "threads": str(own["threads"])}
            line |= {"pass": {"step": "forward and backward"}.get(kind, kind)}
            line |= {"Edgewise, ms": shown(1e3 * middle), "peer, ms": shown(1e3 * least) if peer else ""}
            line |= {"peer": peer.get("contender", ""), "×": f"{least / middle:.2f}" if peer else ""}
            line |= {"MB": f"{own['MB']:,.0f}", "its MB": f"{peer['MB']:,.0f}" if peer else ""}
            found.append(line | shares)
    return found


def milliseconds(taken: Sequence[float]) -> str:
    """Median and quartiles of seconds.

    Example
        >>> milliseconds([0.003, 0.001, 0.002, 0.005, 0.004])
        '3.00 (2.00–4.00)'
    """
    quarters = statistics.quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else [taken[0]] * 3
    low, middle, high = (shown(1e3 * value) for value in quarters)
    return f"{middle} ({low}–{high})"


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """Rows of text as a table in Markdown."""
    if not lines:
        return "(nothing measured)\n"
    head = list(lines[0])
    rows = [head, ["---"] * len(head), *([str(line.get(name, "")) for name in head] for line in lines)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def surroundings(device: str) -> dict[str, Any]:
    """The machine, and the versions that take part."""
    found: dict[str, Any] = {
        "processor": _processor() if device == "cpu" else torch.cuda.get_device_name(),
        "system": platform.platform(),
        "python": f"Python {platform.python_version()}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "edgewise": f"edgewise {__version__}",  # also where it runs from its sources
    }
    for package in ("torch", "triton", "torch_geometric", "numba"):
        try:
            found[package] = f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor() or platform.machine()
