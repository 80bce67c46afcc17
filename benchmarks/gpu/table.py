"""The measurements as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.gpu.problems import Row
from benchmarks.report import markdown, shown

KINDS = ("forward", "step", "replayed step")


def version_of(package: str) -> str | None:
    """Of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def head(results: dict[str, Any]) -> str:
    """Card, versions, date."""
    machine = results["machine"]
    names = ("edgewise", "torch", "triton", "torch_geometric", "anemoi-models")
    versions = ", ".join(f"{name} {machine[name]}" for name in names if machine.get(name))
    copied = f"a copy moves {machine['bandwidth, B/s'] / 1e12:.2f} TB/s, read and written"
    return f"{machine['device']}; Python {machine['python']}, {versions}; {machine['date']}; {copied}."


def of_rows(rows: Sequence[Row]) -> str:
    """One case: a line for each contender."""
    text = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        same = [row for row in rows if row["problem"] == problem]
        told = [same[0].get("dtype"), f"checked: {same[0]['checked']}" if "checked" in same[0] else None]
        text.append(f"{problem}" + "".join(f"; {one}" for one in told if one) + "\n")
        lines = [line(row, same) for row in same]
        columns = {name: "" for one in lines for name in one}
        text.append(markdown([columns | one for one in lines]))
    return "\n".join(text)


def line(row: Row, same: Sequence[Row]) -> dict[str, str]:
    """A contender's figures; × says how many times as long as Edgewise's fastest it takes."""
    found = {"contender": str(row["contender"])}
    taken = row.get("milliseconds", {})
    for kind in KINDS:
        if not any(kind in other.get("milliseconds", {}) for other in same):
            continue
        found[f"{kind}, ms"] = shown(taken[kind]) if kind in taken else ""
        best = [o["milliseconds"][kind] for o in same if _own(o) and kind in o.get("milliseconds", {})]
        found[f"{kind} ×"] = f"{taken[kind] / min(best):.2f}" if best and kind in taken else ""
        if any(kind in other.get("of bandwidth", {}) for other in same):
            share = row.get("of bandwidth", {}).get(kind)
            found[f"{kind}, of bandwidth"] = "" if share is None else f"{share:.0%}"
    errors = row.get("errors")
    if errors:
        found["error"] = f"{max(errors.values()):.1e}"
    for name in ("peak MB", "first step, s", "mask, ms", "mask, of first step", "seconds", "data"):
        if row.get(name) is not None:
            value = row[name]
            found[name] = f"{value:,.3g}" if isinstance(value, float) else str(value)
    if "regret" in row:
        regret = row["regret"]
        found |= {"median": f"{regret['median']:.1%}", "worst": f"{regret['worst']:.1%}"}
        found |= {"configurations": str(len(regret["rows"])), "left out": str(regret["left_out"])}
        found["worst at"] = str(regret["worst_at"])
    if "refused" in row or "not captured" in row:
        found["remark"] = row.get("refused") or f"not captured: {row['not captured']}"
    return found


def page(results: dict[str, Any]) -> str:
    """All of it."""
    parts = [head(results), f"Bytes that any method must move: {results['machine']['bytes']}."]
    cases = dict.fromkeys(row["case"] for row in results["rows"])
    parts += [f"### {name}\n\n{of_rows([row for row in results['rows'] if row['case'] == name])}" for name in cases]
    if results["left out"]:
        parts.append(f"Left out for lack of time: {', '.join(results['left out'])}.")
    return "\n\n".join(parts).rstrip() + "\n"


def failed(rows: Sequence[Row]) -> bool:
    """Whether Edgewise itself was wrong somewhere or raised an error, or a whole case did."""
    return any(row.get("failed") and (_own(row) or row["contender"] == "-") for row in rows)


def _own(row: Row) -> bool:
    return str(row["contender"]).startswith("edgewise")


def plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
