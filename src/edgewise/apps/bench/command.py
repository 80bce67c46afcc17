"""`edgewise bench`: run cases, print their tables, write the results."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from edgewise.apps.bench import report, roofline
from edgewise.apps.bench.cases import CASES, Case
from edgewise.apps.bench.contenders import CONTENDERS, OURS
from edgewise.apps.bench.harness import Budget, race
from edgewise.apps.bench.regret import regret
from edgewise.apps.command.listing import columns
from edgewise.errors import ConfigError, nearest

ALSO = {
    "roofline": "how fast this machine copies and multiplies, which every other case is compared with",
    "regret": "the planner's choices beside the fastest backend, over densities, sizes and patterns",
    "all": "everything above",
}


def bench(
    case: str | None,
    *,
    quick: bool = False,
    threads: Sequence[int] = (),
    budget: Budget = Budget(),  # noqa: B008 (immutable)
    only: Sequence[str] = (),
    out: str | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Print the cases, or run one of them or all."""
    if case is None:
        return _list()
    names = [*CASES, *ALSO]
    if case not in names:
        raise ConfigError(f"unknown case {case!r}{nearest(case, names)}; `edgewise bench` lists them")
    if device == "cuda" and (case != "regret" or not torch.cuda.is_available()):
        why = "PyTorch sees no GPU of NVIDIA's here" if case == "regret" else "only `regret` runs there"
        raise ConfigError(f"--device cuda: {why}; benchmarks/gpu.py times a GPU beside its peers")
    for name in only:
        if name not in CONTENDERS:
            known = ", ".join(CONTENDERS)
            raise ConfigError(f"unknown contender {name!r}{nearest(name, CONTENDERS)}; known are {known}")
    if quick:
        budget = replace(budget, quick=True, seconds=0.0, rounds=budget.rounds or 2)
    results: dict[str, Any] = {
        "command": " ".join(["edgewise", "bench", *_typed(case, quick, threads, only, device)]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "quick": quick,
        "machine": report.surroundings(),
        "roofline": {},
        "formulas": roofline.FORMULAS | {"symbols": roofline.SYMBOLS},
        "measurements": [],
        "achieved": [],
        "growth": [],
        "speed_up": [],
        "regret": None,
    }
    chosen = {name: CASES[name] for name in CASES if case in (name, "all")}
    if only:
        _check_they_take_part(case, chosen, only)
    if case in ("roofline", "all") or any(part.traffic for one in chosen.values() for part in one.parts.values()):
        results["roofline"] = roofline.machine(tuple(threads) or (1, 2), budget)
        _print_machine(results["roofline"])
    for name, one in chosen.items():
        _run(name, one, tuple(threads), budget, only, results)
        sys.stdout.flush()
    if case in ("regret", "all"):
        results["regret"] = regret(quick=quick, seconds=8.0 if quick else 180.0, device=device)
        _print_regret(results["regret"])
    if out is not None:
        results["files"] = [str(Path(out) / name) for name in report.write(Path(out), results)]
        print(f"wrote {', '.join(results['files'])}")
    return results


def _typed(case: str, quick: bool, threads: Sequence[int], only: Sequence[str], device: str) -> list[str]:
    words = [case] + (["--quick"] if quick else [])
    words += ["--threads", *map(str, threads)] if threads else []
    words += ["--only", *only] if only else []
    return words + (["--device", device] if device != "cpu" else [])


def _list() -> dict[str, Any]:
    rows = [{"case": name, "description": case.about} for name, case in CASES.items()]
    rows += [{"case": name, "description": about} for name, about in ALSO.items()]
    contenders = [{"contender": name, "description": one.about} for name, one in CONTENDERS.items()]
    print(f"cases\n{columns(rows)}\n\ncontenders\n{columns(contenders)}\n")
    print("`edgewise bench CASE` runs one of them, `edgewise bench all --quick` all of them at a small size.")
    return {"cases": rows, "contenders": contenders}


def _check_they_take_part(case: str, chosen: dict[str, Case], only: Sequence[str]) -> None:
    takes_part = {name for one in chosen.values() for name in (*OURS, *one.peers)}
    absent = [name for name in only if name not in takes_part]
    if absent and chosen:
        raise ConfigError(
            f"{absent[0]} has no part in {case}; there are {', '.join(n for n in CONTENDERS if n in takes_part)}"
        )


def _run(
    name: str, case: Case, threads: tuple[int, ...], budget: Budget, only: Sequence[str], results: dict[str, Any]
) -> None:
    """Measure every part on every number of threads, and print the table."""
    print(f"\n{name}: {case.about}")
    contenders = [one for one in (*OURS, *case.peers) if not only or one in only]
    counts = threads or case.threads
    if budget.quick and not threads:
        counts = (
            (1, 2) if case.same_bits else (1,)
        )  # beside other programs, two threads wait for each other far longer than they compute
    if budget.quick:
        budget = replace(budget, size=case.quick)
    parts = list(case.parts)
    if budget.quick:
        parts = parts[: 3 if case.by_size else 1]
        if not only and case.whole:
            contenders = ["edgewise", *case.peers]
    rows: list[report.Row] = []
    # For a speed-up all numbers of threads take turns: from one race to the next the machine may change more than that.
    for turn in [counts] if case.same_bits else [(count,) for count in counts]:
        for part in parts:
            entrants = [(contender, count) for contender in contenders for count in turn]
            rows += map(report.as_row, race(name, part, entrants, budget, _say))
    _say("")
    results["measurements"] += rows
    print(columns(_without_absent(report.table(rows))))
    works = {f"{name}/{part}": roofline.work(name, part, budget.size) for part in parts}
    results["achieved"] += report.achieved(rows, works, results["roofline"])
    if case.by_size:
        grown = report.growth(rows, budget.size)
        results["growth"] += [{"case": name} | row for row in grown]
        print("growth: exponents of the number of nodes\n" + columns(_texts(grown)))
    if case.same_bits:
        found = report.speed_up(rows)
        results["speed_up"] += [{"case": name} | row for row in found]
        print(columns(_texts(found)))


def _without_absent(lines: list[dict[str, str]]) -> list[dict[str, str]]:
    """The table for a terminal; refusals, which are long, stand above it, one line for each reason."""
    kept = [line for line in lines if not line["forward ms"].startswith("—")]
    reasons: dict[str, list[str]] = {}
    for line in lines:
        if line not in kept:
            who = f"{line.get('part', '')} {line['contender']}".strip()
            if who not in reasons.setdefault(line["forward ms"], []):
                reasons[line["forward ms"]].append(who)
    for told, names in reasons.items():
        print(f"  {', '.join(names)} {told}")
    return [dict(zip(kept[0], kept[0], strict=True)), *kept] if kept else []


def _texts(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    def text(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{key}: {text(one)}" for key, one in value.items())
        return f"{value:.2f}" if isinstance(value, float) else str(value)

    heads = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: name for name in heads}] * bool(rows) + [
        {name: text(row[name]) if name in row else "" for name in heads} for row in rows
    ]


def _print_machine(found: dict[str, dict[str, float]]) -> None:
    for count, speed in found.items():
        print(
            f"this machine, {count} thread{'s' if count != '1' else ''}: copies "
            f"{speed['bytes'] / 1e9:.1f} GB/s (read and written), multiplies {speed['flops'] / 1e9:.0f} GFLOP/s (sgemm)"
        )


def _print_regret(found: dict[str, Any]) -> None:
    print("\nregret: the planner's choice beside the fastest backend, forward and backward")
    rows = sorted(found["rows"], key=lambda row: -row["regret"])[:10]
    shape = ("graph", "n", "density", "heads", "channels", "choice", "best")
    print(columns(_texts([{name: row.get(name, "") for name in shape} | {"regret": row["regret"]} for row in rows])))
    print(f"median {found['median']:.1%}, worst {found['worst']:.1%} of {len(found['rows'])} configurations")
    if found["left_out"]:
        print(f"{found['left_out']} configurations were left out for lack of time")
    for row in found["break_even"]:
        density = "none measured" if row["density"] is None else f"{row['density']:.2%}"
        print(
            f"  n {row['n']}, {row['heads']} × {row['channels']}: dense is as fast as sparse at a density of {density}"
        )


def _say(line: str) -> None:
    """What is running, on one line of the terminal that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
